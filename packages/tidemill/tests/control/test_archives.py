"""A look into archives, most of which were made to do harm."""

import asyncio
import gzip
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.control.archives.looking import ArchiveMember, Archives, ArchiveUnreadable, MemberPage

Files = Callable[[bytes], Path]


@pytest.fixture
def stored(tmp_path: Path) -> Files:
    def store(content: bytes) -> Path:
        path = tmp_path / "object"
        path.write_bytes(content)
        return path

    return store


def members_of(path: Path, *, after: int = 0, limit: int = 100, cpu_s: float = 8.0) -> MemberPage:
    async def ask() -> MemberPage:
        with path.open("rb") as file:
            return await Archives(cpu_s=cpu_s).members(file, after=after, limit=limit)

    return asyncio.run(ask())


def read(path: Path, index: int, *, offset: int = 0, size: int = 1000) -> tuple[ArchiveMember, bytes]:
    async def ask() -> tuple[ArchiveMember, bytes]:
        with path.open("rb") as file:
            return await Archives().read(file, index, offset=offset, size=size)

    return asyncio.run(ask())


def tar(*members: tuple[tarfile.TarInfo, bytes], compression: str = "gz") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=f"w:{compression}") as archive:
        for info, content in members:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mtime: int = 1_700_000_000) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mtime = kind, target, mtime
    return info


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_members_of_a_tar_are_listed_by_pages_and_read_in_parts(stored: Files, compression: str) -> None:
    path = stored(tar((member("a/one.txt"), b"0123456789"), (member("two"), b""), compression=compression))
    first = members_of(path, limit=1)
    assert [(each.index, each.name, each.type, each.size_bytes) for each in first.members] == [
        (0, "a/one.txt", "File", 10)
    ]
    assert (first.members[0].modified_s, first.more, first.complete) == (1_700_000_000, True, True)
    second = members_of(path, after=1)
    assert [each.name for each in second.members] == ["two"]
    assert (second.more, second.complete) == (False, True)
    assert read(path, 0, offset=3, size=4)[1] == b"3456"
    assert read(path, 0, offset=8)[1] == b"89"
    assert read(path, 0, offset=1 << 40)[1] == b""
    with pytest.raises(ArchiveUnreadable, match="no member with index 2"):
        read(path, 2)


def test_members_of_a_zip_are_listed_and_read(stored: Files) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("folder/", (2024, 2, 29, 12, 0, 0)), b"")
        archive.writestr(zipfile.ZipInfo("config.json", (2024, 2, 29, 12, 0, 0)), b'{"a": 1}')
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, b"/etc/passwd")
    path = stored(target.getvalue())
    assert [(each.name, each.type) for each in members_of(path).members] == [
        ("folder/", "Directory"),
        ("config.json", "File"),
        ("link", "SymbolicLink"),
    ]
    assert members_of(path).members[1].modified_s == 1_709_208_000
    assert read(path, 1)[1] == b'{"a": 1}'
    with pytest.raises(ArchiveUnreadable, match="no file"):
        read(path, 2)


def test_links_devices_and_paths_upwards_are_names_and_lead_nowhere(stored: Files) -> None:
    path = stored(
        tar(
            (member("../../etc/cron.d/x"), b"harmless"),
            (member("/etc/passwd"), b"not that one"),
            (member("soft", tarfile.SYMTYPE, "/etc/passwd"), b""),
            (member("hard", tarfile.LNKTYPE, "/etc/passwd"), b""),
            (member("null", tarfile.CHRTYPE), b""),
            (member("pipe", tarfile.FIFOTYPE), b""),
            (member("line\nbreak\x1b[31m\u202e"), b""),
        )
    )
    found = members_of(path).members
    assert [each.type for each in found] == [*("File", "File", "SymbolicLink", "HardLink"), *("Other", "Other", "File")]
    assert [each.name for each in found[:2]] == ["../../etc/cron.d/x", "/etc/passwd"]
    assert found[2].target == found[3].target == "/etc/passwd"
    assert found[6].name == "line\nbreak\x1b[31m\u202e"
    assert read(path, 1)[1] == b"not that one"
    for index in (2, 3, 4, 5):
        with pytest.raises(ArchiveUnreadable, match="no file"):
            read(path, index)


def test_names_that_are_no_text_or_too_long_can_be_shown(stored: Files) -> None:
    info = member("x")
    raw = bytearray(tar((info, b""), compression=""))
    raw[0:3] = b"\xff\xfea"
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    assert members_of(stored(bytes(raw))).members[0].name == "\ufffd\ufffda"
    (long,) = members_of(stored(tar((member("n" * 100_000), b"")))).members
    assert long.name == "n" * 1024


def bomb(*, expanded_bytes: int) -> bytes:
    """A tar.gz of one file of zeros."""
    info = member("zeros")
    info.size = expanded_bytes
    target, piece = io.BytesIO(), bytes(1 << 20)
    with gzip.GzipFile(fileobj=target, mode="wb", compresslevel=1) as file:
        file.write(info.tobuf())
        block = gzip.compress(piece, 1)
    content = target.getvalue()
    return content + block * (expanded_bytes // len(piece))  # gzip members follow each other


def test_a_bomb_ends_at_the_limit_of_time_and_says_so(stored: Files) -> None:
    path = stored(bomb(expanded_bytes=1 << 36))
    page = members_of(path, cpu_s=0.5)
    assert [each.name for each in page.members] == ["zeros"]
    assert not page.complete
    assert read(path, 0, size=10)[1] == bytes(10)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory_is_refused(stored: Files, kind: bytes) -> None:
    header = member("x", kind)
    header.size = 1 << 34
    path = stored(gzip.compress(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 22)))
    with pytest.raises(ArchiveUnreadable, match="17179869184 bytes; at most 1048576"):
        members_of(path)


def test_headers_of_sparse_files_without_end_stay_within_the_memory(stored: Files) -> None:
    header = bytearray(member("sparse", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    extension = bytearray(struct.pack("12s12s", b"00000000001\0", b"00000000001\0") * 21 + b"\1")
    extension += bytes(512 - len(extension))
    header[482] = 1
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    block = gzip.compress(bytes(extension) * 2048, 1)
    path = stored(gzip.compress(bytes(header)) + block * 2000)
    try:
        page = members_of(path, cpu_s=0.5)
    except ArchiveUnreadable as error:
        assert "memory" in str(error)
    else:
        assert not page.complete
        assert not page.members


def test_what_is_before_the_damage_is_shown(stored: Files) -> None:
    whole = tar(*((member(f"part-{number}"), bytes(range(256)) * 400) for number in range(3)), compression="")
    cut = stored(whole[: len(whole) // 2])
    page = members_of(cut)
    assert [each.name for each in page.members] == ["part-0", "part-1"]
    assert not page.complete
    assert "ReadError" in page.damage
    for content in (b"", b"no archive at all", b"PK\x03\x04 nor a zip", gzip.compress(b"text")):
        with pytest.raises(ArchiveUnreadable):
            members_of(stored(content))
    assert members_of(stored(bytes(1024))).members == ()


def test_an_encrypted_member_is_named_as_such(stored: Files) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("secret", b"x")
    raw = bytearray(target.getvalue())
    for place, offset in ((raw.find(b"PK\x03\x04"), 6), (raw.find(b"PK\x01\x02"), 8)):
        raw[place + offset] |= 1
    with pytest.raises(ArchiveUnreadable, match="encrypted"):
        read(stored(bytes(raw)), 0)
