"""The JSONPath subset of DataProcessing: names, indexes, slices and wildcards, without ``..`` and filters.

A path to a single value selects that value. Several names select an object with those members; everything else that
can select several values, such as ``$[1:]``, selects a list.
"""

from typing import TYPE_CHECKING, Any

# jsonpath is imported by the first path other than "$": the service starts sooner without it.
if TYPE_CHECKING:
    from jsonpath import JSONPath


class NothingSelected(LookupError):
    """A path selects nothing in a value."""


class Path:
    """A compiled path.

    Args:
        text: The path, e.g. ``$.features`` or ``$[1:]``.

    Raises:
        ValueError: ``text`` is not a path, or uses an operator that DataProcessing does not have.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        if not text.startswith("$"):
            raise ValueError("it is not a JSONPath, which begins with '$'")
        self._path = _compiled(text) if text != "$" else None
        self._names = self._path is not None and _last_names(self._path)

    @property
    def whole(self) -> bool:
        """Whether the path is ``$``, which selects everything."""
        return self._path is None or not self._path.segments

    def select(self, value: Any) -> Any:
        """Return the part of a JSON value that the path selects.

        Raises:
            NothingSelected: The path selects nothing. A slice or a wildcard that selects nothing is an empty list.
        """
        if self._path is None or not self._path.segments:
            return value
        found = list(self._path.finditer(value))
        if self._path.singular_query():
            if not found:
                raise NothingSelected(f"there is nothing at {self.text!r}")
            return found[0].value
        if self._names:
            return {str(match.parts[-1]): match.value for match in found}
        return [match.value for match in found]


def _compiled(text: str) -> "JSONPath":
    from jsonpath import JSONPath, JSONPathEnvironment
    from jsonpath.exceptions import JSONPathError
    from jsonpath.segments import JSONPathChildSegment
    from jsonpath.selectors import IndexSelector, NameSelector, SliceSelector, WildcardSelector

    try:
        path = JSONPathEnvironment(strict=True).compile(text)
    except JSONPathError as error:
        raise ValueError(f"it is not a JSONPath: {str(error).splitlines()[0]}") from error
    if not isinstance(path, JSONPath):
        raise ValueError("it joins several paths; give one")
    offered = (NameSelector, IndexSelector, SliceSelector, WildcardSelector)
    for segment in path.segments:
        if not isinstance(segment, JSONPathChildSegment):
            raise ValueError("the operator '..' is not offered; name each step")
        if not all(isinstance(selector, offered) for selector in segment.selectors):
            raise ValueError("filters are not offered; select by names, indexes, slices or '*'")
    return path


def _last_names(path: "JSONPath") -> bool:
    """Return whether the path ends in several names after steps that each select a single value."""
    from jsonpath.selectors import IndexSelector, NameSelector

    if not path.segments:
        return False
    *before, last = path.segments
    singular = all(
        len(each.selectors) == 1 and isinstance(each.selectors[0], NameSelector | IndexSelector) for each in before
    )
    return singular and all(isinstance(selector, NameSelector) for selector in last.selectors)
