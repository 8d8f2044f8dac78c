"""Trees of any depth: walked and removed with few open files, without long paths, and without following links."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemill._shared.trees import remove_tree, walk

DEPTH = 1500


def nest(top: Path, depth: int, name: str = "d") -> None:
    """Make nested directories with a file in each. The paths become too long for the kernel."""
    top.mkdir(exist_ok=True)
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=fd))
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


@pytest.fixture
def few_open_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())  # other tests of this process leave some
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("few_open_files")
def test_a_deep_tree_is_walked_in_both_orders_and_removed(
    tmp_path: Path, files_open_below: Callable[[Path], list[str]]
) -> None:
    nest(tmp_path / "top", DEPTH, "directory-with-a-name")
    assert [entry.is_directory for entry in walk(tmp_path / "top")] == [True] * DEPTH + [False] * DEPTH
    assert [entry.is_directory for entry in walk(tmp_path / "top", contents_first=True)] == [True, False] * DEPTH
    deepest = max(len(entry.path) for entry in walk(tmp_path / "top"))
    assert deepest == DEPTH * len("directory-with-a-name/") - 1 > 4096
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []
    assert files_open_below(tmp_path) == []


def test_names_are_sorted_and_long_paths_are_left_out_with_everything_below(tmp_path: Path) -> None:
    for name in ("b", "a/2", "a/1", "a/long/x", "c/é"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [entry.path for entry in walk(tmp_path)] == ["a", "a/1", "a/2", "a/long", "a/long/x", "b", "c", "c/é"]
    left_out: list[str] = []
    kept = [entry.path for entry in walk(tmp_path, max_path_bytes=3, left_out=lambda e: left_out.append(e.path))]
    assert (kept, left_out) == (["a", "a/1", "a/2", "b", "c"], ["a/long", "c/é"])


def test_a_walk_goes_on_at_the_upper_levels_if_a_deep_directory_is_moved_meanwhile(tmp_path: Path) -> None:
    nest(tmp_path / "top", 60)
    (tmp_path / "top/d/last").touch()
    errors: list[OSError] = []
    deep = tmp_path / "top" / "/".join("d" * 50)
    seen = []
    for entry in walk(tmp_path / "top", on_error=errors.append):
        seen.append(entry.path)
        if len(seen) == 60:
            deep.rename(tmp_path / "elsewhere")
    assert [str(error) for error in errors] == [
        f"[Errno {errors[0].errno}] a directory was moved while its content was read"
    ]
    assert "d/last" in seen
    assert (tmp_path / "elsewhere").is_dir()


def test_removal_follows_no_link_and_goes_on_after_what_cannot_be_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "top").mkdir()
    for name in ("a", "b", "c"):
        nest(tmp_path / "top" / name, 2)
    (tmp_path / "top/link").symlink_to(tmp_path / "kept")
    before = os.unlink
    refused = (tmp_path / "top/b/file").stat().st_ino

    def unlink(name: str, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None and os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_ino == refused:
            raise PermissionError(1, "Operation not permitted", name)
        before(name, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        with pytest.raises(PermissionError, match="Operation not permitted"):
            remove_tree(tmp_path / "top")
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == [
        Path("kept"),
        Path("kept/file"),
        Path("top"),
        Path("top/b"),
        Path("top/b/file"),
    ]
    remove_tree(tmp_path / "top")
    assert not (tmp_path / "top").exists()
    remove_tree(tmp_path / "top")  # of nothing


def test_directories_without_permissions_are_removed_without_privileges(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir(mode=0o755)
    nest(tmp_path / "top", 3)
    (tmp_path / "top/d/link").symlink_to(tmp_path / "outside")
    for path, mode in ((tmp_path / "top/d/d", 0), (tmp_path / "top/d", 0), (tmp_path / "top", 0o500)):
        path.chmod(mode)
    code = "import sys; from pathlib import Path; from tidemill._shared.trees import remove_tree\n"
    command = [sys.executable, "-c", code + "remove_tree(Path(sys.argv[1]))", str(tmp_path / "top")]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is not installed, and root ignores permissions")
        command = ["setpriv", "--bounding-set=-all", *command]
    subprocess.run(command, check=True)
    assert not (tmp_path / "top").exists()
    assert (tmp_path / "outside").stat().st_mode & 0o777 == 0o755
