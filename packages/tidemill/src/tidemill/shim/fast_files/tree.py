"""The files and directories of a channel, from its listing."""

from collections.abc import Iterable

from tidemill.instance.spec import Entry, InlineText, ObjectFile, RemoteObject
from tidemill.shim.failures import InternalFailure
from tidemill.shim.objects import check_key, clash


class Tree:
    """The paths of a channel, each relative to the channel's directory, which is ``""``.

    Args:
        entries: The objects, in any order.
        place: The channel's directory as the job sees it, for messages.

    Attributes:
        directories: The names in each directory, by its path.

    Raises:
        ClientFailure: A key is not a path below the channel, or collides with another key.
    """

    def __init__(self, entries: Iterable[Entry], *, place: str) -> None:
        self.files: dict[str, ObjectFile | RemoteObject] = {}
        self.directories: dict[str, list[str]] = {"": []}
        self.size_bytes = 0
        for entry in entries:
            if isinstance(entry, InlineText):
                raise InternalFailure("the text of a manifest is for Pipe mode: it has no name to be a file of")
            self._add(entry, place)

    def _add(self, entry: ObjectFile | RemoteObject, place: str) -> None:
        is_folder = entry.name.endswith("/") and entry.size_bytes == 0  # as S3 consoles create folders
        path = entry.name.removesuffix("/") if is_folder else entry.name
        check_key(path, entry.uri)
        parent, _, name = path.rpartition("/")
        self._ensure_directory(path if is_folder else parent, entry.uri, place)
        if is_folder:
            return
        if path in self.files or path in self.directories:
            raise clash(entry.uri, place)
        self.files[path] = entry
        self.directories[parent].append(name)
        self.size_bytes += entry.size_bytes

    def _ensure_directory(self, path: str, uri: str, place: str) -> None:
        if path in self.directories:
            return
        if path in self.files:
            raise clash(uri, place)
        parent, _, name = path.rpartition("/")
        self._ensure_directory(parent, uri, place)
        self.directories[path] = []
        self.directories[parent].append(name)
