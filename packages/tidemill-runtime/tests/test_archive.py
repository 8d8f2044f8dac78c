"""The extractor with hostile archives, and some valid ones."""

import gzip
import io
import os
import stat
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill_runtime.__main__ import main
from tidemill_runtime.archive import ArchiveLimits, extract
from tidemill_runtime.errors import InvalidArchive


def member(name, *, data=b"", kind=tarfile.REGTYPE, link="", mode=0o644):
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.mode, header.size = kind, link, mode, len(data)
    return header, data


def symlink(name, target):
    return member(name, kind=tarfile.SYMTYPE, link=target)


def archive(path, *members, form=tarfile.PAX_FORMAT):
    with tarfile.open(path, "w:gz", format=form, compresslevel=1) as tar:
        for header, data in members:
            tar.addfile(header, io.BytesIO(data))
    return path


@pytest.fixture
def place(tmp_path):
    """Return an archive path, and a destination below a directory in which nothing else may appear."""
    outside = tmp_path / "outside"
    outside.mkdir()
    return tmp_path / "a.tar.gz", outside / "deep" / "in"


LONG = "/".join(["d" * 247] * 16)

HOSTILE = {
    "parent": [member("../x", data=b"x")],
    "parent in the middle": [member("a/../../x", data=b"x")],
    "absolute path": [member("/tmp/x", data=b"x")],
    "absolute symlink": [symlink("l", "/etc/passwd")],
    "symlink out": [symlink("l", "../../x")],
    "symlink, then written through": [symlink("l", ".."), member("l/x", data=b"x")],
    "symlink chain": [symlink("a", "b/.."), symlink("b", "c"), symlink("c", "."), member("a/x", data=b"x")],
    "symlink through a symlink": [member("d/e/f", data=b""), symlink("s", "d/e"), symlink("l", "s/../../x")],
    "symlink loop": [symlink("a", "b"), symlink("b", "a")],
    "hard link out": [member("h", kind=tarfile.LNKTYPE, link="../../etc/passwd")],
    "hard link absolute": [member("h", kind=tarfile.LNKTYPE, link="/etc/passwd")],
    "hard link to a symlink": [symlink("s", "x"), member("h", kind=tarfile.LNKTYPE, link="s")],
    "character device": [member("d", kind=tarfile.CHRTYPE)],
    "block device": [member("d", kind=tarfile.BLKTYPE)],
    "fifo": [member("f", kind=tarfile.FIFOTYPE)],
    "long path": [symlink(LONG + "/l", "../" * 16), member(LONG + "/l/x", data=b"x")],
    "long segment": [member("s" * 256, data=b"x")],
    "duplicate": [member("a", data=b"1"), member("a", data=b"2")],
    "duplicate of a link": [symlink("a", "b"), member("a", data=b"2")],
    "file as directory": [member("a", data=b"1"), member("a/b", data=b"2")],
    "unknown type": [member("u", kind=b"Z")],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_archive_is_refused_and_nothing_is_written(place, name):
    path, directory = place
    archive(path, member("innocent", data=b"1"), *HOSTILE[name])
    with pytest.raises(InvalidArchive):
        extract(path, directory)
    outside = directory.parent.parent
    assert sorted(str(p.relative_to(outside)) for p in outside.rglob("*")) == ["deep", "deep/in"]


def test_setuid_setgid_and_sticky_are_dropped(place):
    path, directory = place
    extract(archive(path, member("s", data=b"x", mode=0o7755)), directory)
    assert stat.S_IMODE((directory / "s").stat().st_mode) == 0o755


def test_a_decompression_bomb_is_refused_at_the_limit(place):
    path, directory = place
    archive(path, member("zeros", data=bytes(20 << 20)))
    with pytest.raises(InvalidArchive, match="expands over 1000000 bytes"):
        extract(path, directory, limits=ArchiveLimits(max_bytes=1_000_000))
    assert not any(directory.iterdir())


def test_a_bomb_after_the_end_of_the_archive_is_refused(place):
    path, directory = place
    archive(path, member("a", data=b"1"))
    path.write_bytes(path.read_bytes() + gzip.compress(bytes(20 << 20)))
    with pytest.raises(InvalidArchive, match="expands over"):
        extract(path, directory, limits=ArchiveLimits(max_bytes=1_000_000))


def test_too_many_empty_members_are_refused(place):
    path, directory = place
    archive(path, *(member(f"m{number}") for number in range(101)))
    with pytest.raises(InvalidArchive, match="too many entries"):
        extract(path, directory, limits=ArchiveLimits(max_entries=100))
    extract(path, directory, limits=ArchiveLimits(max_entries=101))


def test_a_million_empty_members_are_refused_before_they_are_read(place):
    path, directory = place
    block = member("d/", kind=tarfile.DIRTYPE)[0].tobuf()
    path.write_bytes(gzip.compress(block * 1000, 1) * 1000)
    assert ArchiveLimits().max_entries < 1_000_000
    with pytest.raises(InvalidArchive, match="too many entries"):
        extract(path, directory, limits=ArchiveLimits(max_entries=10_000))


def test_a_header_that_claims_a_huge_name_is_not_read_into_memory(place):
    path, directory = place
    archive(path, member("././@LongLink", data=b"n" * (3 << 20), kind=tarfile.GNUTYPE_LONGNAME), member("x"))
    with pytest.raises(InvalidArchive, match="header"):
        extract(path, directory)


def zip_file() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a", "x")
    return buffer.getvalue()


@pytest.mark.parametrize("data", [b"", b"not an archive", zip_file(), gzip.compress(b"no tar" * 200, mtime=0)])
def test_the_error_says_that_a_file_is_not_a_gzip_tar(place, data):
    path, directory = place
    path.write_bytes(data)
    with pytest.raises(InvalidArchive, match="not a gzip tar"):
        extract(path, directory)


def test_every_truncation_is_noticed(place):
    path, directory = place
    whole = archive(path, member("a", data=os.urandom(3000)), member("b", data=b"2")).read_bytes()
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidArchive, match="not a gzip tar"):
            extract(path, directory)
        assert not any(directory.iterdir())


def test_a_damaged_header_is_not_read_as_the_end(place):
    path, directory = place
    tar = bytearray(gzip.decompress(archive(path, member("a", data=b"1"), member("b", data=b"2")).read_bytes()))
    tar[1024 + 150] ^= 0x55
    path.write_bytes(gzip.compress(bytes(tar)))
    with pytest.raises(InvalidArchive, match="damaged"):
        extract(path, directory)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_valid_archive_is_extracted_unchanged(place, form):
    path, directory = place
    long = "dir/" + "n" * 90 + "/" + "m" * 90
    archive(
        path,
        member("./", kind=tarfile.DIRTYPE, mode=0o755),
        member("./train.py", data=b"print()", mode=0o755),
        member("lib/libx.so.1.2", data=b"elf"),
        symlink("lib/libx.so.1", "libx.so.1.2"),
        symlink("lib/libx.so", "libx.so.1"),
        symlink("lib/up", "../train.py"),
        member("lib/hard", kind=tarfile.LNKTYPE, link="./train.py"),
        member(long, data=b"long"),
        form=form,
    )
    extract(path, directory)
    assert (directory / "lib/libx.so").read_bytes() == b"elf"
    assert (directory / "lib/up").read_bytes() == b"print()"
    assert (directory / "lib/hard").stat().st_ino == (directory / "train.py").stat().st_ino
    assert (directory / long).read_bytes() == b"long"
    assert stat.S_IMODE((directory / "train.py").stat().st_mode) == 0o755


def test_an_existing_link_in_the_destination_is_not_followed(place):
    path, directory = place
    directory.mkdir(parents=True)
    (directory / "l").symlink_to("..")
    archive(path, member("l/x", data=b"x"))
    with pytest.raises(InvalidArchive):
        extract(path, directory)
    assert not (directory.parent / "x").exists()


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c"]), min_size=1, max_size=5).map("/".join)
MEMBERS = st.one_of(
    st.builds(lambda name: member(name, data=b"x"), NAMES),
    st.builds(symlink, NAMES, NAMES),
    st.builds(lambda name, link: member(name, kind=tarfile.LNKTYPE, link=link), NAMES, NAMES),
    st.builds(lambda name: member(name, kind=tarfile.DIRTYPE), NAMES),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(MEMBERS, max_size=7))
def test_no_archive_writes_outside_its_destination(tmp_path_factory, members):
    outside = tmp_path_factory.mktemp("outside")
    directory = outside / "deep" / "in"
    path = archive(outside.parent / f"{outside.name}.tar.gz", *members)
    try:
        extract(path, directory)
    except InvalidArchive:
        assert not any(directory.iterdir())
    assert [p.name for p in outside.iterdir()] == ["deep"]
    assert [p.name for p in directory.parent.iterdir()] == ["in"]
    for found in directory.rglob("*"):
        inside = Path(os.path.realpath(found))
        assert inside == directory or directory in inside.parents


def test_the_command_prints_one_line_and_fails(place, this_python):
    path, directory = place
    archive(path, member("../x", data=b"x"))
    command = [this_python, "-m", "tidemill_runtime", "extract", str(path), str(directory)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr == "InvalidArchive: member '../x' leaves the directory\n"
    archive(path, member("x", data=b"12345678"))
    assert subprocess.run([*command, "--max-bytes", "100"], capture_output=True, check=False).returncode == 1
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert (directory / "x").read_bytes() == b"12345678"


def test_a_long_unpacking_shows_its_progress_in_the_log(place, monkeypatch, capsys):
    monkeypatch.setattr("tidemill_runtime.archive.SHOWN_EVERY_S", 0.0)
    path, directory = place
    archive(path, member("a", data=os.urandom(3_000_000)), member("b", data=b"b"))
    assert main(["extract", str(path), str(directory)]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("\r")
    first, *_, last = shown.split("\r")[:-1]
    assert first.startswith(f"tidemill: unpacking {directory}: 0 MB, ")
    assert last == f"tidemill: unpacking {directory}: 3 MB, 100% of the archive, 0 s left"


def test_a_short_unpacking_shows_nothing(place, capsys):
    path, directory = place
    archive(path, member("a", data=b"a"))
    assert main(["extract", str(path), str(directory)]) == 0
    assert capsys.readouterr().out == ""
