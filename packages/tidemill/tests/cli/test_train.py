"""`tidemill train` and `tidemill tune`: the parsing of their arguments."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.cli.job_options import hyperparameter

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0.5", -0.5),
        ("1e-4", 1e-4),
        ("adam", "adam"),
        ("true", "true"),
        ("null", "null"),
        ("NaN", "NaN"),
        ("1e999", "1e999"),
        ("[1, 2]", "[1, 2]"),
        ("", ""),
        ("a=b", "a=b"),
    ],
)
def test_only_numbers_are_not_text(text: str, value: object) -> None:
    read = hyperparameter(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hp", "epochs"],
        ["--hp", "=3"],
        ["--hp", "lr=1", "--hp", "lr=2"],
        ["--input", "training=/no/such/place"],
        ["--instance-count", "0"],
    ],
)
def test_malformed_arguments_are_wrong_usage_and_start_nothing(
    tidemill: Run, variables: dict[str, str], arguments: list[str]
) -> None:
    assert tidemill("train", "train.py", *arguments).returncode == 2
    assert not Path(variables["TIDEMILL_STATE_DIR"]).exists()


@pytest.mark.parametrize(
    "arguments", [["--hp", "epochs"], ["--input", "training=/no/such/place"], ["--range", "lr=a:b"]]
)
def test_malformed_arguments_of_a_search_are_wrong_usage_and_start_nothing(
    tidemill: Run, variables: dict[str, str], arguments: list[str]
) -> None:
    assert tidemill("tune", "train.py", "--range", "units=1:8", *arguments).returncode == 2
    assert not Path(variables["TIDEMILL_STATE_DIR"]).exists()
