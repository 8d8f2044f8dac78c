"""The how-to page on replacing an image. `tests/e2e/test_wheel.py` runs its commands."""

import re
import shlex
from pathlib import Path

from tidemill_serving.flags import read_flags

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/replace-a-tensorflow-serving-image.md"


def test_every_command_line_of_the_page_is_accepted() -> None:
    joined = re.sub(r" *\\\n *", " ", PAGE.read_text())
    lines = re.findall(r"tensorflow_model_server (--[^`\n>]*)", joined)
    assert len(lines) >= 4
    for line in lines:
        flags = read_flags([*shlex.split(line), "--model_base_path=/models/half"])
        assert flags.without_effect() == []
