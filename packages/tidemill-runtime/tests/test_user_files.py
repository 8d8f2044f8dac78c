"""The files that a script left in a directory."""

from __future__ import annotations

import os
import socket

from tidemill_runtime.archive import MAX_NAME_BYTES
from tidemill_runtime.user_files import files_below


def names_below(directory):
    return [str(path.relative_to(directory)) for path in files_below(directory)]


def test_files_and_links_to_files_are_found_in_order(tmp_path):
    (tmp_path / "b/deep").mkdir(parents=True)
    for name in ("z", "b/deep/file", "a"):
        (tmp_path / name).write_text("x")
    (tmp_path / "to file").symlink_to("a")
    (tmp_path / "to directory").symlink_to("b")
    (tmp_path / "to nothing").symlink_to("missing")
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    assert names_below(tmp_path) == ["a", "b/deep/file", "to file", "z"]


def test_what_is_missing_or_no_directory_has_no_files(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    for name in ("missing", "file", "link"):
        assert names_below(tmp_path / name) == []


def test_paths_that_no_archive_may_have_are_left_out_at_any_depth(tmp_path):
    names = ["d" * 200] * (MAX_NAME_BYTES // 200 + 5)
    directory = os.open(tmp_path, os.O_RDONLY)
    for name in names:
        os.mkdir(name, dir_fd=directory)
        below = os.open(name, os.O_RDONLY, dir_fd=directory)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(directory)
        directory = below
    os.close(directory)
    found = names_below(tmp_path)
    assert found and all(len(name) <= MAX_NAME_BYTES for name in found)
    assert len(found) == MAX_NAME_BYTES // 201, "those that are short enough are all there"
