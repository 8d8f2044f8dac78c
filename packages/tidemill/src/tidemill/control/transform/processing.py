"""DataProcessing: select the part of a record to send, join the result with the record, and select the part to store.

For filters a CSV record is a list of texts. Results are joined as on SageMaker: in CSV the columns of the result follow
those of the record; a JSON object gets a member ``SageMakerOutput``, and any other JSON value becomes
``{"SageMakerInput": ..., "SageMakerOutput": ...}``.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.control.transform.paths import NothingSelected, Path

FORMATS: Mapping[str, str] = {
    "text/csv": "csv",
    "application/json": "json",
    "application/jsonlines": "json",
    "application/jsons": "json",
    "application/x-jsonlines": "json",
}
"""Formats that can be filtered, by media type."""

_WHOLE = Path("$")


class ProcessingFault(ValueError):
    """A record or a result cannot be filtered or joined; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """The data processing of one job.

    Attributes:
        content_type: Content type of the records.
        of_lines: Whether records are lines.
        joins: Whether results are joined with their records.
        input_filter: Selects the part of a record to send.
        output_filter: Selects the part of the result, or of the joined record, to store.
    """

    content_type: str = ""
    of_lines: bool = False
    joins: bool = False
    input_filter: Path = _WHOLE
    output_filter: Path = _WHOLE

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> "Processing":
        """Return the processing of a CreateTransformJob request.

        Raises:
            ValueError: A filter is not a valid path; the arguments are its member and the reason.
        """
        wanted = request.get("DataProcessing", {})
        return cls(
            content_type=request["TransformInput"].get("ContentType", ""),
            of_lines=request["TransformInput"].get("SplitType") == "Line",
            joins=wanted.get("JoinSource", "None") == "Input",
            input_filter=_path(wanted, "InputFilter"),
            output_filter=_path(wanted, "OutputFilter"),
        )

    @property
    def filters_input(self) -> bool:
        """Whether the input filter selects less than whole records."""
        return not self.input_filter.whole

    def input_of(self, record: bytes) -> bytes:
        """Return the part of a record to send to the model; ``record`` itself if it is not filtered.

        Raises:
            ProcessingFault: The record cannot be filtered.
        """
        if not self.filters_input:
            return record
        kind = format_of(self.content_type)
        return _write(kind, _selected(self.input_filter, _read(kind, record), "InputFilter"))

    def output_of(self, records: Sequence[bytes], answer: bytes, content_type: str) -> bytes:
        """Return the part of an answer to store; the answer itself if nothing is joined or filtered.

        Args:
            records: The records of the request, if results are joined with them.
            answer: Body of the answer.

        Raises:
            ProcessingFault: The answer cannot be joined or filtered.
        """
        if not self.joins and self.output_filter.whole:
            return answer
        kind = format_of(content_type)
        if kind == "":
            raise ProcessingFault(
                f"the answer's content type is {content_type!r}, which can neither be joined nor filtered; allowed are"
                f" {', '.join(FORMATS)}"
            )
        if not self.joins:
            return b"\n".join(self._kept(kind, value) for value in _values(kind, answer))
        if kind != format_of(self.content_type):
            raise ProcessingFault(
                f"the answer is {content_type} and the record {self.content_type}: JoinSource needs one format of both;"
                " set Accept, or let the model's code answer in the format of its input"
            )
        alone = kind == "json" and len(records) == 1
        results = [_read(kind, answer)] if alone else _results(kind, answer, len(records))
        return b"\n".join(
            self._kept(kind, _joined(kind, _read(kind, record), result))
            for record, result in zip(records, results, strict=True)
        )

    def _kept(self, kind: str, value: Any) -> bytes:
        return _write(kind, _selected(self.output_filter, value, "OutputFilter"))


def format_of(content_type: str) -> str:
    """Return ``csv`` or ``json``; empty for a media type that cannot be filtered.

    Args:
        content_type: A media type, with or without parameters.
    """
    return FORMATS.get(content_type.partition(";")[0].strip().lower(), "")


def _path(wanted: Mapping[str, Any], member: str) -> Path:
    try:
        return Path(wanted.get(member, "$"))
    except ValueError as error:
        raise ValueError(member, str(error)) from error


def _selected(path: Path, value: Any, member: str) -> Any:
    try:
        return path.select(value)
    except NothingSelected as error:
        raise ProcessingFault(f"{member}: {error}") from error


def _results(kind: str, answer: bytes, count: int) -> list[Any]:
    lines = [line for line in answer.splitlines() if line.strip()]
    if len(lines) != count:
        raise ProcessingFault(
            f"JoinSource needs a line of the answer for each of the {count} records of a request, and the answer has"
            f" {len(lines)}; give BatchStrategy SingleRecord"
        )
    return [_read(kind, line) for line in lines]


def _values(kind: str, answer: bytes) -> list[Any]:
    """Return the values of an answer that is filtered without joining: one JSON document, or one per line."""
    if kind == "json":
        try:
            return [_read(kind, answer)]
        except ProcessingFault:
            pass  # one document in each line
    return [_read(kind, line) for line in answer.splitlines() if line.strip()]


def _read(kind: str, data: bytes) -> Any:
    try:
        text = data.decode()
        if kind == "json":
            return json.loads(text)
        empty: list[str] = []
        return next(csv.reader(io.StringIO(text.rstrip("\r\n"), newline=""), strict=True), empty)
    except (ValueError, csv.Error, RecursionError) as error:
        raise ProcessingFault(f"it is not {kind.upper()}: {error}") from error


def _joined(kind: str, record: Any, result: Any) -> Any:
    if kind == "csv":
        return [*record, *result]
    if isinstance(record, dict):
        return {**record, "SageMakerOutput": result}
    return {"SageMakerInput": record, "SageMakerOutput": result}


def _write(kind: str, value: Any) -> bytes:
    if kind == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    row = value if isinstance(value, list) else [value]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue().encode()
