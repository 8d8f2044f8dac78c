"""Checks input members: against the model, with AWS's own messages, and against the compatibility table.

The parsers check types; the model's checks are presence, lengths, ranges, enumerations and patterns. Two members are
checked leniently: instance types, because this service has names of its own, and role ARNs, because no role is ever
assumed. The table is `tidemill.core.compatibility`; a look-up is needed only for members that contain something
refusable. Every shape is compiled into functions once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.core.compatibility import row_of
from tidemill.core.compatibility.rows import Honored, Refused, Row, Unencrypted
from tidemill.errors import AwsError
from tidemill.wire.protocols.shapes import Functions, fold
from tidemill.wire.protocols.shapes import Path as ShapePath
from tidemill.wire.protocols.shapes import render as _render_shape_path
from tidemill.wire.protocols.wording import MAX_SHOWN as _MAX_SHOWN
from tidemill.wire.protocols.wording import Path
from tidemill.wire.protocols.wording import render as _render
from tidemill.wire.protocols.wording import shorten as _shorten
from tidemill.wire.protocols.wording import shown_name as _shown_name
from tidemill.wire.validation.patterns import compile_pattern

Check = Callable[[Any, Path, list[str]], None]
Refuse = Callable[[Mapping[str, Any]], Sequence[str]]
"""Checks the members of a request; raises for one that the service cannot honor. Returns the KMS keys they name."""

_CheckRow = Callable[[Any, Path, list[str]], None]
"""Checks a value at a path, and adds the KMS keys that it names to a list."""
_Entry = tuple[Row | None, tuple[Any, ...], _CheckRow | None, str, bool]
"""The check of a member: its row, values that the row accepts, the check of its content, its shown name, and whether
its value is secret."""
_Size = tuple[Callable[[int], bool], str]
"""Whether a length violates a constraint, and the constraint."""

_INTEGER_BITS = {"integer": 31, "long": 63}
_MAX_ERRORS = 20
"""Checking stops after about this many errors, so that a hostile body cannot cause a huge message."""


def compile_check(shape: StructureShape | None) -> Check:
    """Return the check of an operation's input.

    Returns:
        A function of the members, their path (None at the top) and a list to which it adds one sentence for each
        violated constraint.
    """
    if shape is None:
        return _no_check
    payload = shape.serialization.get("payload")
    return fold(shape, _Checks(payload if payload and _is_blob(shape.members[payload]) else None)) or _no_check


def refuse_invalid(check: Check, members: dict[str, Any], *, code: str = "ValidationException") -> None:
    """Run a check, and refuse the request if a constraint is violated.

    Raises:
        AwsError: ``code`` (400) with all violations found.
    """
    errors: list[str] = []
    check(members, None, errors)
    if errors:
        count = len(errors)
        noun = "error" if count == 1 else "errors"
        shown = "; ".join(errors[:_MAX_ERRORS])
        raise AwsError(f"{count} validation {noun} detected: {shown}", code=code)


def compile_refusals(
    service: str, operation: str, shape: StructureShape | None, *, code: str, refuses_encryption: bool = False
) -> Refuse:
    """Compile the refusals of an operation.

    Args:
        service: botocore's name of the service.
        operation: Name of the operation in the model. An operation without rows refuses nothing.
        shape: The operation's input.
        code: AWS error code, for rows without a code.
        refuses_encryption: Whether to refuse requests to encrypt, which are recorded otherwise. Default: false.

    Returns:
        A function of the members, which raises AwsError for the first one that the table refuses. It returns the KMS
        keys that they name; none for S3, whose handlers need more of a key than that it exists.
    """
    check = None if shape is None else fold(shape, _Refusals(service, operation, code, refuses_encryption))
    if check is None:
        return lambda members: ()

    def refuse(members: Mapping[str, Any]) -> list[str]:
        keys: list[str] = []
        check(members, None, keys)
        return keys

    return refuse


def _no_check(value: Any, path: Path, errors: list[str]) -> None:
    return


@dataclass(frozen=True, slots=True)
class _Checks(Functions):
    """Builds the check of each part of a shape; None if a part has no constraints."""

    leave_out: str | None
    """A member of the outermost structure that is not checked."""

    def structure(self, shape: StructureShape, inside: Mapping[str, Check | None], at: ShapePath) -> Check | None:
        required = tuple((name, _shown_name(name)) for name in shape.required_members)
        checks = {
            name: (_shown_name(name), check)
            for name, check in inside.items()
            if check is not None and (at or name != self.leave_out)
        }
        if not required and not checks:
            return None

        def check(value: Any, path: Path, errors: list[str]) -> None:
            for name, shown in required:
                if name not in value:
                    errors.append(_violation(None, (path, shown), "Member must not be null"))
            for name, item in value.items():
                entry = checks.get(name)
                if entry is not None:
                    entry[1](item, (path, entry[0]), errors)

        return check

    def list(self, shape: ListShape, item: Check | None, at: ShapePath) -> Check | None:
        sizes = _length_constraints(shape)
        if not sizes and item is None:
            return None

        def check(value: Any, path: Path, errors: list[str]) -> None:
            _check_length(value, sizes, path, errors)
            if item is not None:
                for index, one in enumerate(value, start=1):
                    if len(errors) >= _MAX_ERRORS:
                        return
                    item(one, ((path, str(index)), "member"), errors)

        return check

    def map(self, shape: MapShape, key: Check | None, value: Check | None, at: ShapePath) -> Check | None:
        sizes = _length_constraints(shape)

        def check(entries: Any, path: Path, errors: list[str]) -> None:
            _check_length(entries, sizes, path, errors)
            for name, one in entries.items():
                if len(errors) >= _MAX_ERRORS:
                    return
                if key is not None:
                    _nested(key, name, path, errors, label="Map keys must satisfy constraint")
                if value is None:
                    continue
                if type(one) in (dict, list):
                    value(one, ((path, name), "member"), errors)
                else:
                    _nested(value, one, (path, name), errors, label="Map value must satisfy constraint")

        return check

    def scalar(self, shape: Shape, at: ShapePath) -> Check | None:
        if shape.type_name in ("string", "blob", "character"):
            return _text(shape)
        if shape.type_name in ("integer", "long", "float", "double"):
            return _number(shape)
        return None


def _is_blob(shape: Shape) -> bool:
    """Return whether a payload is bytes; its maximum size is then a setting of the service, not the model's number."""
    return shape.type_name == "blob"


def _nested(check: Check, value: Any, path: Path, errors: list[str], *, label: str) -> None:
    found: list[str] = []
    check(value, path, found)
    if found:
        constraints = ", ".join(text.partition("failed to satisfy constraint: ")[2] for text in found)
        errors.append(_violation(value, path, f"{label}: [{constraints}]"))


def _text(shape: Shape) -> Check | None:
    lenient_role = shape.name == "RoleArn"
    sizes = _length_constraints(shape) if not lenient_role else ()
    pattern_text = shape.metadata.get("pattern")
    pattern = compile_pattern(pattern_text) if pattern_text and not lenient_role else None
    members: list[str] = [] if shape.name.endswith("InstanceType") else list(shape.metadata.get("enum", ()))
    allowed = frozenset(members)
    if not sizes and pattern is None and not allowed:
        return None
    pattern_constraint = f"Member must satisfy regular expression pattern: {pattern_text}"
    enum_constraint = f"Member must satisfy enum value set: [{', '.join(members)}]"
    sensitive = bool(shape.metadata.get("sensitive"))

    def check(value: Any, path: Path, errors: list[str]) -> None:
        if not isinstance(value, str | bytes):
            return  # a streaming body
        shown = "***" if sensitive else value
        fits = True
        for violated, constraint in sizes:
            if violated(len(value)):
                fits = False
                errors.append(_violation(shown, path, constraint))
        if allowed and value not in allowed:
            errors.append(_violation(shown, path, enum_constraint))
        # A text that is far too long is not matched: the cost of a pattern grows with the text.
        matchable = pattern is not None and isinstance(value, str) and (fits or len(value) <= _MAX_SHOWN)
        if matchable and pattern is not None and not pattern.fullmatch(value):
            errors.append(_violation(shown, path, pattern_constraint))

    return check


def _number(shape: Shape) -> Check | None:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    bits = _INTEGER_BITS.get(shape.type_name)
    if bits is not None:
        low = -(2**bits) if low is None else low
        high = 2**bits - 1 if high is None else high
    if low is None and high is None:
        return None

    def check(value: Any, path: Path, errors: list[str]) -> None:
        if low is not None and value < low:
            errors.append(_violation(value, path, f"Member must have value greater than or equal to {low}"))
        if high is not None and value > high:
            errors.append(_violation(value, path, f"Member must have value less than or equal to {high}"))

    return check


def _length_constraints(shape: Shape) -> list[_Size]:
    found: list[_Size] = []
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if low:
        found.append((int(low).__gt__, f"Member must have length greater than or equal to {low}"))
    if high is not None:
        found.append((int(high).__lt__, f"Member must have length less than or equal to {high}"))
    return found


def _check_length(value: Any, sizes: list[_Size], path: Path, errors: list[str]) -> None:
    for violated, constraint in sizes:
        if violated(len(value)):
            errors.append(_violation(value, path, constraint))


def _violation(value: Any, path: Path, constraint: str) -> str:
    shown = "null" if value is None else f"'{_shorten(value)}'"
    return f"Value {shown} at '{_render(path)}' failed to satisfy constraint: {constraint}"


def _add_key(value: Any, path: Path, keys: list[str]) -> None:
    if value:
        keys.append(value)


@dataclass(frozen=True, slots=True)
class _Refusals:
    """Builds the check of each part of a shape; None if nothing can be refused."""

    service: str
    operation: str
    code: str
    refuses_encryption: bool

    def structure(
        self, shape: StructureShape, inside: Mapping[str, _CheckRow | None], at: ShapePath
    ) -> _CheckRow | None:
        entries: dict[str, _Entry] = {}
        for name, deeper in inside.items():
            row = row_of(self.service, self.operation, _render_shape_path((*at, name)))
            if self.refuses_encryption and isinstance(row, Unencrypted):
                row = row.strict
            if isinstance(row, Unencrypted) and row.names_key and self.service != "s3":
                deeper = _add_key
            refusable = row if isinstance(row, Refused) or (isinstance(row, Honored) and row.only) else None
            if refusable is not None or deeper is not None:
                shown = name if self.service == "s3" else _shown_name(name)
                sensitive = bool(shape.members[name].metadata.get("sensitive"))
                accepted = row.only if isinstance(row, Honored) else ()
                entries[name] = (refusable, accepted, deeper, shown, sensitive)
        if not entries:
            return None

        def check(value: Any, path: Path, keys: list[str]) -> None:
            for name, item in value.items():
                entry = entries.get(name)
                if entry is None:
                    continue
                row, accepted, inside, shown, sensitive = entry
                if row is not None and item not in accepted and (reason := row.refusal(item)) is not None:
                    raise self._refused((path, shown), "***" if sensitive else item, row, reason)
                if inside is not None:
                    inside(item, (path, shown), keys)

        return check

    def list(self, shape: ListShape, item: _CheckRow | None, at: ShapePath) -> _CheckRow | None:
        if item is None:
            return None

        def check(value: Any, path: Path, keys: list[str]) -> None:
            for index, each in enumerate(value, start=1):
                item(each, ((path, str(index)), "member"), keys)

        return check

    def map(self, shape: MapShape, key: _CheckRow | None, value: _CheckRow | None, at: ShapePath) -> _CheckRow | None:
        if value is None:
            return None

        def check(entries: Any, path: Path, keys: list[str]) -> None:
            for name, each in entries.items():
                value(each, ((path, name), "member"), keys)

        return check

    def scalar(self, shape: Shape, at: ShapePath) -> _CheckRow | None:
        return None

    def again(self, shape: StructureShape, result: Callable[[], _CheckRow | None], at: ShapePath) -> _CheckRow | None:
        # Rows have paths of limited depth, so they cannot describe a structure inside itself.
        return None

    def _refused(self, path: Path, value: Any, row: Row, reason: str) -> AwsError:
        return AwsError(
            f"Value '{_shorten(value)}' at '{_render(path)}' is not allowed: {reason}",
            code=(row.code if isinstance(row, Refused) else "") or self.code,
        )
