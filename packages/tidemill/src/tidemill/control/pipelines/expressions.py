"""The expressions of pipeline definitions: `Get`, `Std:Join` and `Std:JsonGet`.

An expression is an object with one of these names as its only key. `found_in` lists the paths that a value reads,
with which definitions are checked; `resolved` replaces the expressions of a value by what they read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

_STEP = re.compile(r"Steps\.([A-Za-z0-9_-]+)(?:\.(.+))?")
_PART = re.compile(r"""\.?([A-Za-z0-9_:/-]+)|\[(\d+)\]|\[(["'])(.*?)\3\]""")
_FILES = "PropertyFiles."


class Unresolved(ValueError):
    """An expression is malformed, or what it reads does not exist; the message says which and why."""


class Reader(Protocol):
    """Reads what expressions name, for one step of an execution. What does not exist raises `Unresolved`."""

    async def get(self, path: "Get") -> Any:
        """Return the value of a parameter, a variable of the execution, or a property of an earlier step."""
        ...

    async def json(self, source: "Get | str") -> Any:
        """Return the content of a JSON file: of a property file, or at an S3 URI."""
        ...


@dataclass(frozen=True, slots=True)
class Get:
    """A `Get` with a parsed path.

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

    async def read(self, reader: Reader) -> Any:
        return await reader.get(self)


@dataclass(frozen=True, slots=True)
class _Join:
    separator: str
    parts: list[Any]

    @classmethod
    def parse(cls, body: Any) -> "_Join":
        if not isinstance(body, Mapping) or not isinstance(body.get("Values"), list):
            raise Unresolved(f"Std:Join needs On, a text, and Values, a list; got {body!r}")
        return cls(str(body.get("On", "")), body["Values"])

    async def read(self, reader: Reader) -> str:
        return self.separator.join(text_of(each) for each in await resolved(self.parts, reader))


@dataclass(frozen=True, slots=True)
class _JsonGet:
    parts: Any
    """What names the file: a path to a property file, or a value that is an S3 URI."""
    path: str

    @classmethod
    def parse(cls, body: Any) -> "_JsonGet":
        sources = [name for name in ("PropertyFile", "S3Uri") if isinstance(body, Mapping) and body.get(name)]
        if len(sources) != 1 or not isinstance(body.get("Path"), str):
            raise Unresolved(f"Std:JsonGet needs Path and either PropertyFile or S3Uri; got {body!r}")
        [source] = sources
        named = body[source]
        if source == "PropertyFile" and not (isinstance(_parsed(named), Get) and Get.parse(named["Get"]).file):
            raise Unresolved(f"PropertyFile is a Get of Steps.NAME.PropertyFiles.FILE; got {named!r}")
        return cls(named, body["Path"])

    async def read(self, reader: Reader) -> Any:
        file = _parsed(self.parts)
        source = file if isinstance(file, Get) and file.file else str(await resolved(self.parts, reader))
        return part_of(await reader.json(source), self.path, what=str(source))


_EXPRESSIONS: Mapping[str, Callable[[Any], Get | _Join | _JsonGet]] = {
    "Get": Get.parse,
    "Std:Join": _Join.parse,
    "Std:JsonGet": _JsonGet.parse,
}


def found_in(value: Any) -> Iterator[Get]:
    """Yield the paths that the expressions in a value read.

    Args:
        value: A value of JSON.

    Raises:
        Unresolved: An expression is malformed.
    """
    expression = _parsed(value)
    if isinstance(expression, Get):
        yield expression
    elif expression is not None:
        yield from found_in(expression.parts)
    elif isinstance(value, list):
        for each in value:
            yield from found_in(each)
    elif isinstance(value, Mapping):
        yield from found_in(list(value.values()))


async def resolved(value: Any, reader: Reader) -> Any:
    """Return a value in which each expression is replaced by what it reads.

    Args:
        value: A value of JSON.
        reader: Reads parameters, variables, properties and files.

    Raises:
        Unresolved: What an expression reads does not exist.
    """
    expression = _parsed(value)
    if expression is not None:
        return await expression.read(reader)
    if isinstance(value, Mapping):
        return {key: await resolved(each, reader) for key, each in value.items()}
    if isinstance(value, list):
        return [await resolved(each, reader) for each in value]
    return value


def text_of(value: Any) -> str:
    """Return a value as a text, as JSON shows truth values, and not Python."""
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def _parsed(value: Any) -> Get | _Join | _JsonGet | None:
    """Return the expression that a value is, or None."""
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, body)] = value.items()
        return _EXPRESSIONS[name](body) if name in _EXPRESSIONS else None
    return None


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
