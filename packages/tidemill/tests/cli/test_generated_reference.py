"""The generated pages and pictures of the documentation are up to date with what they are made of."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tidemill.cli import VERBS
from tidemill.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[4]


def program(path: str) -> ModuleType:
    """Return a program of the checkout as a module."""
    file = REPOSITORY / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)  # dataclasses look there
    load: Callable[[ModuleType], None] = spec.loader.exec_module
    load(module)
    return module


@pytest.mark.parametrize("name", ["job-environments.md", "model-server-flags.md", "options.md", "settings.md"])
def test_the_page_is_current(name: str) -> None:
    page = program("docs/write_reference.py").PAGES[name]
    assert (REPOSITORY / "docs/reference" / name).read_text() == page(), f"{name} is stale; run `make reference`"


def test_every_verb_and_every_setting_is_on_its_page() -> None:
    pages = program("docs/write_reference.py").PAGES
    options, settings = pages["options.md"](), pages["settings.md"]()
    assert [verb for verb in VERBS if f"\n## tidemill {verb}\n" not in options] == []
    rows = {line.split("`")[1]: line for line in settings.splitlines() if line.startswith("| `")}
    assert [name for name in Settings.model_fields if name not in rows] == []
    unexplained = [name for name, row in rows.items() if row.rstrip().endswith("|  |")]
    assert unexplained == []


def test_the_diagrams_are_current_and_ask_no_other_host() -> None:
    diagrams = program("docs/draw_diagrams.py")
    for name, draw in diagrams.DIAGRAMS.items():
        picture = draw()
        assert (diagrams.PICTURES / name).read_text() == picture, f"{name} is stale; run `make reference`"
        assert re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]  # a name, not an address


def test_the_price_list_has_every_file_and_is_about_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    prices = program("benchmarks/price_list.py")
    assert prices.unowned() == []
    shown, counted = prices.shown(prices.PAGE.read_text()), prices.counted()
    shown.pop("all")
    assert sorted(shown) == sorted(counted)
    stale = {name: counted[name] for name in shown if abs(shown[name] - counted[name]) > max(300, shown[name] / 4)}
    assert stale == {}, "run `make prices`"


def test_every_name_of_the_api_pages_is_described_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parameter, what is returned, and what is raised: as Google sections."""
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    names = program("benchmarks/listed_names.py")
    listed = names.listed()
    assert len(listed) >= 200
    assert [f"{each.name}: {', '.join(each.missing)}" for each in listed if each.missing] == []


def test_the_api_pages_show_every_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(REPOSITORY / "benchmarks")
    names = program("benchmarks/listed_names.py")
    for module, shown in names.shown().items():
        assert len(shown) == len(set(shown)), module
        refused = module == "horovod.tensorflow.elastic"  # one name stands for all
        assert refused or set(names.exported(module)) - set(shown) == set(), module
