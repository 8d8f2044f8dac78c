"""The generated pages of docs/reference are up to date with the code."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tidemill.cli import VERBS
from tidemill.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[4]


def page_writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_reference", REPOSITORY / "docs/write_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    load: Callable[[ModuleType], None] = spec.loader.exec_module
    load(module)
    return module


@pytest.mark.parametrize("name", ["options.md", "settings.md"])
def test_the_page_is_current(name: str) -> None:
    page = page_writer().PAGES[name]
    assert (REPOSITORY / "docs/reference" / name).read_text() == page(), f"{name} is stale; run `make reference`"


def test_every_verb_and_every_setting_is_on_its_page() -> None:
    pages = page_writer().PAGES
    options, settings = pages["options.md"](), pages["settings.md"]()
    assert [verb for verb in VERBS if f"\n## tidemill {verb}\n" not in options] == []
    rows = {line.split("`")[1]: line for line in settings.splitlines() if line.startswith("| `")}
    assert [name for name in Settings.model_fields if name not in rows] == []
    unexplained = [name for name, row in rows.items() if row.rstrip().endswith("|  |")]
    assert unexplained == []
