"""The expressions of pipeline definitions: `Get`, `Std:Join` and `Std:JsonGet`.

An expression is an object with one of these names as its only key. `found_in` lists the paths that a value reads,
with which definitions are checked; `resolved` replaces the expressions of a value by what they read.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Get", "JsonFile", "Reader", "Unresolved", "found_in", "part_of", "resolved"]

_STEP = re.compile(r"Steps\.([A-Za-z0-9_-]+)(?:\.(.+))?")
_PART = re.compile(r"""\.?([A-Za-z0-9_:/-]+)|\[(\d+)\]|\[(["'])(.*?)\3\]""")
_FILES = "PropertyFiles."


class Unresolved(ValueError):
    """An expression is malformed, or what it reads does not exist; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Get:
    """A parsed path of a `Get`.

    Attributes:
        root: ``Parameters``, ``Execution`` or ``Steps``.
        name: Name of the parameter, variable or step.
        path: The rest of a path into a step's properties; empty for the others.
    """

    root: str
    name: str
    path: str = ""

    @classmethod
    def parse(cls, text: object) -> "Get":
        """Parse a path, e.g. ``Steps.Train.ModelArtifacts.S3ModelArtifacts``.

        Args:
            text: The value of `Get`.

        Raises:
            Unresolved: The path has another form.
        """
        if isinstance(text, str):
            root, _, name = text.partition(".")
            if root in ("Parameters", "Execution") and name:
                return cls(root, name)
            if match := _STEP.fullmatch(text):
                return cls("Steps", match[1], match[2] or "")
        raise Unresolved(
            f"{text!r} is not a path of Get; it begins with Parameters.NAME, Execution.NAME or Steps.NAME.PROPERTY"
        )

    @property
    def file(self) -> str:
        """The name of the property file that it reads; empty for another path."""
        return self.path.removeprefix(_FILES) if self.root == "Steps" and self.path.startswith(_FILES) else ""

    def __str__(self) -> str:
        return ".".join(filter(None, (self.root, self.name, self.path)))


@dataclass(frozen=True, slots=True)
class JsonFile:
    """What a `Std:JsonGet` reads.

    Attributes:
        file: The property file; None with ``uri``.
        uri: The S3 URI of a JSON file; empty with ``file``.
        path: Path of the value in the file.
    """

    file: Get | None
    uri: str
    path: str


class Reader(Protocol):
    """Reads what expressions name, for one step of an execution."""

    async def get(self, path: Get) -> Any:
        """Return the value of a path; raises `Unresolved`.

        Args:
            path: A parameter, a variable of the execution, or a property of an earlier step.
        """
        ...

    async def json(self, source: JsonFile) -> Any:
        """Return the content of a JSON file; raises `Unresolved`.

        Args:
            source: The file.
        """
        ...


def found_in(value: Any) -> Iterator[Get]:
    """Yield the paths that the expressions in a value read.

    Args:
        value: A value of JSON.

    Raises:
        Unresolved: An expression is malformed.
    """
    name = _expression(value)
    if name == "Get":
        yield Get.parse(value["Get"])
    elif name == "Std:Join":
        yield from found_in(_join(value[name])[1])
    elif name == "Std:JsonGet":
        body = _json_get(value[name])
        yield from found_in(body.get("PropertyFile") or body.get("S3Uri"))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from found_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from found_in(each)


async def resolved(value: Any, reader: Reader) -> Any:
    """Return a value in which each expression is replaced by what it reads.

    Args:
        value: A value of JSON.
        reader: Reads parameters, variables, properties and files.

    Raises:
        Unresolved: What an expression reads does not exist.
    """
    name = _expression(value)
    if name:
        return await _EXPRESSIONS[name](value[name], reader)
    if isinstance(value, Mapping):
        return {key: await resolved(each, reader) for key, each in value.items()}
    if isinstance(value, list):
        return [await resolved(each, reader) for each in value]
    return value


def part_of(value: Any, path: str, *, what: str) -> Any:
    """Return a part of a value of JSON.

    A key of a list selects the element that has this name: in ``Outputs['train']`` the one whose OutputName is
    ``train``.

    Args:
        value: The whole.
        path: Names with dots, ``[0]`` and ``['name']``; a leading ``$`` is ignored.
        what: The whole, for messages.

    Raises:
        Unresolved: There is no such part.
    """
    position, text = 0, path.removeprefix("$")
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise Unresolved(f"{path!r} is not a path: expected NAME, [0] or ['name'] at {text[position:]!r}")
        key: str | int = int(match[2]) if match[2] else match[1] or match[4]
        value = _child(value, key, path=path, what=what)
        position = match.end()
    return value


def _child(value: Any, key: str | int, *, path: str, what: str) -> Any:
    if isinstance(value, Mapping) and str(key) in value:
        return value[str(key)]
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    if isinstance(value, list) and isinstance(key, str):
        for each in value:
            if isinstance(each, Mapping) and key in (text for name, text in each.items() if name.endswith("Name")):
                return each
    present = ", ".join(sorted(value)) if isinstance(value, Mapping) else f"a {type(value).__name__}"
    raise Unresolved(f"{what} has no {path!r}: {key!r} is not in it, but {present or 'nothing'}")


def _expression(value: Any) -> str:
    if isinstance(value, Mapping) and len(value) == 1:
        name = next(iter(value))
        return name if name in _EXPRESSIONS else ""
    return ""


def _join(body: Any) -> tuple[str, list[Any]]:
    if not isinstance(body, Mapping) or not isinstance(body.get("Values"), list):
        raise Unresolved(f"Std:Join needs On, a text, and Values, a list; got {body!r}")
    return str(body.get("On", "")), body["Values"]


def _json_get(body: Any) -> Mapping[str, Any]:
    sources = [name for name in ("PropertyFile", "S3Uri") if isinstance(body, Mapping) and body.get(name)]
    if len(sources) != 1 or not isinstance(body.get("Path"), str):
        raise Unresolved(f"Std:JsonGet needs Path and either PropertyFile or S3Uri; got {body!r}")
    return body  # type: ignore[no-any-return]


def _text(value: Any) -> str:
    """Return a value as part of a joined text, as JSON shows it and not Python."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


async def _resolve_get(body: Any, reader: Reader) -> Any:
    return await reader.get(Get.parse(body))


async def _resolve_join(body: Any, reader: Reader) -> str:
    on, values = _join(body)
    return on.join([_text(await resolved(each, reader)) for each in values])


async def _resolve_json_get(body: Any, reader: Reader) -> Any:
    wanted = _json_get(body)
    if file := wanted.get("PropertyFile"):
        source = JsonFile(Get.parse(file["Get"] if isinstance(file, Mapping) else file), "", wanted["Path"])
    else:
        source = JsonFile(None, str(await resolved(wanted["S3Uri"], reader)), wanted["Path"])
    content = await reader.json(source)
    return part_of(content, source.path, what=str(source.file or source.uri))


_EXPRESSIONS: Mapping[str, Callable[[Any, Reader], Awaitable[Any]]] = {
    "Get": _resolve_get,
    "Std:Join": _resolve_join,
    "Std:JsonGet": _resolve_json_get,
}
