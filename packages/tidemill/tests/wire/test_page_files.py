"""The files of the page as they are sent, from a build of this test."""

import gzip
import os
from pathlib import Path

import pytest

from tidemill.wire.page.files import PageFiles
from tidemill.wire.reply import HttpReply

ORIGIN = "http://127.0.0.1:8780"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<title>one</title>")
    (tmp_path / "assets/index-1.js").write_text("run()")
    (tmp_path / "assets/notes.txt").write_text("no file of a build")
    return tmp_path


def get(files: PageFiles, path: str, *, accepts_gzip: bool = False, origin: str = ORIGIN) -> HttpReply:
    return files.reply(path, accepts_gzip=accepts_gzip, origin=origin)


def test_without_a_build_the_page_says_so_in_one_line(tmp_path: Path) -> None:
    reply = get(PageFiles(tmp_path / "page"), "jobs")
    assert reply.status == 503
    assert dict(reply.headers)[b"content-type"].startswith(b"text/plain")
    assert isinstance(reply.body, bytes)
    assert reply.body.count(b"\n") == 1
    assert b"make page" in reply.body


def test_every_view_is_the_index_and_only_built_files_are_assets(built: Path) -> None:
    files = PageFiles(built)
    for path in ("", "jobs", "data/bucket/assets/index-1.js", "index.html", "..", "%2e%2e/settings.py"):
        assert get(files, path).body == b"<title>one</title>", path
    assert get(files, "assets/index-1.js").body == b"run()"
    for path in ("assets/", "assets/notes.txt", "assets/../index.html", "assets/index-1.js/", "assets/none.js"):
        assert get(files, path).status == 404, path


def test_files_are_compressed_for_those_who_take_it(built: Path) -> None:
    reply = get(PageFiles(built), "assets/index-1.js", accepts_gzip=True)
    assert isinstance(reply.body, bytes)
    assert gzip.decompress(reply.body) == b"run()"
    assert dict(reply.headers)[b"content-encoding"] == b"gzip"
    assert dict(reply.headers)[b"vary"] == b"accept-encoding"


def test_a_new_build_is_sent_by_a_service_that_runs(built: Path) -> None:
    files = PageFiles(built)
    get(files, "jobs")
    (built / "assets/index-1.js").rename(built / "assets/index-2.js")
    (built / "index.html").write_text("<title>two</title>")
    os.utime(built / "index.html", ns=(1, 1))
    assert get(files, "jobs").body == b"<title>two</title>"
    assert get(files, "assets/index-2.js").status == 200
    assert get(files, "assets/index-1.js").status == 404
    (built / "index.html").unlink()
    assert get(files, "jobs").status == 503


def test_scripts_come_from_the_folder_of_the_build_alone(built: Path) -> None:
    files = PageFiles(built)
    policy = dict(get(files, "jobs").headers)[b"content-security-policy"].decode()
    assert f"script-src {ORIGIN}/_tidemill/assets/; style-src {ORIGIN}/_tidemill/assets/;" in policy
    # The syntax of policies has no IPv6 addresses.
    policy = dict(get(files, "jobs", origin="http://[::1]:8780").headers)[b"content-security-policy"].decode()
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
