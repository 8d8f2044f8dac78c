"""Resolve a channel of a request to its objects, in order.

A listing may be long. It is created once and can be iterated repeatedly; beyond a small size it is kept in a temporary
file.
"""

import hashlib
import json
import tempfile
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tidemill.control.manifests import ManifestFault, augmented_values, manifest_names
from tidemill.control.remotes import Pinned, RemoteListingFault, Remotes, RemoteStore, in_order
from tidemill.core.instances import ObjectReference
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.instance.object_rows import ObjectRow, row_of
from tidemill.instance.spec import FAST_FILE, ChannelSpec, InlineText, Input, RemoteObject
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore

_IN_MEMORY_BYTES = 1 << 20
_SHARED_SINCE = 100
"""Minimum number of objects for which jobs share links. With fewer objects, sharing costs more than linking."""
_NONE = "None"
_KINDS: Mapping[str, type[Input]] = {kind.__name__: kind for kind in (ObjectReference, InlineText, RemoteObject)}
_Rows = list[ObjectRow]


class DataMissing(Exception):
    """The job's code or data does not exist at the requested URI; the message becomes the job's FailureReason."""


class ChannelListing:
    """The entries of a channel; can be iterated repeatedly.

    Attributes:
        objects: Number of objects.
        record: The channel's members of the job's record.
        remotes: Names of the remote stores that hold some of the objects.
        digest: Hash of the names and contents of all files; equal listings have equal digests. Empty if the service's
            store does not hold all files.
    """

    def __init__(self, entries: Iterable[Input | _Rows], *, seed: str = "") -> None:
        """Read all entries.

        Args:
            entries: Entries, or many objects of the service's store at once.
            seed: Text that is hashed into ``digest`` first. Default: empty.
        """
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self._file.close)
        self._contents, self._views = hashlib.sha256(), hashlib.sha256(seed.encode())
        self.objects = self._size_bytes = 0
        self.remotes: set[str] = set()
        self._is_local = True
        for entry in entries:
            if isinstance(entry, list):
                self._add_rows(entry)
            elif isinstance(entry, ObjectReference):
                self._add_rows([row_of(entry)])
            else:
                self._is_local = False
                self._add(entry)
        self.digest = self._views.hexdigest() if self._is_local else ""
        self.record = {
            "objects": self.objects,
            "size_bytes": self._size_bytes,
            "sha256": self._contents.hexdigest(),
        }

    def __iter__(self) -> Iterator[Input]:
        self._file.seek(0)
        for line in self._file:
            kind, rows = json.loads(line)
            make, names = _KINDS[kind], _KINDS[kind].__slots__
            for row in rows:
                yield make(**dict(zip(names, row, strict=True)))

    def rows(self) -> Iterator[Sequence[ObjectRow]]:
        """Yield the objects in batches; see `tidemill.instance.object_rows.ObjectRows`."""
        self._file.seek(0)
        for line in self._file:
            kind, rows = json.loads(line)
            if kind != ObjectReference.__name__:
                raise TypeError(f"a {kind} is no object of the service's store")
            yield rows

    def _add_rows(self, rows: _Rows) -> None:
        self._contents.update("".join([f"{row[0]}\0{row[4]}\n" for row in rows]).encode())
        self._views.update("".join([f"{row[1]}\0{row[2]}\n" for row in rows]).encode())
        if any(row[2].startswith("s3://") for row in rows):  # the content lies in another S3
            self._is_local = False
        self.objects += len(rows)
        self._size_bytes += sum([row[3] for row in rows])
        self._write(ObjectReference, rows)

    def _add(self, entry: InlineText | RemoteObject) -> None:
        self._write(type(entry), [[getattr(entry, name) for name in entry.__slots__]])
        if isinstance(entry, InlineText):
            self._contents.update(f"{json.dumps(entry.text)}\n".encode())
            return
        self.remotes.add(entry.remote)
        self._contents.update(f"{entry.uri}\0{entry.etag}\n".encode())
        self.objects += 1
        self._size_bytes += entry.size_bytes

    def _write(self, kind: type[Input], rows: Sequence[Sequence[Any]]) -> None:
        self._file.write(json.dumps((kind.__name__, rows)).encode() + b"\n")


class ChannelResolver:
    """Resolves channels.

    Args:
        objects: Holds data and manifests.
        remotes: Remote stores of buckets that ``objects`` does not hold, by bucket name or pattern.
        fast_file_fault: Returns why instances cannot read a remote S3 in FastFile mode, and what to do about it; empty
            if they can, or if only their own machine knows. Default: empty.
    """

    def __init__(
        self,
        objects: ObjectStore,
        remotes: Mapping[str, RemoteS3] | None = None,
        *,
        fast_file_fault: Callable[[], str] = str,
    ) -> None:
        self._objects = objects
        self._fast_file_fault = fast_file_fault
        self._remotes = remotes or {}

    def resolve(self, channel: Mapping[str, Any], *, job_mode: str) -> tuple[ChannelSpec, dict[str, Any]]:
        """Return the channel with its objects, and the channel's members of the job's record.

        May send requests to remote stores, from this thread and from others.

        Args:
            channel: The channel in the request.
            job_mode: The job's TrainingInputMode, for a channel without an InputMode.

        Raises:
            DataMissing: There are no objects, or the manifest is invalid.
        """
        source = channel["DataSource"]["S3DataSource"]
        name = channel["ChannelName"]
        listing = self.listing(source, what=f"channel {name!r}")
        input_mode = channel.get("InputMode") or job_mode
        fault = self._fast_file_fault() if input_mode == FAST_FILE and listing.remotes else ""
        if fault:
            raise DataMissing(
                f"ClientError: channel {name!r}: input mode {FAST_FILE} cannot read {source['S3Uri']}, which is in a"
                f" remote S3: {fault}. Or use File, which downloads the objects before the script starts, or Pipe,"
                " which streams them"
            )
        spec = ChannelSpec(
            name=name,
            objects=listing,
            digest=listing.digest if listing.objects >= _SHARED_SINCE else "",
            input_mode=input_mode,
            compression=channel.get("CompressionType", _NONE),
            record_wrapper=channel.get("RecordWrapperType", _NONE),
            shuffle_seed=channel.get("ShuffleConfig", {}).get("Seed"),
            entries_per_item=len(source.get("AttributeNames", ())) or 1,
        )
        return spec, listing.record

    def listing(self, source: Mapping[str, Any], *, what: str) -> ChannelListing:
        """List the objects of an S3DataSource.

        May send requests to remote stores, from this thread and from others.

        Args:
            source: The S3DataSource, by botocore's member names.
            what: Name of the owner of the source, for messages.

        Raises:
            DataMissing: There are no objects, or the manifest is invalid.
        """
        uri = S3Uri.parse(source["S3Uri"])
        try:
            place = _SourcePlace(self._objects, Remotes(self._remotes))
            if not place.has_bucket(uri.bucket):
                raise DataMissing(
                    f"ClientError: {what}: the bucket of {uri} does not exist; upload the data, or say in the"
                    " setting remote_s3 where it lies"
                )
            listing = ChannelListing(_entries(place, source, uri), seed=self._objects.contents.disk.damage)
        except ManifestFault as fault:
            raise DataMissing(f"ClientError: {what}: the manifest {uri} {fault}") from fault
        except RemoteListingFault as fault:
            raise DataMissing(f"ClientError: {what}: {fault}") from fault
        if not listing.objects and source["S3DataType"] == "S3Prefix":
            raise DataMissing(f"ClientError: {what}: no S3 objects found under {uri}; check the prefix")
        if next(iter(listing), None) is None:
            raise DataMissing(f"ClientError: {what}: the manifest {uri} names no data")
        return listing


class _SourcePlace:
    """Finds objects in the service's own S3, or in the remote store that the settings name for their bucket."""

    def __init__(self, objects: ObjectStore, remotes: Remotes) -> None:
        self._objects = objects
        self._remotes = remotes

    def has_bucket(self, bucket: str) -> bool:
        return self._objects.bucket_exists(bucket) or self._remotes.store_of(bucket) is not None

    def below(self, uri: S3Uri) -> Iterator[RemoteObject | _Rows]:
        """Yield the objects below a prefix. As on SageMaker, a file's name is its key after the prefix's last "/"."""
        store = self._remote(uri)
        if store is not None:
            for info in store.below(uri):
                if not info.key.endswith("/"):  # folder markers make no file
                    yield _remote_object(store, uri.bucket, info, name=_name_below(uri, info.key))
            return
        bucket = f"s3://{uri.bucket}/"
        for batch in self._objects.list_in_batches(uri.bucket, uri.key):
            yield [
                (bucket + key, _name_below(uri, key), content_id, size_bytes, sha256, etag)
                for key, content_id, size_bytes, etag, sha256 in batch
                if not key.endswith("/")
            ]

    def named(self, uri: S3Uri, *, name: str) -> Input | Callable[[], Input]:
        """Return the object that a manifest names, or a function that finds it with a request to a remote store.

        Raises:
            ManifestFault: The object does not exist.
        """
        store = self._remote(uri)
        if store is not None:
            return partial(_pinned, store, uri, name=name)
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise _no_such(uri)
        return reference(info, name=name)

    @contextmanager
    def opened(self, uri: S3Uri) -> Generator[Path]:
        """Provide a manifest as a local file.

        Raises:
            ManifestFault: The manifest does not exist.
        """
        store = self._remote(uri)
        if store is None:
            info = self._objects.head(uri.bucket, uri.key)
            if info is None:
                raise ManifestFault("does not exist")
            with self._objects.open(reference(info, name="")) as file:
                yield Path(file.name)
            return
        with tempfile.NamedTemporaryFile() as file:
            if not store.fetch(uri, file):
                raise ManifestFault(f"does not exist at {store.remote.endpoint_url}")
            yield Path(file.name)

    def _remote(self, uri: S3Uri) -> RemoteStore | None:
        return None if self._objects.bucket_exists(uri.bucket) else self._remotes.store_of(uri.bucket)


def _entries(place: _SourcePlace, source: Mapping[str, Any], uri: S3Uri) -> Iterator[Input | _Rows]:
    if source["S3DataType"] == "S3Prefix":
        yield from place.below(uri)
        return
    with place.opened(uri) as manifest:
        if source["S3DataType"] == "ManifestFile":
            names = manifest_names(manifest)
            yield from in_order(place.named(each, name=name.lstrip("/")) for each, name in names)
            return
        values = augmented_values(manifest, source["AttributeNames"])
        yield from in_order(
            InlineText(text=value) if isinstance(value, str) else place.named(value, name=value.key) for value in values
        )


def _name_below(uri: S3Uri, key: str) -> str:
    if uri.key and not uri.key.endswith("/") and key.startswith(uri.key + "/"):
        return key[len(uri.key) + 1 :]
    return key[len(uri.key.rpartition("/")[0]) + 1 :] if "/" in uri.key else key


def _pinned(store: RemoteStore, uri: S3Uri, *, name: str) -> Input:
    info = store.head(uri)
    if info is None:
        raise _no_such(uri)
    return _remote_object(store, uri.bucket, info, name=name)


def _no_such(uri: S3Uri) -> ManifestFault:
    return ManifestFault(f"names {uri}, which does not exist")


def _remote_object(store: RemoteStore, bucket: str, info: Pinned, *, name: str) -> RemoteObject:
    return RemoteObject(
        uri=f"s3://{bucket}/{info.key}", name=name, size_bytes=info.size_bytes, etag=info.etag, remote=store.name
    )


def reference(info: ObjectInfo, *, name: str) -> ObjectReference:
    """Return a reference to the content that an object has now.

    Args:
        name: Path of the object's file in an instance.
    """
    return ObjectReference(
        uri=f"s3://{info.bucket}/{info.key}",
        name=name,
        content_id=info.content_id,
        size_bytes=info.size_bytes,
        sha256=info.sha256,
        etag=info.etag,
    )


def channel_config(channel: Mapping[str, Any], *, job_mode: str) -> dict[str, str]:
    """Return the entry of a channel in ``inputdataconfig.json``.

    Args:
        channel: A member of InputDataConfig.
        job_mode: Input mode of the job, for channels without one.
    """
    config = {
        "TrainingInputMode": channel.get("InputMode") or job_mode,
        "S3DistributionType": channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", _NONE),
    }
    if channel.get("ContentType"):
        config["ContentType"] = channel["ContentType"]
    if channel.get("CompressionType", _NONE) != _NONE:
        config["CompressionType"] = channel["CompressionType"]
    return config
