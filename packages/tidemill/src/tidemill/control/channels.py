"""From a channel of a request to the objects that it is made of, in order.

A listing may be long: it is resolved once, kept in a temporary file above a small size, and read from there as often
as needed.
"""

import hashlib
import json
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tidemill.control.manifests import ManifestFault, augmented_values, manifest_names
from tidemill.core.names import S3Uri
from tidemill.executors.base import ChannelSpec, InlineText, ObjectFile
from tidemill.executors.records import entry_from_json, entry_to_json
from tidemill.store.objects import ObjectInfo, ObjectStore

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
    """

    def __init__(self, entries: Iterable[ObjectFile | InlineText]) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115 - closed with the object
        weakref.finalize(self, self._file.close)
        digest = hashlib.sha256()
        self.objects = size_bytes = 0
        for entry in entries:
            self._file.write(json.dumps(entry_to_json(entry)).encode() + b"\n")
            if isinstance(entry, InlineText):
                digest.update(f"{json.dumps(entry.text)}\n".encode())
                continue
            digest.update(f"{entry.uri}\0{entry.sha256}\n".encode())
            self.objects += 1
            size_bytes += entry.size_bytes
        self.record = {"objects": self.objects, "size_bytes": size_bytes, "sha256": digest.hexdigest()}

    def __iter__(self) -> Iterator[ObjectFile | InlineText]:
        self._file.seek(0)
        for line in self._file:
            yield entry_from_json(json.loads(line))


class Channels:
    """Resolves channels.

    Args:
        objects: Where data and manifests lie.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def resolve(self, channel: Mapping[str, Any], *, job_mode: str) -> tuple[ChannelSpec, dict[str, Any]]:
        """The channel with its objects, and what the job's record says of it.

        Args:
            channel: Of the request.
            job_mode: The job's TrainingInputMode, for a channel that has none of its own.

        Raises:
            DataMissing: Nothing is there, or the manifest is wrong.
        """
        source = channel["DataSource"]["S3DataSource"]
        name, uri = channel["ChannelName"], S3Uri.parse(source["S3Uri"])
        if not self._objects.bucket_exists(uri.bucket):
            raise DataMissing(f"ClientError: channel {name!r}: the bucket of {uri} does not exist")
        try:
            listing = Listing(self._entries(source, uri))
        except ManifestFault as fault:
            raise DataMissing(f"ClientError: channel {name!r}: the manifest {uri} {fault}") from fault
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

    def _entries(self, source: Mapping[str, Any], uri: S3Uri) -> Iterator[ObjectFile | InlineText]:
        if source["S3DataType"] == "S3Prefix":
            yield from self._below(uri)
            return
        manifest = self._objects.file_of(self._existing(uri, "does not exist"))
        if source["S3DataType"] == "ManifestFile":
            for each, name in manifest_names(manifest):
                yield object_file(self._objects, self._named(each), name=name.lstrip("/"))
            return
        for value in augmented_values(manifest, source["AttributeNames"]):
            if isinstance(value, str):
                yield InlineText(text=value)
            else:
                yield object_file(self._objects, self._named(value), name=value.key)

    def _below(self, uri: S3Uri) -> Iterator[ObjectFile]:
        # As on SageMaker: files keep their path below the last "/" of the prefix; folder markers make no file.
        base = len(uri.key.rpartition("/")[0]) + 1 if "/" in uri.key else 0
        for info in self._objects.list_all(uri.bucket, uri.key):
            if not info.key.endswith("/"):
                name = info.key[base:]
                if uri.key and not uri.key.endswith("/") and info.key.startswith(uri.key + "/"):
                    name = info.key[len(uri.key) + 1 :]
                yield object_file(self._objects, info, name=name)

    def _named(self, uri: S3Uri) -> ObjectInfo:
        return self._existing(uri, f"names {uri}, which does not exist")

    def _existing(self, uri: S3Uri, fault: str) -> ObjectInfo:
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise ManifestFault(fault)
        return info


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
