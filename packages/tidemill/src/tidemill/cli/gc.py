"""`tidemill gc`: remove what nobody needs any more, and say how much room that made."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.options import StateDirOption, load_settings
from tidemill.cli.text import printable, size
from tidemill.core.files import read_json

if TYPE_CHECKING:
    from tidemill.settings import Settings

__all__ = ["Garbage", "app", "find_garbage"]

app = typer.Typer()

_DAY_S = 86400
_LONGEST_JOB_DAYS = 28


@app.command()
def gc(
    older_than: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="Directories of jobs that ended so long ago.")
    ] = 7,
    unused_for: Annotated[
        float,
        typer.Option(min=_LONGEST_JOB_DAYS, metavar="DAYS", help="Requirement overlays that no job took for so long."),
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    state_dir: StateDirOption = None,
) -> None:
    """Remove unfinished environments, unused overlays and the directories of ended, published jobs.

    Models, data and logs stay: they are in the object store and the log segments.
    """
    settings = load_settings(state_dir=state_dir)
    freed_bytes = 0
    for garbage in find_garbage(settings, older_than_days=older_than, unused_for_days=unused_for):
        size_bytes = _size_bytes(garbage.path)
        if not dry_run and not garbage.remove():
            continue
        freed_bytes += size_bytes
        typer.echo(f"{size(size_bytes):>10}  {printable(garbage.what)}")
    typer.echo(f"{'would free' if dry_run else 'freed'} {freed_bytes} bytes ({size(freed_bytes)})")


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something that may go.

    Attributes:
        remove: Removes it; answers False when it turned out to be in use.
    """

    path: Path
    what: str
    remove: Callable[[], bool]


def find_garbage(
    settings: "Settings", *, older_than_days: float, unused_for_days: float, now_s: float | None = None
) -> Iterator[Garbage]:
    """What may go by the rules of `gc`.

    Args:
        now_s: Seconds since the epoch; the default asks the clock.
    """
    now_s = time.time() if now_s is None else now_s
    environments = settings.environments_dir.absolute()
    yield from _unfinished(environments)
    yield from _unfinished(environments / "overlays")
    yield from _unused(environments / "overlays", before_s=now_s - unused_for_days * _DAY_S)
    yield from _ended_jobs(settings.state_dir.absolute() / "jobs", before_s=now_s - older_than_days * _DAY_S)


def _unfinished(directory: Path) -> Iterator[Garbage]:
    for path in _subdirectories(directory):
        if path.name != "overlays" and not _marker(path).exists():
            yield Garbage(path, f"unfinished environment {path.name}", lambda path=path: _clear(path, unfinished=True))


def _unused(directory: Path, *, before_s: float) -> Iterator[Garbage]:
    if directory.is_dir() and os.statvfs(directory).f_flag & os.ST_NOATIME:
        # When an overlay was last taken cannot be known here.
        return
    for path in _subdirectories(directory):
        if not _marker(path).exists():
            continue
        # Each job that takes an overlay reads its marker, and the kernel keeps that time to the day. For the same
        # reason nothing here reads it.
        status = _marker(path).stat()
        if max(status.st_atime, status.st_mtime) < before_s:
            yield Garbage(path, f"unused overlay {path.name}", lambda path=path: _clear(path, unfinished=False))


def _ended_jobs(directory: Path, *, before_s: float) -> Iterator[Garbage]:
    for path in _subdirectories(directory):
        record = read_json(path / "published.json")
        if record is not None and record["ended_ms"] / 1000 < before_s:
            yield Garbage(path, f"directory of job {record['name']}", lambda path=path: _remove_tree(path))


def _clear(path: Path, *, unfinished: bool) -> bool:
    from tidemill.executors.build_lock import Built

    built = Built(path)
    try:
        with built.locked(poll=_give_up):
            if unfinished and built.marker is not None:
                return False
            built.clear()
    except _InUseError:
        return False
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    return True


class _InUseError(Exception):
    """It is being built at this moment."""


def _give_up() -> None:
    raise _InUseError


def _remove_tree(path: Path) -> bool:
    from tidemill.executors.build_lock import remove_tree

    remove_tree(path)
    return True


def _marker(path: Path) -> Path:
    """What stands beside a complete environment or overlay."""
    return path.with_name(f"{path.name}.json")


def _subdirectories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())


def _size_bytes(path: Path) -> int:
    """Bytes on disk that removing ``path`` frees: files that have other names elsewhere stay, and count nothing."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            status = (Path(directory) / name).lstat()
            if status.st_nlink == 1:
                total += status.st_blocks * 512
    return total
