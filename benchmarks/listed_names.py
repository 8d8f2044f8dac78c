"""Finds the names that the pages of docs/api list, and what their docstrings leave out. Reads the source, imports none.

    python benchmarks/listed_names.py

A public function or method describes each parameter below Args, what it returns below Returns or Yields, and what it
raises itself below Raises. A class describes the parameters of its constructor in its own docstring or in `__init__`'s.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from source_measures import ROOT, Function

__all__ = ["Listed", "exported", "listed", "missing", "shown"]

SOURCES = sorted(ROOT.glob("packages/*/src"))
HEADING = re.compile(r"^(\w+):$", re.MULTILINE)


@dataclass(frozen=True)
class Listed:
    """A function, method or class of a page. ``missing`` names what its docstring lacks, e.g. ``Args: logs``."""

    name: str
    missing: tuple[str, ...]


def listed() -> list[Listed]:
    """Return what the pages list, without properties and what the pages' classes inherit from libraries."""
    found = {each.name: each for module, names in shown().items() for name in names for each in _of_name(module, name)}
    return list(found.values())


def shown() -> dict[str, list[str]]:
    """Return the names that the directives of the pages show, by module."""
    names: dict[str, list[str]] = {}
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for target, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text(), re.MULTILINE):
            members = re.search(r"members: \[(.*)\]", options)
            module, _, name = target.rpartition(".")
            if _module(target) is None:
                names.setdefault(module, []).append(name)
            else:
                names.setdefault(target, []).extend(members[1].split(", ") if members else exported(target))
    return names


def _of_name(module: str, name: str) -> Iterator[Listed]:
    place, node = _resolve(module, name)
    if isinstance(node, ast.Module):  # a submodule that the module exports
        yield from (each for one in exported(place) for each in _of_name(place, one))
    elif isinstance(node, Function):
        yield Listed(f"{module}.{name}", missing(node))
    elif isinstance(node, ast.ClassDef):
        yield Listed(f"{module}.{name}", _of_class(place, node))
        for method in _methods(place, node):
            yield Listed(f"{module}.{name}.{method.name}", missing(method))


def missing(function: Function, described: str | None = None) -> tuple[str, ...]:
    """Return what a docstring leaves out.

    Args:
        function: The function or method.
        described: The text that has to describe it. Default: its own docstring.
    """
    text = ast.get_docstring(function) if described is None else described
    if not text:
        return ("docstring",)
    sections = _sections(text)
    arguments = function.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None]
    names = [name for name in names if name not in ("self", "cls") and not name.startswith("_")]
    args = sections.get("Args", "") + sections.get("Attributes", "")
    lacks = [f"Args: {name}" for name in names if not re.search(rf"^ *\*{{0,2}}{name}\b.*:", args, re.MULTILINE)]
    returned = ast.unparse(function.returns) if function.returns is not None else "None"
    if returned not in ("None", "NoReturn", "Never", "Self") and not {"Returns", "Yields"} & set(sections):
        lacks.append("Returns")
    if _raises(function) and "Raises" not in sections:
        lacks.append("Raises")
    return tuple(lacks)


def _sections(text: str) -> dict[str, str]:
    """Return the sections of a Google docstring by their heading."""
    parts = HEADING.split(text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _raises(function: Function) -> bool:
    """Return whether a function itself raises an error that its caller may see."""
    inner = [node for node in ast.walk(function) if isinstance(node, Function | ast.Lambda) and node is not function]
    hidden = {child for each in inner for child in ast.walk(each)}
    raised = [node for node in ast.walk(function) if isinstance(node, ast.Raise) and node not in hidden]
    return any(node.exc is not None and "NotImplementedError" not in ast.unparse(node.exc) for node in raised)


def _of_class(module: str, node: ast.ClassDef) -> tuple[str, ...]:
    text = ast.get_docstring(node)
    if not text:
        return ("docstring",)
    constructor = next((each for each in node.body if isinstance(each, Function) and each.name == "__init__"), None)
    if constructor is not None:
        own = ast.get_docstring(constructor) or ""
        return missing(constructor, f"{text}\n{own}")
    fields = [
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    dataclass_ = any("dataclass" in ast.unparse(each) for each in node.decorator_list)
    if not dataclass_:
        return ()
    sections = _sections(text)
    shown = sections.get("Args", "") + sections.get("Attributes", "")
    public = [name for name in fields if not name.startswith("_")]
    return tuple(f"Attributes: {name}" for name in public if not re.search(rf"^ *{name}\b.*:", shown, re.MULTILINE))


def _methods(module: str, node: ast.ClassDef) -> Iterator[Function]:
    """Yield the public methods of a class and of the project's classes that it inherits from."""
    seen: set[str] = set()
    queue = [(module, node)]
    while queue:
        place, each = queue.pop(0)
        for method in each.body:
            if not isinstance(method, Function) or method.name.startswith("_") or method.name in seen:
                continue
            seen.add(method.name)
            named = [ast.unparse(decorator) for decorator in method.decorator_list]
            if not any(name.endswith(("property", ".setter", "overload", "override")) for name in named):
                yield method
        for base in each.bases:
            if isinstance(base, ast.Name):
                owner, parent = _resolve(place, base.id)
                if isinstance(parent, ast.ClassDef):
                    queue.append((owner, parent))


def exported(module: str) -> list[str]:
    """Return a module's ``__all__``."""
    tree = _module(module)
    assert tree is not None
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def _resolve(module: str, name: str) -> tuple[str, ast.AST | None]:
    """Return the definition of a name and its module, through imports; None outside of the project."""
    tree = _module(module)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, Function | ast.ClassDef) and node.name == name:
            return module, node
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
            original = next(each.name for each in node.names if (each.asname or each.name) == name)
            submodule = _module(f"{node.module}.{original}")
            return (
                (f"{node.module}.{original}", submodule)
                if submodule is not None
                else _resolve(node.module or "", original)
            )
    return module, None


@cache
def _module(name: str) -> ast.Module | None:
    """Return the parsed source of a module of the project; None if there is no such file."""
    for source in SOURCES:
        path = source.joinpath(*name.split("."))
        for file in (path.with_suffix(".py") if path.name else path, path / "__init__.py"):
            if file.is_file():
                return ast.parse(file.read_text())
    return None


if __name__ == "__main__":
    names = listed()
    for each in names:
        if each.missing:
            print(each.name, "-", ", ".join(each.missing))
    described = sum(not each.missing for each in names)
    print(f"{'names of docs/api that are described whole':48} {described} of {len(names)}")
