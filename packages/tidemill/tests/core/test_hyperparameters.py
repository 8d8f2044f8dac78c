"""The encoding of hyperparameters, as AWS's estimators send them."""

import math

import pytest

from tidemill.core import hyperparameters as hps

ENCODED = [
    ("a b", '"a b"'),
    ("", '""'),
    (3, "3"),
    (0.1, "0.1"),
    (True, "true"),
    (None, "null"),
    ([1, 2], "[1, 2]"),
    ((1, 2), "[1, 2]"),
    ({"b": 1, "a": "x y"}, '{"b": 1, "a": "x y"}'),
    ('it\'s "q" $HOME;', '"it\'s \\"q\\" $HOME;"'),
    ("é", '"\\u00e9"'),
]


@pytest.mark.parametrize(("value", "text"), ENCODED)
def test_a_value_is_sent_as_its_json_text(value: object, text: str) -> None:
    assert hps.encode({"name": value}) == {"name": text}


@pytest.mark.parametrize("value", [value for value, _ in ENCODED if not isinstance(value, tuple)])
def test_decoding_inverts_encoding(value: object) -> None:
    assert hps.decode(hps.encode({"name": value})) == {"name": value}


def test_a_bare_string_stays_a_string() -> None:
    assert hps.decode({"a": "plain words", "b": "NaN"})["a"] == "plain words"
    assert math.isnan(hps.decode({"b": "NaN"})["b"])


def test_numpy_like_values_are_converted_without_numpy() -> None:
    class Scalar:
        def tolist(self) -> float:
            return 0.5

    assert hps.encode({"rate": Scalar()}) == {"rate": "0.5"}


def test_a_value_without_json_form_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'layer' has no JSON form"):
        hps.encode({"layer": object()})


def test_a_value_beyond_the_limit_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'text' takes 2502 characters.*allows 2500"):
        hps.encode({"text": "x" * 2500})


def test_bools_and_lists_are_named_as_surprising_and_others_are_not() -> None:
    sentences = hps.surprising({"epochs": 3, "augment": False, "sizes": [1, 2], "name": "x"})
    assert [sentence.split(":")[0] for sentence in sentences] == [
        "hyperparameter 'augment' is a bool",
        "hyperparameter 'sizes' is a list",
    ]
    assert "'--augment False'" in sentences[0]
    assert "'[1, 2]'" in sentences[1]


def test_the_names_of_the_platform_are_reserved() -> None:
    assert hps.is_reserved("sagemaker_program")
    assert not hps.is_reserved("model_dir")


def test_a_value_that_is_nested_too_deeply_stays_text() -> None:
    assert hps.decode({"deep": "[" * 5000 + "]" * 5000}) == {"deep": "[" * 5000 + "]" * 5000}
