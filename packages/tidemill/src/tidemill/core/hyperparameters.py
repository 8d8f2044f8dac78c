"""Hyperparameters on the wire: a map of strings, each a JSON text, encoded exactly as by AWS's estimators.

A script reads command line arguments, so some values reach it in another form: true becomes ``True``, and a list its
Python form. `surprising` names such values before the job is started.
"""

import json
from collections.abc import Mapping
from typing import Any

_MAX_VALUE_CHARS = 2500
_RESERVED_NAMES = frozenset({"_tuning_objective_metric", "default_user_module_name"})


def encode(hyperparameters: Mapping[Any, Any]) -> dict[str, str]:
    """Encode each value as JSON.

    Raises:
        ValueError: A value has no JSON form, or its text is longer than SageMaker's limit of 2,500 characters.
    """
    return {str(name): _encode_value(str(name), value) for name, value in hyperparameters.items()}


def decode(hyperparameters: Mapping[str, str]) -> dict[str, Any]:
    """Decode each value; a string that is not JSON is kept unchanged, as in the training toolkit.

    Args:
        hyperparameters: Texts as the API has them.
    """
    return {name: _decode_value(text) for name, text in hyperparameters.items()}


def is_reserved(name: str) -> bool:
    """Return whether a name belongs to the platform and does not reach the script as an argument.

    Args:
        name: Name of a hyperparameter.
    """
    return name.startswith("sagemaker_") or name in _RESERVED_NAMES


def surprising(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return one sentence per value that reaches the script in a form that a user may not expect.

    Args:
        hyperparameters: Decoded values.
    """
    sentences = []
    for name, value in hyperparameters.items():
        if isinstance(value, bool):
            sentences.append(
                f"hyperparameter {name!r} is a bool: the script gets the argument '--{name} {value}', and argparse's"
                " type=bool takes every non-empty text, 'False' too, for true; read it with"
                f" type=lambda text: text == 'True', or from the SM_HP_{name.upper()} variable"
            )
        elif isinstance(value, (list, tuple)):
            sentences.append(
                f"hyperparameter {name!r} is a list: the script gets one argument, the Python text"
                f" {str([*value])!r}; read it with ast.literal_eval, or as JSON from the SM_HP_{name.upper()} variable"
            )
    return sentences


def _encode_value(name: str, value: Any) -> str:
    try:
        text = json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"hyperparameter {name!r} has no JSON form: {value!r} ({type(value).__name__}); use strings, numbers,"
            " booleans, None, and lists or dictionaries of these"
        ) from error
    if len(text) > _MAX_VALUE_CHARS:
        raise ValueError(
            f"hyperparameter {name!r} takes {len(text)} characters as JSON; SageMaker allows {_MAX_VALUE_CHARS}."
            " Put long values into a file of a channel or of source_dir"
        )
    return text


def _plain(value: Any) -> Any:
    """Return NumPy scalars and arrays as Python values, without importing NumPy."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"{type(value).__name__} has no JSON form")
    return convert()


def _decode_value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
