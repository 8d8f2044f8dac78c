"""The objects of specs on this machine: references become paths of files, which the listings of channels name."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.instances import ObjectReference
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3, pattern_for
from tidemill.errors import LaunchError
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.object_rows import FileRow, rows_of
from tidemill.instance.records import RESTORED
from tidemill.instance.spec import FAST_FILE, SERVICE, ChannelSpec, Entry, Input, InstanceSpec, ObjectFile, RemoteObject
from tidemill.shim.failures import InstanceFailure
from tidemill.shim.local_copies import bring_object
from tidemill.shim.shared_links import LinkDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What a spec's objects are on this machine; see `tidemill.instance.records.SpecRecord`.

    Attributes:
        remotes: The remote S3 stores that the listings name.
        fast_files: Names of the channels whose objects are read on demand.
        shared: By channel: the directory of links that it shares with other instances.
    """

    remotes: Mapping[str, RemoteS3]
    fast_files: tuple[str, ...]
    shared: Mapping[str, str]
    code: ObjectFile | None
    model: ObjectFile | None


class LocalObjects:
    """Resolves references.

    Args:
        content_file: Returns the file of an object's content by its content id; of content in another S3, the file
            that will be its copy.
        remotes: The other S3 stores by bucket name or pattern.
        links: Directories of links that instances share; None if they share none.
    """

    def __init__(
        self,
        content_file: Callable[[str], str | Path],
        remotes: Mapping[str, RemoteS3],
        *,
        links: LinkDirectories | None,
    ) -> None:
        self._content_file = content_file
        self._remotes = remotes
        self._links = links

    def write_listings(self, directory: InstanceDirectory, spec: InstanceSpec) -> Listed:
        """Write the listings of a spec's channels, and of the checkpoints that are restored.

        Raises:
            LaunchError: No setting names the S3 that has a content.
        """
        remotes = dict(spec.remotes)
        lazy: set[str] = set()
        shared = {channel.name: self._list(directory, channel, remotes, lazy) for channel in spec.channels}
        directory.write_channel(RESTORED, self._entries(spec.restored, remotes))
        code = self._file(spec.code, remotes) if spec.code else None
        model = self._file(spec.model, remotes) if spec.model else None
        return Listed(
            remotes=remotes,
            fast_files=tuple(channel.name for channel in spec.channels if channel.name in lazy),
            shared={name: links for name, links in shared.items() if links},
            code=code,
            model=model,
        )

    def deliver(self, archive: ObjectReference, directory: Path, *, name: str) -> None:
        """Copy an archive into a directory, which is created if missing.

        Args:
            name: Name of the new file. A file of this name is replaced.

        Raises:
            LaunchError: The archive cannot be read or written.
        """
        target = directory / name
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            target.unlink(missing_ok=True)
            source, place = self._file(archive, {}), str(directory)
            bring_object(source, target, remotes=self._remotes, place=place, check=lambda: None)
        except (OSError, InstanceFailure) as error:
            target.unlink(missing_ok=True)
            raise LaunchError(f"the archive {archive.uri} cannot be brought to its server: {error}") from error

    def _list(
        self, directory: InstanceDirectory, channel: ChannelSpec, remotes: dict[str, RemoteS3], lazy: set[str]
    ) -> str:
        """Write the listing of a channel; return the name of the directory of links that it shares, if any.

        Add the name of the channel to ``lazy`` if its objects are to be read on demand.
        """
        streamed = channel.input_mode == "Pipe"
        if self._links is not None and channel.digest and not streamed:
            name = self._links.name_of(channel.digest)
            directory.channel_file(channel.name).unlink(missing_ok=True)
            if not self._links.take_listing(name, directory.channel_file(channel.name)):
                directory.write_shared_channel(channel.name, self._files(channel.objects))
                self._links.keep_listing(name, directory.channel_file(channel.name))
            return name
        entries = self._entries(channel.objects, remotes, streamed=streamed)
        if channel.input_mode == FAST_FILE:
            entries = _noting(entries, lambda: lazy.add(channel.name))
        directory.write_channel(channel.name, entries)
        return ""

    def _files(self, objects: Iterable[Input]) -> Iterator[list[FileRow]]:
        """Resolve objects whose content this machine has, in batches."""
        file_of = self._content_file
        for rows in rows_of(objects):
            yield [
                (uri, name, os.fspath(file_of(content_id)), size_bytes, sha256)
                for uri, name, content_id, size_bytes, sha256, _ in rows
            ]

    def _entries(
        self, objects: Iterable[Input], remotes: dict[str, RemoteS3], *, streamed: bool = False
    ) -> Iterator[Entry]:
        """Resolve references. Content that is streamed from another S3 is not copied to this machine."""
        for each in objects:
            if not isinstance(each, ObjectReference):
                yield each
                continue
            file = self._file(each, remotes)
            yield file.origin if streamed and file.origin else file

    def _file(self, reference: ObjectReference, remotes: dict[str, RemoteS3]) -> ObjectFile:
        """Resolve a reference. If its content lies in another S3, add that S3 to ``remotes``."""
        origin, remote = "", ""
        if reference.content_id.startswith("s3://"):
            origin = reference.content_id
            remote = pattern_for(S3Uri.parse(origin).bucket, self._remotes) or ""
            if not remote:
                raise LaunchError(
                    f"{reference.uri} is stored as {origin}, and no entry of the setting remote_s3 names the S3 of that"
                    " bucket"
                )
            remotes[remote] = self._remotes[remote]
        return ObjectFile(
            uri=reference.uri,
            name=reference.name,
            file=str(self._content_file(reference.content_id)),
            size_bytes=reference.size_bytes,
            sha256=reference.sha256,
            origin_uri=origin,
            origin_remote=remote,
        )


def _noting(entries: Iterable[Entry], note: Callable[[], None]) -> Iterator[Entry]:
    """Yield the entries; call ``note`` for each object of a remote S3.

    The service's own objects, which are remote for another machine, do not count: they can always be downloaded.
    """
    for each in entries:
        if isinstance(each, RemoteObject) and each.remote != SERVICE:
            note()
        yield each
