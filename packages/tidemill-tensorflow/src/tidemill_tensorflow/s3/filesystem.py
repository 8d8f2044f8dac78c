"""Implement TensorFlow's file system operations with S3 requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidemill_tensorflow.s3.failures import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    FilesystemError,
    as_filesystem_error,
)
from tidemill_tensorflow.s3.location import Location
from tidemill_tensorflow.s3.reading import ObjectReader
from tidemill_tensorflow.s3.writing import ObjectWriter

_MAX_CONNECTIONS = 32
_KEYS_PER_DELETE = 1000
_WHOLE_COPY_BYTES = 4 * 1024 * 1024 * 1024
_COPY_PART_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True)
class Status:
    """Status of a path.

    Attributes:
        length: Size in bytes; 0 for a directory.
        mtime_ns: Time of the last change, in nanoseconds since 1970; 0 for a directory.
        is_directory: Whether keys begin with the path and a slash, or the path is a bucket.
    """

    length: int
    mtime_ns: int
    is_directory: bool


_DIRECTORY = Status(0, 0, is_directory=True)


class S3Filesystem:
    """File system operations by path. Endpoint, region and keys come from boto3's own configuration.

    S3 has no directories. A directory exists here while a key begins with its name and a slash, or after this process
    has created it. Creating a directory writes nothing to S3.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = 0
        self._made: set[Location] = set()

    def open_reader(self, path: str) -> ObjectReader:
        """Return a reader. A missing object raises an error at the first read, not here."""
        return ObjectReader(self._client, Location.parse(path))

    def open_writer(self, path: str, *, append: bool) -> ObjectWriter:
        """Return a writer of an empty object, or with ``append`` a writer that continues the existing object."""
        return ObjectWriter(self._client, Location.parse(path), append=append)

    def create_directory(self, path: str) -> None:
        """Create a directory, for this process only.

        Raises:
            FilesystemError: The bucket does not exist.
        """
        location = Location.parse(path)
        self._bucket(location)
        self._change_made(lambda made: made | {location})

    def status(self, path: str) -> Status:
        """Return the status of a path.

        Raises:
            FilesystemError: The path does not exist, or S3 refuses access to it.
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
        """Return the names of a directory's direct children.

        Raises:
            FilesystemError: The directory does not exist.
        """
        location = Location.parse(path)
        names: list[str] = []
        for page in self._pages(location, Delimiter="/"):
            names += [found["Prefix"][len(location.prefix) : -1] for found in page.get("CommonPrefixes", [])]
            names += [found["Key"][len(location.prefix) :] for found in page.get("Contents", [])]
        if not names and not self.status(path).is_directory:
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is not a directory")
        # Without the object that marks the directory, and once if a name is that of an object and of a directory.
        return list(dict.fromkeys(name for name in names if name))

    def delete_file(self, path: str) -> None:
        """Delete an object.

        Raises:
            FilesystemError: The object does not exist, or S3 refuses to delete it.
        """
        location = Location.parse(path)
        if self.status(path).is_directory:
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is a directory")
        with as_filesystem_error(location):
            self._client.delete_object(**location.parameters)

    def delete_directory(self, path: str) -> None:
        """Delete an empty directory.

        Raises:
            FilesystemError: The directory is not empty.
        """
        location = Location.parse(path)
        if self.children(path):
            raise FilesystemError(FAILED_PRECONDITION, f"{location} is not empty")
        if location.key and self._has_keys(location):  # the object that marks it, as S3's console writes one
            self._delete(location, [{"Key": location.prefix}])
        self._change_made(lambda made: made - {location})

    def delete_recursively(self, path: str) -> None:
        """Delete a directory and everything in it.

        Raises:
            FilesystemError: The directory does not exist, or S3 refuses to delete one of its objects.
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
        self._change_made(lambda made: {each for each in made if not _is_within(each, location)})

    def copy(self, source: str, target: str) -> None:
        """Copy an object inside S3.

        Raises:
            FilesystemError: The object does not exist, or S3 refuses the copy.
        """
        self._copy(Location.parse(source), Location.parse(target))

    def rename(self, source: str, target: str) -> None:
        """Move an object, or all objects of a directory. S3 cannot rename, so the objects are copied, then deleted.

        A path that is renamed to itself stays, as in other file systems.

        Raises:
            FilesystemError: The source does not exist, or S3 refuses a request. If a copy fails, nothing is deleted.
        """
        old, new = Location.parse(source), Location.parse(target)
        status = self.status(source)
        if old == new:
            return
        if _is_within(new, old) and status.is_directory:
            raise FilesystemError(INVALID_ARGUMENT, f"{old} cannot be moved into itself: {new}")
        if not status.is_directory:
            self._copy(old, new)
            with as_filesystem_error(old):
                self._client.delete_object(**old.parameters)
            return
        keys = list(self._keys(old))
        for key in keys:
            self._copy(old.child(key), new.child(new.prefix + key[len(old.prefix) :]))
        for start in range(0, len(keys), _KEYS_PER_DELETE):
            self._delete(old, [{"Key": key} for key in keys[start : start + _KEYS_PER_DELETE]])
        self._change_made(lambda made: {_moved(each, old, new) if _is_within(each, old) else each for each in made})

    def _change_made(self, change: Callable[[set[Location]], set[Location]]) -> None:
        with self._lock:  # TensorFlow calls from several threads
            self._made = change(self._made)

    @property
    def _client(self) -> Any:
        """boto3's client of this process. A forked child gets a new one, and not its parent's connections."""
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
    """Return copy settings with one request per object up to S3's limit.

    For a whole object the service copies no bytes; for the parts of a multipart copy it does.
    """
    from boto3.s3.transfer import TransferConfig  # imports as much as boto3 itself

    return TransferConfig(multipart_threshold=_WHOLE_COPY_BYTES + 1, multipart_chunksize=_COPY_PART_BYTES)


def _is_within(location: Location, directory: Location) -> bool:
    return location == directory or (location.bucket == directory.bucket and location.key.startswith(directory.prefix))


def _moved(location: Location, old: Location, new: Location) -> Location:
    """Return where a location is after the directory around it has moved."""
    return Location(new.bucket, (new.prefix + location.key[len(old.prefix) :]).rstrip("/"))


def _make_client() -> Any:
    # Imported here, because a script that never uses S3 must not pay for this import.
    import boto3
    from botocore.config import Config

    settings: dict[str, Any] = {
        "max_pool_connections": _MAX_CONNECTIONS,
        "retries": {"mode": "standard", "max_attempts": 5},
    }
    # No extra checksums, because the signature covers the request. Older botocore releases do not have these settings.
    checksums: dict[str, Any] = {
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    try:
        config = Config(**settings, **checksums)
    except TypeError:
        config = Config(**settings)
    return boto3.session.Session().client("s3", config=config)
