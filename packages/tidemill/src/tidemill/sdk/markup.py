"""HTML for notebooks: a small table per object, with every text escaped."""

import html
from collections.abc import Mapping
from typing import Any

_MAX_CHARACTERS = 300


def table(title: str, members: Mapping[str, Any]) -> str:
    """Return the HTML of an object: its title and its members; members without a value are left out.

    Args:
        title: Title, e.g. the name of the class.
        members: Values by label. A value is formatted with `str` and truncated to 300 characters; it may contain text
            of a user or a job.
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
