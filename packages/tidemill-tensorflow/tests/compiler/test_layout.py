"""How the compiler's files depend on each other."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import tidemill_tensorflow

ROOT = Path(tidemill_tensorflow.__file__).parent / "compiler"
PACKAGE = "tidemill_tensorflow.compiler"
LONGEST = 8


def test_no_chain_of_imports_has_more_than_eight_files() -> None:
    files = {_name(path): path for path in ROOT.rglob("*.py")}
    imports = {name: _imports(path) & files.keys() - {name} for name, path in files.items()}

    @cache
    def longest_from(name: str) -> tuple[str, ...]:
        return (name, *max(map(longest_from, imports[name]), key=len, default=()))

    chain = max(map(longest_from, files), key=len)
    assert f"{PACKAGE}.session" in chain, "the imports of types count too"
    assert len(chain) <= LONGEST, " > ".join(chain)


def _name(path: Path) -> str:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join([PACKAGE, *parts])


def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports, also for annotations or inside of functions, and their packages."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            if node.module != PACKAGE:
                found.add(node.module)
    return found
