"""What notebooks show of the SDK's objects: a small table in HTML, with every text escaped."""

import html
from collections.abc import Mapping
from typing import Any

__all__ = ["table"]

_MAX_CHARACTERS = 300


def table(title: str, members: Mapping[str, Any]) -> str:
    """Return the HTML of an object: its title and its members; those without a value are left out.

    Args:
        title: E.g. the class.
        members: Values by label. A value is shown by `str`, up to 300 characters, and may be a user's or a job's text.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{_escaped(label)}</th><td style='text-align:left'>{_escaped(value)}</td></tr>"
        for label, value in members.items()
        if value not in (None, "", {}, ())
    )
    return f"<table><caption><b>{_escaped(title)}</b></caption>{rows}</table>"


def _escaped(value: Any) -> str:
    text = str(value)
    return html.escape(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}...")
