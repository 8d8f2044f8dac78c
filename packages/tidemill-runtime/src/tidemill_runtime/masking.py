"""Masks secret hyperparameters in the job's log and in its failure report; the script gets their values.

A hyperparameter is secret if its name says so. The script's own output is not changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASK = "******"

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORDS = frozenset(
    {"apikey", "credential", "credentials", "passphrase", "passwd", "password", "pwd", "secret", "secrets"}
)
_LAST_WORDS = frozenset({"token"})
_OF_KEYS = frozenset({"access", "api", "encryption", "private", "signing", "ssh"})


def is_secret_name(name: str) -> bool:
    """Return whether a name denotes a secret: ``db_password``, ``apiKey``, ``HF_TOKEN``, but not ``max_tokens``.

    ``token`` denotes a secret only at the end of a name: ``token_dim`` is a size.

    Args:
        name: Name of a hyperparameter, option or variable.
    """
    words = [word.lower() for word in _WORD.findall(name)]
    keys = any(words[i] in _OF_KEYS and words[i + 1] in ("key", "keys") for i in range(len(words) - 1))
    return keys or bool(_WORDS & set(words)) or bool(_LAST_WORDS & set(words[-1:]))


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return hyperparameters with the values of secrets replaced, also inside dictionaries and lists.

    Args:
        values: Hyperparameters by name; not changed.

    Returns:
        A copy.
    """
    return {name: MASK if is_secret_name(name) else _inside(value) for name, value in values.items()}


def masked_arguments(arguments: Iterable[str]) -> tuple[str, ...]:
    """Return a command line with the values of options with secret names masked: ``--token X``, ``--token=X``.

    Args:
        arguments: Words of a command line.

    Returns:
        As many words.
    """
    shown: list[str] = []
    is_secret = False
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        named = option.startswith("-") and is_secret_name(option)
        if is_secret:
            shown.append(MASK)
        else:
            shown.append(f"{option}={MASK}" if named and equals else argument)
        is_secret = named and not equals  # also after a secret: that may have been an option without a value
    return tuple(shown)


def _inside(value: Any) -> Any:
    if isinstance(value, dict):
        return masked(value)
    return [_inside(each) for each in value] if isinstance(value, list) else value
