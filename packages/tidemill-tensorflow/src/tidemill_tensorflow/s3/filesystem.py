"""S3 as a file system: what TensorFlow asks of one, in requests of S3."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill_tensorflow.s3.failures import FAILED_PRECONDITION, NOT_FOUND, FilesystemError, as_filesystem_error
from tidemill_tensorflow.s3.location import Location
from tidemill_tensorflow.s3.reading import ObjectReader
from tidemill_tensorflow.s3.writing import ObjectWriter

__all__ = ["S3Filesystem", "Status"]

_MAX_CONNECTIONS = 32
_KEYS_PER_DELETE = 1000
_WHOLE_COPY_BYTES = 4 * 1024 * 1024 * 1024
_COPY_PART_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Status:
    """What is at a path.

    Attributes:
        length: Bytes; 0 of a directory.
        mtime_ns: Last change, in nanoseconds since 1970; 0 of a directory.
        is_directory: Whether keys begin with the path and a slash, or the path is a bucket.
    """

    length: int
    mtime_ns: int
    is_directory: bool


_DIRECTORY = Status(0, 0, is_directory=True)


class S3Filesystem:
    """The operations by path. Endpoint, region and keys come from where boto3 looks for them.

    S3 has no directories: one is there as long as a key begins with its name. A directory that this process has made
    counts as there, too, and is not written to S3.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._made: set[Location] = set()

    def open_reader(self, path: str) -> ObjectReader:
        """Return a reader. Whether the object is there shows with the first read."""
        return ObjectReader(self._client, Location.parse(path))

    def open_writer(self, path: str, *, append: bool) -> ObjectWriter:
        """Return a writer, which begins with nothing or goes on behind what is there."""
        return ObjectWriter(self._client, Location.parse(path), append=append)

    def create_directory(self, path: str) -> None:
        """Note that a directory is there.

        Raises:
            FilesystemError: There is no such bucket.
        """
        location = Location.parse(path)
        self._bucket(location)
        self._made.add(location)

    def status(self, path: str) -> Status:
        """Return what is at a path.

        Raises:
            FilesystemError: Nothing, or it may not be looked at.
        """
        location = Location.parse(path)
        if not location.key:
            return self._bucket(location)
        try:
            with as_filesystem_error(location):
                found = self._client.head_object(**location.parameters)
        except FilesystemError as error:
            if error.code != NOT_FOUND:
                raise
            if location in self._made or self._has_keys(location):
                return _DIRECTORY
            # A HEAD has no body, so S3 does not say why.
            raise FilesystemError(NOT_FOUND, f"{location}: there is no such object, and no key below it") from None
        return Status(found["ContentLength"], int(found["LastModified"].timestamp() * 1e9), is_directory=False)

    def children(self, path: str) -> list[str]:
        """Return the names in a directory, without those below them.

        Raises:
            FilesystemError: There is no such directory.
        """
        location = Location.parse(path)
        names: list[str] = []
        for page in self._pages(location, Delimiter="/"):
            names += [found["Prefix"][len(location.prefix) : -1] for found in page.get("CommonPrefixes", [])]
            names += [found["Key"][len(location.prefix) :] for found in page.get("Contents", [])]
        if not names and not self.status(path).is_directory:
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is not a directory")
        return [name for name in names if name]

    def delete_file(self, path: str) -> None:
        """Delete an object.

        Raises:
            FilesystemError: The object does not exist, or it may not be deleted.
        """
        location = Location.parse(path)
        if self.status(path).is_directory:
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is a directory")
        with as_filesystem_error(location):
            self._client.delete_object(**location.parameters)

    def delete_directory(self, path: str) -> None:
        """Delete an empty directory.

        Raises:
            FilesystemError: It is not empty.
        """
        if self.children(path):
            raise FilesystemError(FAILED_PRECONDITION, f"{Location.parse(path)} is not empty")
        self._made.discard(Location.parse(path))

    def delete_recursively(self, path: str) -> None:
        """Delete a directory with all that is in it.

        Raises:
            FilesystemError: The directory does not exist, or one of its objects may not be deleted.
        """
        location = Location.parse(path)
        if not self.status(path).is_directory:
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is not a directory")
        batch: list[dict[str, str]] = []
        for key in self._keys(location):
            batch.append({"Key": key})
            if len(batch) == _KEYS_PER_DELETE:
                self._delete(location, batch)
                batch = []
        self._delete(location, batch)
        self._made = {made for made in self._made if not _is_within(made, location)}

    def copy(self, source: str, target: str) -> None:
        """Copy an object inside S3.

        Raises:
            FilesystemError: The object does not exist, or the copy is refused.
        """
        self._copy(Location.parse(source), Location.parse(target))

    def rename(self, source: str, target: str) -> None:
        """Move an object, or all objects of a directory. S3 has no such operation: they are copied, then deleted.

        Raises:
            FilesystemError: There is nothing, or a request is refused. Nothing is deleted before all is copied.
        """
        old, new = Location.parse(source), Location.parse(target)
        if not self.status(source).is_directory:
            self._copy(old, new)
            with as_filesystem_error(old):
                self._client.delete_object(**old.parameters)
            return
        keys = list(self._keys(old))
        for key in keys:
            self._copy(old.child(key), new.child(new.prefix + key[len(old.prefix) :]))
        self._made |= {new} if old in self._made else set()
        for start in range(0, len(keys), _KEYS_PER_DELETE):
            self._delete(old, [{"Key": key} for key in keys[start : start + _KEYS_PER_DELETE]])
        self._made.discard(old)

    @property
    def _client(self) -> Any:
        """boto3's client of this process: a forked child must not use the connections of its parent."""
        with self._lock:
            if self._process != os.getpid():
                self._made_client = _make_client()
                self._process = os.getpid()
            return self._made_client

    def _bucket(self, location: Location) -> Status:
        with as_filesystem_error(location):
            self._client.head_bucket(Bucket=location.bucket)
        return _DIRECTORY

    def _has_keys(self, location: Location) -> bool:
        with as_filesystem_error(location):
            page = self._client.list_objects_v2(Bucket=location.bucket, Prefix=location.prefix, MaxKeys=1)
        return page["KeyCount"] > 0

    def _pages(self, location: Location, **parameters: str) -> Iterator[dict[str, Any]]:
        pages = self._client.get_paginator("list_objects_v2")
        with as_filesystem_error(location):
            yield from pages.paginate(Bucket=location.bucket, Prefix=location.prefix, **parameters)

    def _keys(self, location: Location) -> Iterator[str]:
        for page in self._pages(location):
            yield from (found["Key"] for found in page.get("Contents", []))

    def _copy(self, source: Location, target: Location) -> None:
        with as_filesystem_error(f"{source} to {target}"):
            self._client.copy(source.parameters, target.bucket, target.key, Config=_copies())

    def _delete(self, location: Location, objects: list[dict[str, str]]) -> None:
        if not objects:
            return
        with as_filesystem_error(location):
            answer = self._client.delete_objects(Bucket=location.bucket, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", [])[:1]:
            failed = location.child(error["Key"])
            raise FilesystemError(FAILED_PRECONDITION, f"{failed}: {error['Code']}: {error.get('Message', '')}")


def _copies() -> Any:
    """One request an object, as long as S3 allows it: the service copies no bytes then, but those of parts it does."""
    from boto3.s3.transfer import TransferConfig  # imports as much as boto3 itself

    return TransferConfig(multipart_threshold=_WHOLE_COPY_BYTES + 1, multipart_chunksize=_COPY_PART_BYTES)


def _is_within(location: Location, directory: Location) -> bool:
    return location == directory or (location.bucket == directory.bucket and location.key.startswith(directory.prefix))


def _make_client() -> Any:
    # Imported here: a script that never touches S3 does not pay for it.
    import boto3
    from botocore.config import Config

    settings: dict[str, Any] = {
        "max_pool_connections": _MAX_CONNECTIONS,
        "retries": {"mode": "standard", "max_attempts": 5},
    }
    # The signature covers what is sent; older releases of botocore do not know these.
    checksums: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    try:
        config = Config(**settings, **checksums)
    except TypeError:
        config = Config(**settings)
    return boto3.session.Session().client("s3", config=config)
