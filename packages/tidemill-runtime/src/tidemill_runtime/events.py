"""The runtime's own lines in the job's log: few, on standard error, one event each, never mixed with the script's."""

from __future__ import annotations

import json
import os

MAX_FIELD_CHARACTERS = 2000


def emit(event: str, **fields: object) -> None:
    """Write ``tidemill: event key=value ...``.

    Args:
        event: Noun and past participle, e.g. ``script.started``.
        **fields: Values, written as compact JSON; long ones are truncated.
    """
    texts = (f"{name}={_cut(json.dumps(value))}" for name, value in fields.items())
    line = " ".join([f"tidemill: {event}", *texts]) + "\n"
    # A single write to the descriptor keeps the line whole even if the script writes at the same moment.
    os.write(2, line.encode("ascii"))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_FIELD_CHARACTERS else text[: MAX_FIELD_CHARACTERS - 3] + "..."
