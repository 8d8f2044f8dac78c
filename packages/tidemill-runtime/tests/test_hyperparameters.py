"""Decoding, splitting and encoding of hyperparameters."""

import json

import pytest

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.hyperparameters import RESERVED, as_arguments, decode


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("3", 3),
        ("0.001", 0.001),
        ("true", True),
        ("null", None),
        ('"3"', "3"),
        ("adam", "adam"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("", ""),
        ("{broken", "{broken"),
        ("[" * 2500, "[" * 2500),
        ("9" * 2500, int("9" * 2500)),
    ],
)
def test_a_value_is_json_if_it_parses_and_text_otherwise(raw, value):
    assert decode({"a": raw}).user == {"a": value}


@pytest.mark.parametrize(
    ("value", "argument"),
    [
        (True, "True"),
        (False, "False"),
        (None, ""),
        (3, "3"),
        (0.001, "0.001"),
        ('it\'s "q" $HOME', 'it\'s "q" $HOME'),
        ("a;b", "a;b"),
        ("hello world", "hello world"),
        ([1, 2, "a b"], "[1, 2, 'a b']"),
        ({"b": 1, "a": "x y"}, "a=x y,b=1"),
        ("", ""),
    ],
)
def test_a_json_value_becomes_this_argument(value, argument):
    assert as_arguments(decode({"name": json.dumps(value)}).user) == ("--name", argument)


def test_arguments_are_sorted_and_one_letter_names_have_one_dash():
    user = decode({"lr": "1", "b": "2", "batch-size": "3", "B": "4"}).user
    assert as_arguments(user) == ("-B", "4", "-b", "2", "--batch-size", "3", "--lr", "1")


def test_the_nine_reserved_names_configure_the_toolkit():
    assert len(RESERVED) == 9
    split = decode({**dict.fromkeys(RESERVED, "x"), "sagemaker_mpi_enabled": "true", "epochs": "3"})
    assert set(split.reserved) == RESERVED
    assert split.framework == {"sagemaker_mpi_enabled": True}
    assert split.user == {"epochs": 3}


def test_every_trial_of_a_tuning_job_gets_its_own_model_dir():
    tuning = {"_tuning_objective_metric": "loss", "sagemaker_job_name": "trial-1"}
    assert decode({**tuning, "model_dir": "s3://b/k"}).user["model_dir"] == "s3://b/k/trial-1/model"
    named = decode({**tuning, "model_dir": "s3://b/k"}, training_job="trial-2")
    assert named.user["model_dir"] == "s3://b/k/trial-2/model", "SDKs name the tuning job in sagemaker_job_name"
    assert decode({**tuning, "model_dir": "/opt/ml/model"}).user["model_dir"] == "/opt/ml/model"
    assert "model_dir" not in decode(tuning).user
    assert decode({"model_dir": "s3://b/k"}).user["model_dir"] == "s3://b/k"


@pytest.mark.parametrize("bad", ["a\0b", "\ud800"])
def test_a_value_that_no_argument_can_contain_is_named(bad):
    with pytest.raises(ConfigurationError, match="hyperparameter 'name'"):
        as_arguments({"name": bad})
    with pytest.raises(ConfigurationError, match="hyperparameter"):
        as_arguments({bad: "value"})
