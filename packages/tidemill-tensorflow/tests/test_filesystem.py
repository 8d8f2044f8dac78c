"""The file system of `s3://` against a dictionary of keys, on an S3 in memory that keeps S3's documented rules."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.s3 import failures, filesystem
from tidemill_tensorflow.s3.failures import FilesystemError, as_filesystem_error
from tidemill_tensorflow.s3.filesystem import S3Filesystem
from tidemill_tensorflow.s3.location import Location


def refused(status: int, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation")


class Buckets:
    """S3 with objects by bucket and key.

    Attributes:
        protected: Keys that are not deleted, as without permission.
        uncopied: Keys that cannot be copied.
        page: Number of entries of a page of a list.
        batches: Sizes of the batches of keys that were deleted together.
    """

    def __init__(self, **objects: bytes) -> None:
        self.objects = {"b": dict(objects), "other": {}}
        self.protected: set[str] = set()
        self.uncopied: set[str] = set()
        self.page = 2
        self.batches: list[int] = []

    def _of(self, name: str) -> dict[str, bytes]:
        if name not in self.objects:
            raise refused(404, "NoSuchBucket")
        return self.objects[name]

    def head_bucket(self, *, Bucket: str) -> None:
        self._of(Bucket)

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        if Key not in self._of(Bucket):
            raise refused(404, "404")
        return {"ContentLength": len(self.objects[Bucket][Key]), "LastModified": datetime.datetime(2026, 1, 2)}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        if Key in self.protected:
            raise refused(403, "AccessDenied")
        self._of(Bucket).pop(Key, None)

    def delete_objects(self, *, Bucket: str, Delete: dict[str, Any]) -> dict[str, Any]:
        keys = [each["Key"] for each in Delete["Objects"]]
        assert 0 < len(keys) <= 1000, "S3 deletes at most 1,000 keys at once"
        self.batches.append(len(keys))
        for key in keys:
            if key not in self.protected:
                self._of(Bucket).pop(key, None)
        return {"Errors": [{"Key": key, "Code": "AccessDenied"} for key in keys if key in self.protected]}

    def copy(self, source: dict[str, str], bucket: str, key: str, Config: Any) -> None:
        if source["Key"] not in self._of(source["Bucket"]):
            raise refused(404, "404")
        if source["Key"] in self.uncopied:
            raise refused(403, "AccessDenied")
        self._of(bucket)[key] = self.objects[source["Bucket"]][source["Key"]]

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> dict[str, Any]:
        found = [key for key in self._of(Bucket) if key.startswith(Prefix)]
        return {"KeyCount": len(found[:MaxKeys])}

    def get_paginator(self, name: str) -> Buckets:
        assert name == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str = "") -> Iterator[dict[str, Any]]:
        entries: dict[tuple[str, str], None] = {}
        for key in sorted(self._of(Bucket)):
            if key.startswith(Prefix):
                begin, slash, _ = key[len(Prefix) :].partition("/") if Delimiter else (key, "", "")
                entries["CommonPrefixes" if slash else "Contents", Prefix + begin + "/" if slash else key] = None
        rows = list(entries)
        for start in range(0, max(1, len(rows)), self.page):
            page: dict[str, Any] = {}
            for kind, name in rows[start : start + self.page]:
                page.setdefault(kind, []).append({"Prefix" if kind == "CommonPrefixes" else "Key": name})
            yield page


def opened(buckets: Buckets) -> S3Filesystem:
    """Return a file system whose client is this S3."""
    system = S3Filesystem()
    type(system)._client.fget  # noqa: B018 - the property that the next line replaces
    system.__class__ = type("InMemory", (S3Filesystem,), {"_client": property(lambda self: buckets)})
    return system


def raises(code: int, call: Callable[[], Any]) -> str:
    with pytest.raises(FilesystemError) as found:
        call()
    assert found.value.code == code, found.value
    return found.value.text


# --- a model: keys, and directories that this process has created -----------------------------------------------------
PATHS = ("a", "a/b", "a/b/c", "a/bc", "ab", "d", "d/e")
paths = st.sampled_from(PATHS)
steps = st.lists(
    st.tuples(st.sampled_from(("put", "mkdir", "remove", "rmdir", "rmtree", "rename", "copy")), paths, paths),
    max_size=12,
)


class Model:
    """What a file system of S3 should hold."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.made: set[str] = set()

    def below(self, path: str) -> list[str]:
        return [key for key in self.keys if key.startswith(f"{path}/")]

    def kind(self, path: str) -> str:
        if path in self.keys:
            return "file"
        return "directory" if self.below(path) or path in self.made else ""

    def rename(self, old: str, new: str) -> None:
        if old in self.keys:
            self.keys[new] = self.keys.pop(old)
            return
        for key in self.below(old):
            self.keys[new + key[len(old) :]] = self.keys.pop(key)
        within = {each for each in self.made if each == old or each.startswith(f"{old}/")}
        self.made = (self.made - within) | {new + each[len(old) :] for each in within}


def perform(system: S3Filesystem, buckets: Buckets, model: Model, step: tuple[str, str, str]) -> None:
    call, path, other = step
    uri, target, kind = f"s3://b/{path}", f"s3://b/{other}", model.kind(path)
    missing = failures.NOT_FOUND
    if call == "put":
        buckets.objects["b"][path] = model.keys[path] = f"{path} {len(model.keys)}".encode()
    elif call == "mkdir":
        system.create_directory(uri)
        model.made.add(path)
    elif call == "remove":
        if kind == "file":
            system.delete_file(uri)
            del model.keys[path]
        else:
            raises(failures.FAILED_PRECONDITION if kind else missing, lambda: system.delete_file(uri))
    elif call == "rmdir":
        if model.below(path) or kind == "file":
            raises(failures.FAILED_PRECONDITION, lambda: system.delete_directory(uri))
        elif kind:
            system.delete_directory(uri)
            model.made.discard(path)
        else:
            raises(missing, lambda: system.delete_directory(uri))
    elif call == "rmtree":
        if kind == "directory":
            system.delete_recursively(uri)
            for key in model.below(path):
                del model.keys[key]
            model.made = {each for each in model.made if each != path and not each.startswith(f"{path}/")}
        else:
            raises(failures.FAILED_PRECONDITION if kind else missing, lambda: system.delete_recursively(uri))
    elif call == "copy":
        if kind == "file":
            system.copy(uri, target)
            model.keys[other] = model.keys[path]
        else:
            raises(missing, lambda: system.copy(uri, target))
    elif not kind:
        raises(missing, lambda: system.rename(uri, target))
    elif kind == "directory" and other.startswith(f"{path}/"):
        raises(failures.INVALID_ARGUMENT, lambda: system.rename(uri, target))
    else:
        system.rename(uri, target)
        if path != other:
            model.rename(path, other)


@settings(max_examples=150)
@given(steps)
def test_any_calls_leave_the_keys_and_directories_of_the_model(calls: list[tuple[str, str, str]]) -> None:
    buckets, model = Buckets(), Model()
    system = opened(buckets)
    for step in calls:
        perform(system, buckets, model, step)
        assert buckets.objects["b"] == model.keys, step
        for path in PATHS:
            uri = f"s3://b/{path}"
            if not model.kind(path):
                raises(failures.NOT_FOUND, lambda uri=uri: system.status(uri))
                continue
            found = system.status(uri + "/" * (path == "a"))
            assert found.is_directory == (model.kind(path) == "directory"), (step, path)
            assert found.length == len(model.keys.get(path, b""))
            if found.is_directory:
                names = {key[len(path) + 1 :].partition("/")[0] for key in model.below(path)}
                listed = system.children(uri)
                assert sorted(listed) == sorted(names), "each name once, also an object's that is a directory, too"


def test_a_directory_cannot_be_moved_into_itself_where_its_objects_would_overwrite_each_other() -> None:
    buckets = Buckets(**{"d/one": b"1", "d/sub/one": b"2"})
    words = raises(failures.INVALID_ARGUMENT, lambda: opened(buckets).rename("s3://b/d", "s3://b/d/sub"))
    assert words == "s3://b/d cannot be moved into itself: s3://b/d/sub"
    assert buckets.objects["b"] == {"d/one": b"1", "d/sub/one": b"2"}
    opened(buckets).rename("s3://b/d", "s3://other/d/sub")
    assert buckets.objects == {"b": {}, "other": {"d/sub/one": b"1", "d/sub/sub/one": b"2"}}


def test_an_object_that_marks_a_directory_is_no_child_and_goes_with_it() -> None:
    buckets = Buckets(**{"d/": b"", "e/": b"", "e/x": b"1"})
    system = opened(buckets)
    assert system.status("s3://b/d").is_directory
    assert system.children("s3://b/d") == [] and system.children("s3://b/e") == ["x"]
    raises(failures.FAILED_PRECONDITION, lambda: system.delete_directory("s3://b/e"))
    system.delete_directory("s3://b/d")
    raises(failures.NOT_FOUND, lambda: system.status("s3://b/d"))
    system.rename("s3://b/e", "s3://b/f")
    assert set(buckets.objects["b"]) == {"f/", "f/x"}


def test_a_copy_that_fails_in_a_rename_deletes_nothing_and_a_key_that_stays_is_named() -> None:
    buckets = Buckets(**{"d/one": b"1", "d/two": b"2"})
    buckets.uncopied = {"d/two"}
    words = raises(failures.PERMISSION_DENIED, lambda: opened(buckets).rename("s3://b/d", "s3://b/e"))
    assert words.startswith("s3://b/d/two to s3://b/e/two: AccessDenied")
    assert {"d/one", "d/two"} <= set(buckets.objects["b"])
    buckets = Buckets(**{"d/one": b"1", "d/two": b"2"})
    buckets.protected = {"d/two"}
    words = raises(failures.FAILED_PRECONDITION, lambda: opened(buckets).delete_recursively("s3://b/d"))
    assert words.startswith("s3://b/d/two: AccessDenied")
    assert set(buckets.objects["b"]) == {"d/two"}


@pytest.mark.parametrize(("count", "batches"), [(1, [1]), (1000, [1000]), (1001, [1000, 1]), (2500, [1000, 1000, 500])])
@pytest.mark.parametrize("call", ["rename", "delete_recursively"])
def test_any_number_of_objects_is_moved_and_deleted(count: int, batches: list[int], call: str) -> None:
    buckets = Buckets(**{f"d/{number}": b"x" for number in range(count)}, near=b"y")
    buckets.page = 1000
    system = opened(buckets)
    getattr(system, call)(*("s3://b/d", "s3://b/e")[: 2 if call == "rename" else 1])
    assert buckets.batches == batches
    left = set(buckets.objects["b"]) - {"near"}
    assert left == ({f"e/{number}" for number in range(count)} if call == "rename" else set())


def test_directories_of_several_threads_are_all_kept() -> None:
    system = opened(Buckets())
    begin = threading.Barrier(4)

    def create(thread: int) -> None:
        begin.wait()
        for number in range(50):
            system.create_directory(f"s3://b/{thread}/{number}")
            system.delete_recursively(f"s3://b/{thread}/{number}" if number % 2 else f"s3://b/{thread}/{number}/")
            system.create_directory(f"s3://b/{thread}/{number}")

    threads = [threading.Thread(target=create, args=(thread,)) for thread in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(system._made) == 200


def test_buckets_are_directories_and_missing_ones_are_named() -> None:
    system = opened(Buckets(k=b"1"))
    assert system.status("s3://b").is_directory and system.status("s3://b/").is_directory
    assert system.children("s3://b") == ["k"] and system.children("s3://other") == []
    for call in (system.status, system.children, system.create_directory, system.delete_recursively):
        assert "NoSuchBucket" in raises(failures.NOT_FOUND, lambda call=call: call("s3://none"))


# --- paths and errors -------------------------------------------------------------------------------------------------
parts = st.text(st.characters(exclude_characters="/", codec="utf-8"), min_size=1, max_size=6)


@given(parts, st.lists(parts, max_size=4), st.integers(0, 3))
def test_a_path_is_its_bucket_and_key_without_slashes_at_the_end(bucket: str, names: list[str], slashes: int) -> None:
    key = "/".join(names)
    found = Location.parse(f"s3://{bucket}/{key}{'/' * slashes}")
    assert (found.bucket, found.key) == (bucket, key)
    assert Location.parse(str(found)) == found
    assert found.prefix == (f"{key}/" if key else "")
    assert found.child("x/y").parameters == {"Bucket": bucket, "Key": "x/y"}
    inside = Location(bucket, f"{found.prefix}x")
    assert filesystem._is_within(inside, found) and filesystem._is_within(found, found)
    assert not filesystem._is_within(Location(f"{bucket}x", inside.key), found)
    assert not key or not filesystem._is_within(Location(bucket, f"{key}x"), found)


@pytest.mark.parametrize("path", ["", "s3://", "s3:///key", "b/k", "gs://b/k", "s3:/b/k", "S3://b/k"])
def test_a_path_without_a_bucket_is_invalid(path: str) -> None:
    assert "paths have the form s3://BUCKET/KEY" in raises(failures.INVALID_ARGUMENT, lambda: Location.parse(path))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((refused(status, "X"), code) for status, code in failures._BY_STATUS.items()),
        *((refused(status, "SlowDown"), failures.UNAVAILABLE) for status in (500, 503, 599)),
        (refused(302, "Moved"), failures.UNKNOWN),
        (ClientError({}, "Operation"), failures.UNKNOWN),
        (NoCredentialsError(), failures.UNAUTHENTICATED),
        (EndpointConnectionError(endpoint_url="http://x"), failures.UNAVAILABLE),
        (ParamValidationError(report="Invalid length for parameter Key"), failures.INVALID_ARGUMENT),
    ],
    ids=repr,
)
def test_each_error_of_s3_has_a_code_of_tensorflow_and_names_the_path(error: Exception, code: int) -> None:
    def fail() -> None:
        with as_filesystem_error(Location("b", "k")):
            raise error

    assert raises(code, fail).startswith("s3://b/k: ")


def test_other_errors_are_not_changed() -> None:
    with pytest.raises(KeyError), as_filesystem_error("x"):
        raise KeyError("a defect")


def test_a_path_that_is_no_key_is_invalid_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-west-2")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    system = S3Filesystem()
    writer = system.open_writer("s3://bucket/", append=False)
    writer.append(memoryview(b"x"))
    assert "Key" in raises(failures.INVALID_ARGUMENT, writer.close)
    assert "bucket name" in raises(failures.INVALID_ARGUMENT, lambda: system.status("s3://no bucket!/k")).lower()
