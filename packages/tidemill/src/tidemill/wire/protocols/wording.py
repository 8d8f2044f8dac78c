"""Formats members and values for error messages: paths in AWS's format, and values truncated to a length."""

from typing import Any

MAX_SHOWN = 256
"""Maximum length of a value in a message, in characters."""

Path = tuple[Any, str] | None
"""Location of a value: the parent's path, and the member's name as AWS shows it. None at the top."""


def render(path: Path) -> str:
    """Format a path with dots, e.g. ``inputDataConfig.1.member.channelName``; long map keys are cut.

    Args:
        path: Linked steps, the last one first.
    """
    names: list[str] = []
    while path is not None:
        path, name = path
        names.append(shorten(name))
    return ".".join(reversed(names))


def shorten(value: Any) -> str:
    """Format a value as AWS does, truncated after `MAX_SHOWN` characters.

    Args:
        value: A value of a request.
    """
    if isinstance(value, dict):
        value = "{" + ", ".join(f"{k}={v}" for k, v in list(value.items())[:16]) + "}"
    elif isinstance(value, list):
        value = "[" + ", ".join(str(item) for item in value[:16]) + "]"
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}... ({len(text)} characters)"


def shown_name(name: str) -> str:
    """Return a member's name as AWS writes it in messages: the first letter in lower case.

    Args:
        name: Name in botocore's model.
    """
    return name[:1].lower() + name[1:]
