"""`tidemill gc`: remove unused files, and print how much space that freed."""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill._shared.trees import walk
from tidemill.cli.options import JsonOption, StateDirOption
from tidemill.cli.text import print_json
from tidemill.core.files import read_json
from tidemill.core.sizes import size
from tidemill.errors import printable

if TYPE_CHECKING:
    from tidemill.environments.build_lock import Built
    from tidemill.settings import Settings

app = typer.Typer(add_completion=False)

_DAY_S = 86400
_LONGEST_JOB_DAYS = 28


@app.command()
def gc(
    older_than: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="Remove directories of jobs that ended longer ago than this.")
    ] = 7,
    unused_for: Annotated[
        float,
        typer.Option(
            min=_LONGEST_JOB_DAYS, metavar="DAYS", help="Remove environments and overlays unused for longer than this."
        ),
    ] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    json: JsonOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Remove unfinished and unused environments, unused overlays, old decisions of the training compiler
    and the directories of ended, published jobs.

    Environments of this version of tidemill and everything in use are kept. Models, data and logs are kept too: they
    are in the object store and the log segments.
    """
    from tidemill.cli.service import ServiceChoice

    settings = ServiceChoice.of(state_dir=state_dir).own_for("gc").settings
    removed: list[dict[str, Any]] = []
    remains = False
    for garbage in find_garbage(settings, older_than_days=older_than, unused_for_days=unused_for):
        size_bytes = _size_bytes(garbage.path)
        try:
            if not dry_run and not garbage.remove():
                continue
        except OSError as error:  # what one job left must not keep the rest
            remains = True
            typer.echo(f"tidemill: {printable(garbage.what)} cannot be removed: {error} (in {garbage.path})", err=True)
            continue
        removed.append({"what": printable(garbage.what), "path": str(garbage.path), "size_bytes": size_bytes})
        if not json:
            typer.echo(f"{size(size_bytes):>10}  {printable(garbage.what)}")
    freed_bytes = sum(each["size_bytes"] for each in removed)
    if json:
        print_json({"dry_run": dry_run, "freed_bytes": freed_bytes, "complete": not remains, "removed": removed})
    else:
        typer.echo(f"{'would free' if dry_run else 'freed'} {freed_bytes} bytes ({size(freed_bytes)})")
    if remains:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Garbage:
    """A directory that can be removed.

    Attributes:
        remove: Removes it; returns False if it is in use.
    """

    path: Path
    what: str
    remove: Callable[[], bool]


def find_garbage(
    settings: "Settings", *, older_than_days: float, unused_for_days: float, now_s: float | None = None
) -> Iterator[Garbage]:
    """Find everything that `gc` removes.

    Args:
        now_s: Current time in seconds since the epoch. Default: the system clock.
    """
    from tidemill.environments.builder import Environments
    from tidemill.environments.unused import unused_environments, unused_overlays

    now_s = time.time() if now_s is None else now_s
    directory = settings.environments_dir.absolute()
    overlays = directory / "overlays"
    yield from _unfinished(directory)
    yield from _unfinished(overlays)
    before_s = now_s - unused_for_days * _DAY_S
    for path in unused_overlays(overlays, before_s=before_s):
        yield Garbage(path, f"unused overlay {path.name}", lambda path=path: _clear_unused(path, before_s=before_s))
    for path in unused_environments(directory, Environments(directory), before_s=before_s):
        yield Garbage(path, f"unused environment {path.name}", lambda path=path: _clear_unused(path, before_s=before_s))
    yield from _unused_decisions(settings.state_dir.absolute() / "compiler", before_s=before_s)
    yield from _ended_jobs(settings.state_dir.absolute(), before_s=now_s - older_than_days * _DAY_S)


def _unfinished(directory: Path) -> Iterator[Garbage]:
    for path in _subdirectories(directory):
        if path.name != "overlays" and not path.with_name(f"{path.name}.json").exists():
            yield Garbage(path, f"unfinished environment {path.name}", lambda path=path: _clear_unfinished(path))


def _ended_jobs(state_dir: Path, *, before_s: float) -> Iterator[Garbage]:
    for path in _subdirectories(state_dir / "jobs"):
        record = read_json(path / "published.json")
        if record is not None and record["ended_ms"] / 1000 < before_s:
            # First what the machines of a cluster have reported: the mark that the job has finished is removed last.
            on_cluster = state_dir / "cluster" / "jobs" / path.name
            if on_cluster.is_dir():
                what = f"reports on job {record['name']}"
                yield Garbage(on_cluster, what, lambda path=on_cluster: _remove_tree(path))
            yield Garbage(path, f"directory of job {record['name']}", lambda path=path: _remove_tree(path))


def _unused_decisions(directory: Path, *, before_s: float) -> Iterator[Garbage]:
    """Yield directories of unused compiler decisions. Jobs can write there, so files in them are not opened."""
    for path in _subdirectories(directory):
        times_s = [entry.stat(follow_symlinks=False).st_mtime for entry in (path, *path.iterdir())]
        if max(times_s) < before_s:
            yield Garbage(path, f"unused decisions of the compiler {path.name}", lambda path=path: _remove_tree(path))


def _clear_unfinished(path: Path) -> bool:
    from tidemill.environments.build_lock import Built

    built = Built(path)
    with _locked(built) as locked:
        if not locked or built.marker is not None:
            return False
        built.clear()
        path.with_name(f"{path.name}.lock").unlink()
    return True


def _clear_unused(path: Path, *, before_s: float) -> bool:
    from tidemill.environments.build_lock import Built

    built = Built(path)
    with _locked(built) as locked:
        used_s = built.last_used_s if locked and path.is_dir() else None
        if used_s is None or used_s >= before_s or not built.clear_unless_held():
            return False
        path.with_name(f"{path.name}.lock").unlink()
    return True


@contextlib.contextmanager
def _locked(built: "Built") -> Generator[bool]:
    """Try to take the build lock for a ``with`` block; yield whether it was taken."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(built.locked(poll=_give_up))
        except _InUseError:
            yield False
        else:
            yield True


class _InUseError(Exception):
    """The environment is being built."""


def _give_up() -> None:
    raise _InUseError


def _remove_tree(path: Path) -> bool:
    from tidemill._shared.trees import remove_tree

    remove_tree(path)
    return True


def _subdirectories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())


def _size_bytes(path: Path) -> int:
    """Return the bytes that removing ``path`` frees; files with other hard links elsewhere do not count."""
    total = 0
    for entry in walk(path, on_error=lambda error: None):
        if not entry.is_directory:
            with contextlib.suppress(OSError):
                status = entry.status()
                total += status.st_blocks * 512 if status.st_nlink == 1 else 0
    return total
