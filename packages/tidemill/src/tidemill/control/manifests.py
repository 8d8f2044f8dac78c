"""Manifests: objects that list the data of a channel (`S3DataSource` in the API reference of SageMaker).

A ManifestFile is one JSON array, ``[{"prefix": "s3://bucket/dir/"}, "name", ...]``. An AugmentedManifestFile has one
JSON object per line, one for each example; the channel lists the attributes to read.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tidemill.core.names import S3Uri

_REFERENCE = "-ref"


class ManifestFault(ValueError):
    """A manifest is not valid for its channel; the message names the position in it."""


def manifest_names(file: Path) -> Iterator[tuple[S3Uri, str]]:
    """Yield each object that a ManifestFile lists: its URI, and its name as written in the manifest.

    Raises:
        ManifestFault: The file does not have the form described above.
    """
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ManifestFault(f"is not JSON: {error}") from error
    expected = 'expected an array like [{"prefix": "s3://bucket/dir/"}, "name", ...]'
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        raise ManifestFault(f"is no manifest: {expected}, received {json.dumps(value)[:80]}")
    prefix = value[0].get("prefix")
    if not isinstance(prefix, str) or not prefix:
        raise ManifestFault(f"has no prefix in its first element: {expected}, received {json.dumps(value[0])[:80]}")
    for index, name in enumerate(value[1:], start=1):
        if not isinstance(name, str):
            raise ManifestFault(f"element {index} is {json.dumps(name)[:80]}: {expected}")
        yield _uri(prefix + name, f"element {index}"), name


def augmented_values(file: Path, attributes: Sequence[str]) -> Iterator[S3Uri | str]:
    """Yield the values of ``attributes`` of every line: URIs if the attribute's name ends in ``-ref``, otherwise text.

    A string is passed unchanged; any other value is passed as JSON.

    Raises:
        ManifestFault: A line is not a JSON object, or lacks an attribute.
    """
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                example = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ManifestFault(f"line {number} is not JSON: {error}") from error
            if not isinstance(example, dict):
                raise ManifestFault(f"line {number} is {json.dumps(example)[:80]}: expected a JSON object")
            for attribute in attributes:
                yield _value(example, attribute, f"line {number}")


def _value(example: dict[str, Any], attribute: str, place: str) -> S3Uri | str:
    if attribute not in example:
        had = ", ".join(repr(name) for name in list(example)[:16])
        raise ManifestFault(f"{place} has no attribute {attribute!r}, which AttributeNames asks for; it has {had}")
    value = example[attribute]
    if attribute.endswith(_REFERENCE):
        if not isinstance(value, str):
            raise ManifestFault(f"{place}: {attribute!r} is {json.dumps(value)[:80]}: expected an S3 URI")
        return _uri(value, f"{place}, {attribute!r}")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _uri(text: str, place: str) -> S3Uri:
    try:
        return S3Uri.parse(text)
    except ValueError as error:
        raise ManifestFault(f"{place}: {error}") from error
