"""Run the program that looks into an archive, within limits of time, of bytes and of processes."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

__all__ = ["ArchiveMember", "ArchiveUnreadable", "Archives", "MemberPage"]

READ_MAX_BYTES = 4 * 1024 * 1024
"""Most bytes of a member in one answer."""

_CPU_S = 8.0
_PROGRAM = Path(__file__).with_name("program.py")
_AT_ONCE = 2
_LIMIT_S = 60.0
_HEAD_MAX_BYTES = 16 * 1024 * 1024


class ArchiveUnreadable(Exception):
    """An object is no archive, or its member cannot be read; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMember:
    """A member of an archive.

    Attributes:
        index: Its position; several members may have the same name.
        name: As in the archive, which may be a path that leads out of a directory. Cut after 1,024 characters.
        type: ``File``, ``Directory``, ``SymbolicLink``, ``HardLink`` or ``Other``.
        size_bytes: Size of a file as the archive says it, which need not be true.
        modified_s: Time in seconds since the epoch, or None.
        target: What a link names.
    """

    index: int
    name: str
    type: str
    size_bytes: int
    modified_s: float | None
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPage:
    """Some members of an archive.

    Attributes:
        more: Whether further members follow.
        complete: Whether the archive was read up to here without damage and within the limit of CPU time.
        damage: What is wrong behind the last member; empty if nothing is known to be.
    """

    members: tuple[ArchiveMember, ...]
    more: bool
    complete: bool
    damage: str = ""


class Archives:
    """Looks into archives. At most two processes do that at a time.

    Args:
        cpu_s: Seconds of CPU after which a process answers with what it has found. Default: 8.
    """

    def __init__(self, *, cpu_s: float = _CPU_S) -> None:
        self._cpu_s = cpu_s
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def members(self, file: BinaryIO, *, after: int, limit: int) -> MemberPage:
        """Return members of an archive, in its order.

        Args:
            file: The archive, at its beginning; a file of the operating system.
            after: Number of members to skip.
            limit: Most members.

        Raises:
            ArchiveUnreadable: It is no archive, or damaged at its beginning.
        """
        answer, _ = await self._ask(file, {"operation": "list", "after": after, "limit": limit})
        members = tuple(ArchiveMember(**each) for each in answer["members"])
        return MemberPage(
            members=members, more=answer["more"], complete=answer["complete"], damage=answer.get("damage", "")
        )

    async def read(self, file: BinaryIO, index: int, *, offset: int, size: int) -> tuple[ArchiveMember, bytes]:
        """Return a member and a part of its bytes, which is shorter than asked for only at the member's end.

        Args:
            file: As for `members`.
            index: Position of the member.
            offset: First byte.
            size: Most bytes, at most `READ_MAX_BYTES`.

        Raises:
            ArchiveUnreadable: There is no such member, it is no file, or damaged.
        """
        size = min(size, READ_MAX_BYTES)
        answer, data = await self._ask(file, {"operation": "read", "index": index, "offset": offset, "size": size})
        return ArchiveMember(**answer["member"]), data

    async def _ask(self, file: BinaryIO, task: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        task = {**task, "cpu_s": self._cpu_s}
        async with self._places:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", str(_PROGRAM), json.dumps(task)),
                stdin=file,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                limit=_HEAD_MAX_BYTES,
            )
            assert process.stdout is not None
            try:
                async with asyncio.timeout(_LIMIT_S):
                    head = await process.stdout.readline()
                    data = await process.stdout.read(READ_MAX_BYTES)
                    while more := await process.stdout.read(READ_MAX_BYTES - len(data)):
                        data += more
                    await process.wait()
            except (TimeoutError, ValueError):
                raise ArchiveUnreadable("it takes too long, or too much memory, to read") from None
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if not head.endswith(b"\n"):
            raise ArchiveUnreadable("it takes too long, or too much memory, to read")
        answer = json.loads(head)
        if "fault" in answer:
            raise ArchiveUnreadable(answer["fault"])
        return answer, data
