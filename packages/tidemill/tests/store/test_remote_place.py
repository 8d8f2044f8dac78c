"""Contents in another S3, without one: their names, and the copies on this machine."""

import os
import time
from pathlib import Path

import pytest

from tidemill.store.objects.local_copies import LocalCopies
from tidemill.store.objects.remote_place import content_name

MARK = "0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("b/job/output/model.tar.gz", "b/job/output/model.MARK.tar.gz"),
        ("b/weights", "b/weights.MARK"),
        ("b/.hidden", "b/.hidden.MARK"),
        ("b/folder/", "b/folder/%2F.MARK"),
        ("b/../a//./x.y", "b/%2E%2E/a/%2F/%2E/x.MARK.y"),
        ("b/line\nend.txt", "b/line%0Aend.MARK.txt"),
        ("b/größe 1+2.csv", "b/größe 1+2.MARK.csv"),
    ],
)
def test_a_content_has_the_name_of_its_key_and_a_mark(name: str, expected: str) -> None:
    assert content_name(name, MARK, prefix="p") == expected.replace("MARK", MARK)


@pytest.mark.parametrize("letter", ["k", "ü", "字"])
def test_a_name_that_would_be_too_long_is_cut_between_two_letters(letter: str) -> None:
    name = content_name(f"bucket/{letter * (1024 // len(letter.encode()))}", MARK, prefix="some/prefix")
    whole = len(f"some/prefix/{name}".encode())
    assert 1024 - len(letter.encode()) < whole <= 1024
    assert name.endswith(f"{letter}.{MARK}")


def test_copies_that_were_not_used_for_longest_go_first_but_not_those_in_use(tmp_path: Path) -> None:
    copies = LocalCopies(tmp_path / "copies", max_bytes=2500)
    copies.make_directories()
    source = tmp_path / "source"
    source.write_bytes(bytes(1000))
    old_s = time.time() - 1000
    for age, name in enumerate(("newest", "second", "third", "linked", "oldest")):
        copies.keep(name, source)
        copies.path(name).unlink()
        copies.path(name).write_bytes(bytes(1000))
        os.utime(copies.path(name), (old_s - age, old_s - age))
    (tmp_path / "of-a-job").hardlink_to(copies.path("linked"))
    copies.path("fetched").write_bytes(b"just now")
    part = copies.path("cut").with_suffix(".part")
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    assert copies.trim() == 4
    there = [
        name for name in ("newest", "second", "third", "linked", "oldest", "fetched") if copies.path(name).exists()
    ]
    assert there == ["newest", "linked", "fetched"]
    assert not part.exists()
