"""The how-to page on replacing an image. `tests/e2e/test_wheel.py` runs its commands."""

import re
from pathlib import Path

from tidemill_serving.flags import read_flags

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/replace-a-tensorflow-serving-image.md"


def test_every_command_line_of_the_page_is_accepted() -> None:
    lines = re.findall(r"tensorflow_model_server (--[^`\n\\]*)", PAGE.read_text())
    assert len(lines) >= 4
    for line in lines:
        flags = read_flags([*line.split(), "--model_base_path=/models/half"])
        assert flags.without_effect() == []
