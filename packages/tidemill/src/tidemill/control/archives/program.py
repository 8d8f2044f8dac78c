"""List the members of an archive, or read a part of one. This runs as a separate program:

    python -I -S program.py TASK < ARCHIVE > ANSWER

Users store the archives, so nothing in one is trusted. Nothing is unpacked, followed or opened: a link is a text, and a
device node is a name. The program limits its own CPU time and memory, so that an archive that expands to terabytes, or
whose headers lie about their sizes, ends this process and nothing else. It imports only the standard library, because
tidemill's own packages take longer to import than most archives to list.

TASK is one JSON object: ``cpu_s``, and ``operation``, which is ``list``, with ``after`` (the number of members to skip)
and ``limit``; or ``read``, with ``index``, ``offset`` and ``size``. ANSWER is a line of JSON, for ``read`` followed by
the bytes. It has ``fault`` if the archive cannot be read.
"""

import calendar
import contextlib
import json
import resource
import signal
import stat
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import FrameType
from typing import IO, Any, BinaryIO

_MEMORY_BYTES = 512 * 1024 * 1024
_HEADER_BYTES = 1024 * 1024
_SHOWN_CHARS = 1024
_MAX_BYTES = (1 << 63) - 1
_MAX_TIME_S = 253_402_300_799  # the year 9999
_PIECE_BYTES = 1024 * 1024
_LOCAL_FILE, _EMPTY_ZIP = b"PK\x03\x04", b"PK\x05\x06"
_NAMED_HEADERS = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE)
_FAULTS = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchiveMember:
    index: int
    name: str
    type: str
    size_bytes: int
    modified_s: float | None
    target: str


class _ArchiveFault(Exception):
    """The archive, or the member, cannot be read; the message is for the user."""


class _TimeSpent(BaseException):
    """The CPU time is over. No exception of the archive's readers, so that they do not catch it."""


class _BoundedHeader(tarfile.TarInfo):
    """A header of tar. Those that name others are refused if they would fill the memory."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in (*_NAMED_HEADERS, tarfile.SOLARIS_XHDTYPE) and not 0 <= self.size <= _HEADER_BYTES:
            raise _ArchiveFault(f"a header has {self.size} bytes; at most {_HEADER_BYTES} are read")
        if self.size < 0:
            raise _ArchiveFault("a member has a negative size")
        return super()._proc_member(archive)  # type: ignore[misc] - the documented place for subclasses


def main() -> None:
    """Perform the task in the first argument, on the archive that is the standard input."""
    task = json.loads(sys.argv[1])
    _limit(task["cpu_s"])
    data = b""
    try:
        if task["operation"] == "list":
            answer: dict[str, Any] = _listed(sys.stdin.buffer, after=task["after"], limit=task["limit"])
        else:
            answer, data = _read(sys.stdin.buffer, task["index"], offset=task["offset"], size=task["size"])
    except _ArchiveFault as fault:
        answer = {"fault": str(fault)}
    except MemoryError:
        answer = {"fault": "its headers need too much memory"}
    except RuntimeError as error:  # zipfile: the member is encrypted
        answer = {"fault": str(error)}
    except _FAULTS as error:
        answer = {"fault": f"{type(error).__name__}: {error}"}
    except _TimeSpent:
        answer = {"fault": f"it takes more than {task['cpu_s']:g} s to get there"}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)


def _limit(cpu_s: float) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # The timer lets the program answer. The kernel's limit ends it if one call of a library takes longer.
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 4, int(cpu_s) + 4))
    signal.signal(signal.SIGPROF, _end)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _end(_signal: int, _frame: FrameType | None) -> None:
    raise _TimeSpent


def _listed(file: BinaryIO, *, after: int, limit: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    more, complete = False, True
    try:
        for member, _ in _members(file):
            if member.index < after:
                continue
            if len(found) == limit:
                more = True
                break
            found.append(asdict(member))
    except _TimeSpent:
        complete = False
    except _FAULTS as error:
        if not found:
            raise
        # What is in front of the damage is worth more than an error.
        return {"members": found, "more": False, "complete": False, "damage": f"{type(error).__name__}: {error}"}
    return {"members": found, "more": more, "complete": complete}


def _read(file: BinaryIO, index: int, *, offset: int, size: int) -> tuple[dict[str, Any], bytes]:
    for member, opened in _members(file):
        if member.index == index:
            if member.type != "File":
                raise _ArchiveFault(f"member {index} is no file: its type is {member.type}")
            with opened() as content:
                return {"member": asdict(member)}, _slice(content, offset=offset, size=size)
    raise _ArchiveFault(f"there is no member with index {index}")


def _slice(content: IO[bytes], *, offset: int, size: int) -> bytes:
    with contextlib.suppress(EOFError):
        content.seek(offset)  # in a compressed archive this decompresses up to there, in pieces
    pieces: list[bytes] = []
    while size > 0 and (piece := content.read(min(size, _PIECE_BYTES))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _members(file: BinaryIO) -> Iterator[tuple[_ArchiveMember, Any]]:
    """Yield each member, and a function that opens its content."""
    head = file.read(4)
    file.seek(0)
    return _zip_members(file) if head in (_LOCAL_FILE, _EMPTY_ZIP) else _tar_members(file)


def _zip_members(file: BinaryIO) -> Iterator[tuple[_ArchiveMember, Any]]:
    with zipfile.ZipFile(file) as archive:
        for index, info in enumerate(archive.infolist()):
            mode = info.external_attr >> 16
            kind = "Directory" if info.is_dir() else "SymbolicLink" if stat.S_ISLNK(mode) else "File"
            yield (
                _ArchiveMember(
                    index=index,
                    name=_shown(info.filename),
                    type=kind,
                    size_bytes=_bounded(info.file_size),
                    modified_s=_zip_time(info),
                    target="",
                ),
                lambda info=info: archive.open(info),
            )


def _zip_time(info: zipfile.ZipInfo) -> float | None:
    """Return the time of a member of a zip archive, which has no zone: as UTC."""
    try:
        return float(calendar.timegm((*info.date_time, 0, 0, 0)))
    except (ValueError, OverflowError):
        return None


def _tar_members(file: BinaryIO) -> Iterator[tuple[_ArchiveMember, Any]]:
    with tarfile.open(fileobj=file, mode="r:*", tarinfo=_BoundedHeader) as archive:
        index = 0
        while (header := archive.next()) is not None:
            # Else all headers of an archive with millions of members stay in memory.
            archive.members.clear()  # pyrefly: ignore[missing-attribute]
            yield _tar_member(index, header), lambda header=header: archive.extractfile(header)
            index += 1


def _tar_member(index: int, header: tarfile.TarInfo) -> _ArchiveMember:
    names = (("File", header.isreg()), ("Directory", header.isdir()), ("SymbolicLink", header.issym()))
    kind = next((name for name, holds in (*names, ("HardLink", header.islnk())) if holds), "Other")
    return _ArchiveMember(
        index=index,
        name=_shown(header.name),
        type=kind,
        size_bytes=_bounded(header.size) if kind == "File" else 0,
        modified_s=float(header.mtime) if 0 <= header.mtime <= _MAX_TIME_S else None,
        target=_shown(header.linkname) if kind in ("SymbolicLink", "HardLink") else "",
    )


def _shown(name: str) -> str:
    """Return a name that can be written as UTF-8, not longer than any file system allows."""
    return name[:_SHOWN_CHARS].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _bounded(size: int) -> int:
    return min(max(size, 0), _MAX_BYTES)


if __name__ == "__main__":
    main()
