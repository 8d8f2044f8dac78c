"""Refuses the members of a request that the compatibility table refuses.

The table (`tidemill.core.compatibility`) is compiled once per operation, over the shape of its input. At run time a
look-up is needed only for members that contain something refusable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.core.compatibility import Honoured, Refused, Row, row_of
from tidemill.errors import AwsError
from tidemill.wire.protocols.shapes import Path as ShapePath
from tidemill.wire.protocols.shapes import fold
from tidemill.wire.protocols.shapes import render as render_shape_path
from tidemill.wire.protocols.wording import Path, render, shorten, shown_name

__all__ = ["Refuse", "compile_refusals"]

Refuse = Callable[[Mapping[str, Any]], None]
"""Checks the members of a request; raises for a member that the service cannot honor."""

_Check = Callable[[Any, Path], None]
_Entry = tuple[Row | None, _Check | None, str, bool]
"""The check of a member: its row, the check of its content, its shown name, and whether its value is secret."""


def compile_refusals(service: str, operation: str, shape: StructureShape | None, *, code: str) -> Refuse:
    """Compile the refusals of an operation.

    Args:
        service: botocore's name of the service.
        operation: Name of the operation in the model. An operation without rows refuses nothing.
        shape: The operation's input.
        code: AWS error code, for rows without a code.

    Returns:
        A function of the members, which raises AwsError for the first one that the table refuses.
    """
    check = None if shape is None else fold(shape, _Compiler(service, operation, code))
    if check is None:
        return lambda members: None
    return lambda members: check(members, None)


@dataclass(frozen=True, slots=True)
class _Compiler:
    """Builds the check of each part of a shape; None if nothing can be refused."""

    service: str
    operation: str
    code: str

    def structure(self, shape: StructureShape, inside: Mapping[str, _Check | None], at: ShapePath) -> _Check | None:
        entries: dict[str, _Entry] = {}
        for name, deeper in inside.items():
            row = row_of(self.service, self.operation, render_shape_path((*at, name)))
            refusable = row if isinstance(row, Refused) or (isinstance(row, Honoured) and row.only) else None
            if refusable is not None or deeper is not None:
                shown = name if self.service == "s3" else shown_name(name)
                sensitive = bool(shape.members[name].metadata.get("sensitive"))
                entries[name] = (refusable, deeper, shown, sensitive)
        if not entries:
            return None

        def check(value: Any, path: Path) -> None:
            for name, item in value.items():
                entry = entries.get(name)
                if entry is None:
                    continue
                row, inside, shown, sensitive = entry
                if row is not None and (reason := row.refusal(item)) is not None:
                    raise self._refused((path, shown), "***" if sensitive else item, row, reason)
                if inside is not None:
                    inside(item, (path, shown))

        return check

    def list(self, shape: ListShape, item: _Check | None, at: ShapePath) -> _Check | None:
        if item is None:
            return None

        def check(value: Any, path: Path) -> None:
            for index, each in enumerate(value, start=1):
                item(each, ((path, str(index)), "member"))

        return check

    def map(self, shape: MapShape, key: _Check | None, value: _Check | None, at: ShapePath) -> _Check | None:
        if value is None:
            return None

        def check(entries: Any, path: Path) -> None:
            for name, each in entries.items():
                value(each, ((path, name), "member"))

        return check

    def scalar(self, shape: Shape, at: ShapePath) -> _Check | None:
        return None

    def again(self, shape: StructureShape, result: Callable[[], _Check | None], at: ShapePath) -> _Check | None:
        # Rows have paths of limited depth, so they cannot describe a structure inside itself.
        return None

    def _refused(self, path: Path, value: Any, row: Row, reason: str) -> AwsError:
        refused = isinstance(row, Refused)
        return AwsError(
            f"Value '{shorten(value)}' at '{render(path)}' is not allowed: {reason}",
            code=(row.code if refused else "") or self.code,
            status=row.status if refused else 400,
        )
