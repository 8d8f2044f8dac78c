"""Channels in File and FastFile mode: views of the store's objects without a copy, and downloads of remote objects.

A view is a directory of hard links to the store's files. Jobs with the same files share one if the files are many. A
job sees it through an overlay, which keeps the job's writes apart, or read-only if the machine has no overlay. The
directory of links itself is hidden from the job. A shared view has two parts if an overlay can show them as one.
"""

import contextlib
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.core import faults
from tidemill.core.instances import Isolation
from tidemill.environments.build_lock import Built
from tidemill.instance.object_rows import FileRow
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import PROCESSING, Entry, ObjectFile, RemoteObject
from tidemill.sandbox import Overlay, View, overlay_fault
from tidemill.shim.failures import InternalFailure, of_os_error
from tidemill.shim.link_parts import PARTS, link_in_parts
from tidemill.shim.objects import Cloner, Download, Placer, copy_channel, link_channel, link_object
from tidemill.shim.session import InstanceSession
from tidemill.shim.shared_links import LinkDirectories

_DATA = "input/data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """The mounts that show a job its channels, besides the files below ``/opt/ml``.

    Attributes:
        overlays: Writable views; writes stay with the job.
        covers: Views that are mounted read-only: the directory of links, and its place below ``/opt/ml``.
        shared: Directories of links that other instances may use, too.
    """

    overlays: tuple[Overlay, ...] = ()
    covers: tuple[tuple[Path, str], ...] = ()
    shared: tuple[Built, ...] = ()

    def added_to(self, view: View) -> View:
        """Return ``view`` with these mounts.

        Args:
            view: What a command may see.
        """
        return replace(view, overlays=(*view.overlays, *self.overlays), covers=(*view.covers, *self.covers))

    def note_use(self) -> None:
        """Record a use of the shared directories, so that they are kept for the next job."""
        for links in self.shared:
            links.note_use()


def bring_channels(session: InstanceSession, stores: RemoteStores) -> Channels:
    """Provide the objects of all channels that are not in Pipe mode.

    Raises:
        ClientFailure: A key is not a path below its channel or collides with another key, an object cannot be
            downloaded, or the disk is full.
        InternalFailure: A file of the store is missing or damaged.
        Stopped: A stop was requested.
    """
    views: dict[str, Overlay] = {}
    trial = _OverlayTrial(session)
    cloned: list[str] = []
    copied: list[str] = []
    shared: list[Built] = []
    for number, name in enumerate(session.task.channels):
        place = f"{session.base_dir}/{_path_of(session, name)}"
        try:
            if name in session.task.shared:
                views[name], links = _share(session, name, number, place=place, in_parts=not trial.fault)
                shared.append(links)
                continue
            view = _bring(session, name, number, stores, place=place, trial=trial)
        except OSError as error:
            raise of_os_error(error, place=place) from error
        if view.is_view:
            views[name] = view.overlay
        elif view.is_clone:
            cloned.append(name)
        elif view.is_copy:
            copied.append(name)
    if cloned:
        session.log.note(f"tidemill: {_named(cloned)} not copied (reflink; what the script writes stays with the job)")
    if copied:
        session.log.note(f"tidemill: {_named(copied)} copied (isolation={session.sandbox.isolation})")
    return replace(_shown(session, views, trial), shared=tuple(shared))


def _share(session: InstanceSession, name: str, number: int, *, place: str, in_parts: bool) -> tuple[Overlay, Built]:
    """Provide one channel as a view of links that instances with the same objects share."""
    check = session.stop.check
    overlay = Overlay(
        directory=session.directory.views / str(number),
        target=session.directory.ml / _path_of(session, name),
        parts=PARTS if in_parts else (),
    )

    def read() -> Iterator[Sequence[FileRow]]:
        return session.directory.read_shared_channel(name)

    def fill(directory: Path) -> None:
        if in_parts:
            link_in_parts(read, directory, place=place, check=check)
        else:
            link_channel(read(), directory, place=place, check=check)
        faults.point("shim.linked")

    directories = LinkDirectories(session.task.site.state_dir)
    links = directories.filled(session.task.shared[name], fill, in_parts=in_parts, poll=check)
    overlay.target.mkdir(parents=True)
    for part in (Overlay.WRITES, Overlay.WORK):
        (overlay.directory / part).mkdir(parents=True)
    (overlay.directory / Overlay.FILES).symlink_to(links.directory)
    return overlay, links


@dataclass(slots=True)
class _Brought:
    """How the objects of a channel were provided: by links, by sharing their blocks, or by copies."""

    overlay: Overlay
    is_view: bool = False
    is_clone: bool = False
    is_copy: bool = False


def _bring(
    session: InstanceSession, name: str, number: int, stores: RemoteStores, *, place: str, trial: "_OverlayTrial"
) -> _Brought:
    """Provide one channel: as a view if the store has its objects."""
    target = session.directory.ml / _path_of(session, name)
    target.mkdir(parents=True)
    overlay = Overlay(directory=session.directory.views / str(number), target=target)
    brought, directory = _Brought(overlay), target
    listing = session.directory.read_channel(name)
    first = next(listing, None)
    if isinstance(first, ObjectFile):
        brought.is_view = not _must_be_copied(session, name, trial)
    if brought.is_view:
        for part in (Overlay.FILES, Overlay.WRITES, Overlay.WORK):
            (overlay.directory / part).mkdir(parents=True)
        directory = overlay.directory / Overlay.FILES
    cloner = Cloner()
    place_object: Placer = link_object if brought.is_view else cloner
    entries: Iterator[Entry] = listing if first is None else chain([first], listing)
    with downloading(session, stores, place=place) as download:
        check = session.stop.check
        copy_channel(entries, directory, place=place, check=check, download=download, place_object=place_object)
    brought.is_copy = cloner.has_copied
    brought.is_clone = isinstance(first, ObjectFile) and not brought.is_view and not cloner.has_copied
    return brought


def _must_be_copied(session: InstanceSession, name: str, trial: "_OverlayTrial") -> bool:
    """Return whether a channel cannot be a view: nothing is mounted, or the script must be able to write to it.

    Scripts unpack code beside the archive in the input of a processing job, which a view without an overlay forbids.
    """
    if session.sandbox.isolation is Isolation.PLAIN or name in session.spec.copied_channels:
        return True
    return session.spec.kind == PROCESSING and bool(trial.fault)


class _OverlayTrial:
    """Finds out whether overlays work here, by mounting one, when `fault` is first read."""

    def __init__(self, session: InstanceSession) -> None:
        self._directory = session.directory.views / "trial"

    @cached_property
    def fault(self) -> str:
        """Why overlays do not work here; empty if they do."""
        overlay = Overlay(directory=self._directory, target=self._directory / "target")
        for each in (Overlay.FILES, Overlay.WRITES, Overlay.WORK, overlay.target.name):
            (overlay.directory / each).mkdir(parents=True)
        try:
            return overlay_fault(overlay)
        finally:
            remove_tree(overlay.directory)


def _shown(session: InstanceSession, views: dict[str, Overlay], trial: _OverlayTrial) -> Channels:
    """Choose how ``views`` are shown, and note it in the job's log."""
    if not views:
        return Channels()
    fault = trial.fault
    if not fault:
        session.log.note(f"tidemill: {_named(views)} not copied (overlay; what the script writes stays with the job)")
        return Channels(overlays=tuple(views.values()))
    session.log.note(f"tidemill: {_named(views)} not copied (read-only, since overlays do not work here: {fault})")
    # Resolve the paths: a sandbox has another root directory, in which a link to a shared directory does not work.
    shown = (((view.directory / Overlay.FILES).resolve(), _path_of(session, name)) for name, view in views.items())
    return Channels(covers=tuple(shown))


def _path_of(session: InstanceSession, name: str) -> str:
    """Return the directory of a channel, relative to ``/opt/ml``."""
    return session.spec.channel_paths.get(name, f"{_DATA}/{name}")


def _named(names: Collection[str]) -> str:
    return f"channel{'s' if len(names) > 1 else ''} {', '.join(names)}"


@contextlib.contextmanager
def downloading(session: InstanceSession, stores: RemoteStores, *, place: str) -> Generator[Download]:
    """Yield a `Download` for objects of remote S3 stores. Leaving the context waits for all downloads.

    Args:
        session: The instance, whose stop request ends the downloads.
        stores: The remote stores. Without any, the `Download` refuses all objects.
        place: Directory of the files as the job sees it, for messages.
    """
    if not stores:
        yield _NoStore()
        return
    from tidemill.shim.downloads import Downloads  # imports TLS, which most jobs do not need

    with Downloads(stores, place=place, check=session.stop.check) as downloads:
        yield downloads
        downloads.finish()


class _NoStore:
    """Refuses downloads, for a spec that names no remote store."""

    def add(self, entry: RemoteObject, target: Path) -> None:
        raise InternalFailure(f"{entry.uri} is of a remote store that the spec of the instance does not name")

    def add_copy(self, source: ObjectFile, target: Path, place_object: Placer) -> None:
        raise InternalFailure(f"{source.uri} is in a remote store that the spec of the instance does not name")
