"""Files that a job left are opened without following links: a link leads to what the service can read, not the job."""

from pathlib import Path

import pytest

from tidemill.shim.beneath import open_beneath, read_beneath


@pytest.fixture
def ml(tmp_path: Path) -> Path:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_bytes(b"of the service")
    ml = tmp_path / "ml"
    (ml / "output").mkdir(parents=True)
    (ml / "output/failure").write_bytes(b"0123456789")
    (ml / "file").symlink_to(tmp_path / "secret/key")
    (ml / "directory").symlink_to(tmp_path / "secret")
    return ml


@pytest.mark.parametrize("relative", ["file", "directory/key"])
def test_a_link_in_any_segment_leads_nowhere(relative: str, ml: Path) -> None:
    with pytest.raises(OSError):
        open_beneath(ml, relative)
    assert read_beneath(ml, relative, max_bytes=100) is None


def test_a_link_to_a_directory_is_no_directory(ml: Path) -> None:
    with pytest.raises(OSError):
        open_beneath(ml, "directory", directory=True)


def test_a_path_that_leads_out_is_refused(ml: Path) -> None:
    with pytest.raises(ValueError, match="leads out"):
        open_beneath(ml, "output/../../secret/key")


@pytest.mark.parametrize(("max_bytes", "read"), [(9, b"012345678"), (10, b"0123456789"), (11, b"0123456789")])
def test_no_more_than_the_limit_is_read(max_bytes: int, read: bytes, ml: Path) -> None:
    assert read_beneath(ml, "output/failure", max_bytes=max_bytes) == read
    assert read_beneath(ml, "output", max_bytes=max_bytes) is None
