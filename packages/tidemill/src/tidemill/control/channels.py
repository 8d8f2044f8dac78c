"""From a channel of a request to the objects that it is made of, in order.

A listing may be long: it is resolved once, kept in a temporary file above a small size, and read from there as often
as needed.
"""

import hashlib
import json
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tidemill.control.manifests import ManifestFault, augmented_values, manifest_names
from tidemill.control.remotes import Pinned, RemoteFault, Remotes, RemoteStore, in_order
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.executors.base import ChannelSpec, Entry, InlineText, ObjectFile, RemoteObject
from tidemill.executors.records import entry_from_json, entry_to_json
from tidemill.store.object_rows import ObjectInfo
from tidemill.store.objects import ObjectStore

__all__ = ["Channels", "DataMissing", "Listing", "channel_config", "object_file"]

_IN_MEMORY_BYTES = 1 << 20
_NONE = "None"


class DataMissing(Exception):
    """The job's code or data is not where the request says; the text becomes its FailureReason."""


class Listing:
    """The entries of a channel, iterated as often as needed.

    Attributes:
        objects: How many objects there are.
        record: What the job's record says of the channel.
        remotes: Which remote stores have some of them.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self._file.close)
        digest = hashlib.sha256()
        self.objects = size_bytes = 0
        self.remotes: set[str] = set()
        for entry in entries:
            self._file.write(json.dumps(entry_to_json(entry)).encode() + b"\n")
            if isinstance(entry, InlineText):
                digest.update(f"{json.dumps(entry.text)}\n".encode())
                continue
            if isinstance(entry, RemoteObject):
                self.remotes.add(entry.remote)
            content = entry.etag if isinstance(entry, RemoteObject) else entry.sha256
            digest.update(f"{entry.uri}\0{content}\n".encode())
            self.objects += 1
            size_bytes += entry.size_bytes
        self.record = {"objects": self.objects, "size_bytes": size_bytes, "sha256": digest.hexdigest()}

    def __iter__(self) -> Iterator[Entry]:
        self._file.seek(0)
        for line in self._file:
            yield entry_from_json(json.loads(line))


class Channels:
    """Resolves channels.

    Args:
        objects: Where data and manifests lie.
        remotes: Where those of buckets lie that ``objects`` does not hold, by bucket name or pattern.
    """

    def __init__(self, objects: ObjectStore, remotes: Mapping[str, RemoteS3] | None = None) -> None:
        self._objects = objects
        self._remotes = remotes or {}

    def resolve(self, channel: Mapping[str, Any], *, job_mode: str) -> tuple[ChannelSpec, dict[str, Any]]:
        """The channel with its objects, and what the job's record says of it.

        May ask remote stores, in this thread and threads of its own.

        Args:
            channel: Of the request.
            job_mode: The job's TrainingInputMode, for a channel that has none of its own.

        Raises:
            DataMissing: Nothing is there, or the manifest is wrong.
        """
        source = channel["DataSource"]["S3DataSource"]
        name, uri = channel["ChannelName"], S3Uri.parse(source["S3Uri"])
        try:
            place = _Place(self._objects, Remotes(self._remotes))
            if not place.has_bucket(uri.bucket):
                raise DataMissing(
                    f"ClientError: channel {name!r}: the bucket of {uri} does not exist; upload the data, or say in the"
                    " setting remote_s3 where it lies"
                )
            listing = Listing(_entries(place, source, uri))
        except ManifestFault as fault:
            raise DataMissing(f"ClientError: channel {name!r}: the manifest {uri} {fault}") from fault
        except RemoteFault as fault:
            raise DataMissing(f"ClientError: channel {name!r}: {fault}") from fault
        if not listing.objects and source["S3DataType"] == "S3Prefix":
            raise DataMissing(f"ClientError: channel {name!r}: no S3 objects found under {uri}; check the prefix")
        if next(iter(listing), None) is None:
            raise DataMissing(f"ClientError: channel {name!r}: the manifest {uri} names no data")
        spec = ChannelSpec(
            name=name,
            objects=listing,
            input_mode=channel.get("InputMode") or job_mode,
            compression=channel.get("CompressionType", _NONE),
            record_wrapper=channel.get("RecordWrapperType", _NONE),
            distribution=source.get("S3DataDistributionType", "FullyReplicated"),
            shuffle_seed=channel.get("ShuffleConfig", {}).get("Seed"),
            entries_per_item=len(source.get("AttributeNames", ())) or 1,
        )
        return spec, listing.record


class _Place:
    """Where objects lie: here, or where the settings say of their bucket."""

    def __init__(self, objects: ObjectStore, remotes: Remotes) -> None:
        self._objects = objects
        self._remotes = remotes

    def has_bucket(self, bucket: str) -> bool:
        return self._objects.bucket_exists(bucket) or self._remotes.store_of(bucket) is not None

    def below(self, uri: S3Uri) -> Iterator[RemoteObject | ObjectFile]:
        """The objects below a prefix. As on SageMaker: files keep their path below the last "/" of the prefix."""
        store = self._remote(uri)
        found = self._objects.list_all(uri.bucket, uri.key) if store is None else store.below(uri)
        for info in found:
            name = _name_below(uri, info.key)
            if info.key.endswith("/"):
                continue  # folder markers make no file
            if isinstance(info, ObjectInfo):
                yield object_file(self._objects, info, name=name)
            elif store is not None:
                yield _remote_object(store, uri.bucket, info, name=name)

    def named(self, uri: S3Uri, *, name: str) -> Entry | Callable[[], Entry]:
        """The object that a manifest names, or what finds it in a while.

        Raises:
            ManifestFault: It does not exist.
        """
        store = self._remote(uri)
        if store is not None:
            return partial(_pinned, store, uri, name=name)
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise _no_such(uri)
        return object_file(self._objects, info, name=name)

    @contextmanager
    def opened(self, uri: S3Uri) -> Iterator[Path]:
        """A manifest as a file.

        Raises:
            ManifestFault: It does not exist.
        """
        store = self._remote(uri)
        if store is None:
            info = self._objects.head(uri.bucket, uri.key)
            if info is None:
                raise ManifestFault("does not exist")
            yield self._objects.file_of(info)
            return
        with tempfile.NamedTemporaryFile() as file:
            if not store.fetch(uri, file):
                raise ManifestFault(f"does not exist at {store.remote.endpoint_url}")
            yield Path(file.name)

    def _remote(self, uri: S3Uri) -> RemoteStore | None:
        return None if self._objects.bucket_exists(uri.bucket) else self._remotes.store_of(uri.bucket)


def _entries(place: _Place, source: Mapping[str, Any], uri: S3Uri) -> Iterator[Entry]:
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


def _pinned(store: RemoteStore, uri: S3Uri, *, name: str) -> Entry:
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


def object_file(objects: ObjectStore, info: ObjectInfo, *, name: str) -> ObjectFile:
    """An object resolved to its file."""
    return ObjectFile(
        uri=f"s3://{info.bucket}/{info.key}",
        name=name,
        file=str(objects.file_of(info)),
        size_bytes=info.size_bytes,
        sha256=info.sha256,
    )


def channel_config(channel: Mapping[str, Any], *, job_mode: str) -> dict[str, str]:
    """What ``inputdataconfig.json`` says of a channel."""
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
