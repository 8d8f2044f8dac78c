"""Channels of requests, resolved to objects of a real object store."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.channels import ChannelResolver, DataMissing, channel_config
from tidemill.core.clock import SystemClock
from tidemill.core.instances import ObjectReference
from tidemill.instance.spec import ChannelSpec, InlineText
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects import schema as object_schema
from tidemill.store.objects.store import ObjectStore

Resolve = Callable[..., ChannelSpec]
assert object_schema  # importing it adds its tables to the metadata


@pytest.fixture
def resolve(tmp_path: Path) -> Iterator[Resolve]:
    """Yield a function that resolves a channel with S3 source ``source`` over the given objects."""

    def make(source: dict[str, Any], objects: dict[str, Any], *, job_mode: str = "Pipe", **members: Any) -> ChannelSpec:
        async def run() -> ChannelSpec:
            with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
                store = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
                await store.ensure_bucket("bucket")
                for key, content in objects.items():
                    data = content if isinstance(content, bytes) else json.dumps(content).encode()
                    await store.put_bytes("bucket", key, data)
                request = {"ChannelName": "train", "DataSource": {"S3DataSource": source}, **members}
                spec, record = await asyncio.to_thread(ChannelResolver(store).resolve, request, job_mode=job_mode)
                records.append(record)
                contents[:] = [_content(store, entry) for entry in spec.objects]
                await store.close()
                return spec

        return asyncio.run(run())

    records: list[dict[str, Any]] = []
    contents: list[bytes | str] = []
    make.records = records  # type: ignore[attr-defined]
    make.contents = contents  # type: ignore[attr-defined]
    yield make


def prefix(uri: str, **members: Any) -> dict[str, Any]:
    return {"S3DataType": "S3Prefix", "S3Uri": uri, **members}


def manifest(kind: str = "ManifestFile", **members: Any) -> dict[str, Any]:
    return {"S3DataType": kind, "S3Uri": "s3://bucket/m", **members}


def _content(store: ObjectStore, entry: Any) -> bytes | str:
    if not isinstance(entry, ObjectReference):
        return str(entry.text)
    with store.open(entry) as file:
        return file.read()


def test_a_prefix_is_every_object_below_it_in_the_order_of_keys(resolve: Resolve) -> None:
    spec = resolve(prefix("s3://bucket/d/"), {"d/b": b"b", "d/a": b"a", "d/B": b"B", "d/": b"", "e": b"e"})
    assert resolve.contents == [b"B", b"a", b"b"]  # type: ignore[attr-defined]
    assert [entry.name for entry in spec.objects] == ["B", "a", "b"]  # again: a listing can be read several times
    assert resolve.records[0]["objects"] == 3  # type: ignore[attr-defined]
    assert resolve.records[0]["size_bytes"] == 3  # type: ignore[attr-defined]


def test_the_options_of_pipe_mode_are_taken_from_the_request(resolve: Resolve) -> None:
    spec = resolve(
        prefix("s3://bucket/d", S3DataDistributionType="ShardedByS3Key"),
        {"d": b""},
        CompressionType="Gzip",
        RecordWrapperType="RecordIO",
        ShuffleConfig={"Seed": 3},
    )
    assert (spec.input_mode, spec.compression, spec.record_wrapper) == ("Pipe", "Gzip", "RecordIO")
    assert (spec.share, spec.shuffle_seed, spec.entries_per_item) == ((0, 1), 3, 1)


def test_the_mode_of_a_channel_wins_over_that_of_the_job(resolve: Resolve) -> None:
    assert resolve(prefix("s3://bucket/d"), {"d": b""}, job_mode="Pipe", InputMode="File").input_mode == "File"
    channel = {"DataSource": {"S3DataSource": prefix("s3://bucket/d")}}
    assert channel_config(channel, job_mode="Pipe")["TrainingInputMode"] == "Pipe"
    assert channel_config({**channel, "InputMode": "File"}, job_mode="Pipe")["TrainingInputMode"] == "File"


def test_a_manifest_names_objects_in_its_own_order(resolve: Resolve) -> None:
    names = [{"prefix": "s3://bucket/deep/"}, "z", "sub/a", "z"]
    spec = resolve(manifest(), {"m": names, "deep/z": b"z", "deep/sub/a": b"a", "deep/other": b"o"})
    assert resolve.contents == [b"z", b"a", b"z"]  # type: ignore[attr-defined]
    assert [entry.name for entry in spec.objects] == ["z", "sub/a", "z"]


def test_an_augmented_manifest_is_read_line_by_line_with_its_attributes(resolve: Resolve) -> None:
    lines = (
        b'{"image-ref": "s3://bucket/i/1", "label": 7, "text": "caf\\u00e9"}\n\n'
        b'{"label": {"a": [1, 2]}, "text": "x", "image-ref": "s3://bucket/i/2", "more": null}'
    )
    spec = resolve(
        manifest("AugmentedManifestFile", AttributeNames=["image-ref", "label", "text"]),
        {"m": lines, "i/1": b"one", "i/2": b"two"},
    )
    assert resolve.contents == [b"one", "7", "café", b"two", '{"a":[1,2]}', "x"]  # type: ignore[attr-defined]
    assert spec.entries_per_item == 3
    assert any(isinstance(entry, InlineText) for entry in spec.objects)


GOOD_PREFIX = {"prefix": "s3://bucket/"}
WRONG = {
    "nothing under a prefix": (prefix("s3://bucket/none"), {}, ["s3://bucket/none", "no S3 objects"]),
    "no bucket": (prefix("s3://other/none"), {}, ["s3://other/none", "bucket"]),
    "no manifest": (manifest(), {}, ["s3://bucket/m does not exist"]),
    "a missing object": (manifest(), {"m": [GOOD_PREFIX, "gone"]}, ["s3://bucket/m names s3://bucket/gone"]),
    "no JSON": (manifest(), {"m": b"a\nb"}, ["not JSON"]),
    "nested too deeply": (manifest(), {"m": b"[" * 5000 + b"]" * 5000}, ["not JSON", "recursion"]),
    "a line nested too deeply": (
        manifest("AugmentedManifestFile", AttributeNames=["a"]),
        {"m": b'{"a": ' * 5000 + b"1" + b"}" * 5000},
        ["line 1 is not JSON", "recursion"],
    ),
    "no array": (manifest(), {"m": {"prefix": "s3://bucket/"}}, ["expected an array"]),
    "no prefix": (manifest(), {"m": ["a"]}, ["expected an array"]),
    "an empty prefix": (manifest(), {"m": [{"prefix": ""}, "a"]}, ["no prefix"]),
    "a prefix that is no URI": (manifest(), {"m": [{"prefix": "/etc/"}, "passwd"]}, ["element 1", "/etc/passwd"]),
    "a number": (manifest(), {"m": [GOOD_PREFIX, 3]}, ["element 1 is 3"]),
    "no names": (manifest(), {"m": [GOOD_PREFIX]}, ["names no data"]),
    "an empty augmented manifest": (
        manifest("AugmentedManifestFile", AttributeNames=["a"]),
        {"m": b"\n"},
        ["names no data"],
    ),
    "a line without the attribute": (
        manifest("AugmentedManifestFile", AttributeNames=["a", "b"]),
        {"m": b'{"a": 1, "b": 2}\n{"a": 1}\n'},
        ["line 2", "'b'", "it has 'a'"],
    ),
    "a line that is no object": (
        manifest("AugmentedManifestFile", AttributeNames=["a"]),
        {"m": b"[1]\n"},
        ["line 1 is [1]"],
    ),
    "a reference that is no URI": (
        manifest("AugmentedManifestFile", AttributeNames=["a-ref"]),
        {"m": b'{"a-ref": "/etc/passwd"}\n'},
        ["line 1", "'a-ref'", "/etc/passwd"],
    ),
    "a reference to nothing": (
        manifest("AugmentedManifestFile", AttributeNames=["a-ref"]),
        {"m": b'{"a-ref": "s3://bucket/gone"}\n'},
        ["s3://bucket/gone, which does not exist"],
    ),
}


@pytest.mark.parametrize("case", list(WRONG))
def test_the_error_names_a_missing_or_wrong_object(case: str, resolve: Resolve) -> None:
    source, objects, texts = WRONG[case]
    with pytest.raises(DataMissing) as missing:
        resolve(source, objects)
    assert str(missing.value).startswith("ClientError: channel 'train': ")
    for text in texts:
        assert text in str(missing.value)
