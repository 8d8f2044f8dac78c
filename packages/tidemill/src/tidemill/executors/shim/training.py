"""A training instance: environment, channels, the runtime, artifacts."""

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core import faults
from tidemill.executors.base import Artifact, InstanceExit, Outcome, RemoteObject, StopReason
from tidemill.executors.environments import Environment
from tidemill.executors.overlays import Overlay, Overlays
from tidemill.executors.sandbox import View
from tidemill.executors.shim.beneath import read_beneath
from tidemill.executors.shim.failures import (
    ClientFailure,
    InstanceFailure,
    InternalFailure,
    algorithm_reason,
    ended_reason,
    of_os_error,
)
from tidemill.executors.shim.feeder import Feeder
from tidemill.executors.shim.objects import copy_channel, is_segment
from tidemill.executors.shim.packing import pack
from tidemill.executors.shim.remote_stores import RemoteStores
from tidemill.executors.shim.session import Session
from tidemill.executors.shim.stopping import Stopped
from tidemill.executors.shim.supervision import Ended, Limits, Running, supervise
from tidemill.executors.uv_command import installer_variables

__all__ = ["run_training"]

_NEEDS_OVERLAY = 75
_REPORT_MAX_BYTES = 64 * 1024
_REQUIREMENTS_MAX_BYTES = 4 * 1024 * 1024
_OUTCOMES = {StopReason.STOPPED: Outcome.STOPPED, StopReason.MAX_RUNTIME: Outcome.MAX_RUNTIME}
_TERMINATION_NOTE = {
    StopReason.STOPPED: "tidemill: stop requested; the script has {grace_s:g} s to save its work",
    StopReason.MAX_RUNTIME: "tidemill: MaxRuntimeInSeconds is reached; the script has {grace_s:g} s to save its work",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trained:
    """How the script ended, and when it ran."""

    outcome: Outcome
    failure: InstanceFailure | None
    started_ms: int
    ended_ms: int
    peak_rss_bytes: int
    overlay_key: str


def run_training(session: Session) -> InstanceExit:
    """Run a training instance to its end.

    Raises:
        InstanceFailure: It failed before the script ran.
        Stopped: A stop was asked for before the script ran.
    """
    environment = session.prepare()
    feeder = _download(session)
    faults.point("shim.downloaded")
    run = _Run(session, environment, feeder)
    trained = run.train()
    if trained.outcome is Outcome.COMPLETED and feeder.failure:
        # A script that reads a FIFO by itself cannot tell that its data ended early.
        trained = replace(trained, outcome=Outcome.FAILED, failure=feeder.failure)
    session.report.enter("Uploading", "Uploading generated training model")
    artifacts, failure = _artifacts(session, trained)
    faults.point("shim.packed")
    return InstanceExit(
        outcome=Outcome.FAILED if failure else trained.outcome,
        failure=str(failure or ""),
        ended_ms=session.clock.now_ms(),
        training_started_ms=trained.started_ms,
        training_ended_ms=trained.ended_ms,
        artifacts=artifacts,
        record=_record(session, environment, run.command, trained.overlay_key),
        peak_rss_bytes=trained.peak_rss_bytes,
    )


class _Run:
    """The runtime, started once, and once more when it asked for packages."""

    def __init__(self, session: Session, environment: Environment, feeder: Feeder) -> None:
        self._session = session
        self._environment = environment
        self._feeder = feeder
        spec = session.spec
        self.command = [str(environment.python), "-m", "tidemill_runtime", "train"]
        if spec.entrypoint:
            self.command += ["--", *spec.entrypoint]
        self._deadline_s: float | None = None
        self._started_ms = 0

    def train(self) -> _Trained:
        session = self._session
        session.report.enter("Training", "The script runs")
        session.stop.check()
        self._started_ms = session.clock.now_ms()
        if session.spec.max_runtime_s:
            self._deadline_s = session.clock.monotonic_s() + session.spec.max_runtime_s
        ended = self._runtime(overlay=None)
        overlay_key = ""
        if ended.exit_code == _NEEDS_OVERLAY and ended.stop is None:
            try:
                overlay = self._overlay()
            except Stopped as stopped:
                return self._trained(replace(ended, stop=stopped.reason), overlay_key)
            except InstanceFailure as failure:
                return self._trained(ended, overlay_key, failure=failure)
            overlay_key = overlay.key
            ended = self._runtime(overlay=overlay)
        return self._trained(ended, overlay_key)

    def _runtime(self, *, overlay: Overlay | None) -> Ended:
        session = self._session
        view = session.view(self._environment)
        # A script with packages of its own starts cold: they may replace what the warm process has imported.
        warm_socket = None if overlay else session.warm_socket
        visible = (overlay.prefix if overlay else None, warm_socket)
        view = replace(view, read_only=(*view.read_only, *(path for path in visible if path)))
        variables = session.variables(self._environment, view, first_on_path=f"{overlay.prefix}/bin" if overlay else "")
        read_fd, write_fd = os.pipe()
        variables["TIDEMILL_CONTROL_FD"] = str(read_fd)
        if overlay:
            variables["TIDEMILL_OVERLAY"] = str(overlay.prefix)
        if warm_socket:
            variables["TIDEMILL_WARM_SOCKET"] = str(warm_socket)
        launch = session.wrap(self.command, view=view, variables=variables)

        def ask(running: Running) -> None:
            reason = session.stop.reason or StopReason.MAX_RUNTIME
            session.log.note(_TERMINATION_NOTE[reason].format(grace_s=session.spec.grace_s))
            running.ask_runtime()

        try:
            with self._feeder.running() as start_feeding:

                def started() -> None:
                    faults.point("shim.launched")
                    start_feeding()

                return supervise(
                    launch,
                    log=session.log,
                    stop=session.stop,
                    clock=session.clock,
                    limits=Limits(grace_s=session.spec.grace_s, deadline_s=self._deadline_s),
                    ask=ask,
                    control=(read_fd, write_fd),
                    # In plain mode only the runtime can end the script's processes: it must outlive the shim for that.
                    dies_with_shim=session.sandbox.name != "plain",
                    started=started,
                )
        except OSError as error:
            raise InternalFailure(f"the runtime cannot be started: {error}") from error

    def _overlay(self) -> Overlay:
        session = self._session
        request = read_beneath(session.directory.private, "needs-overlay.json", max_bytes=_REPORT_MAX_BYTES)
        try:
            wanted = json.loads(request or b"")
            requirements, digest = str(wanted["requirements"]), str(wanted["sha256"])
        except (ValueError, KeyError, TypeError) as error:
            raise InternalFailure(f"the runtime asked for packages without saying which: {error}") from error
        relative = requirements.removeprefix(f"{session.base_dir}/")
        text = read_beneath(session.directory.ml, relative, max_bytes=_REQUIREMENTS_MAX_BYTES)
        # What depends on more than a list of names from a registry is shared by jobs with the same code only.
        shared = text is not None and hashlib.sha256(text).hexdigest() == digest
        code = session.spec.code.sha256 if session.spec.code else ""
        session.log.note(f"tidemill: installing packages of {requirements}")
        started_s = time.monotonic()
        overlay = Overlays(session.task.site.environments_dir / "overlays").ensure(
            self._environment.key,
            (digest, hashlib.sha256(text or b"").hexdigest(), "" if shared else code, session.sandbox.isolation),
            install=lambda prefix: self._install(prefix, requirements),
            log=session.log.note,
            poll=session.stop.check,
        )
        session.log.note(f"tidemill: packages are ready after {time.monotonic() - started_s:.1f} s")
        return overlay

    def _install(self, prefix: Path, requirements: str) -> None:
        session = self._session
        fetching = installer_variables(os.environ)
        view = _with_installer_files(session.view(self._environment), fetching, writable=prefix)
        variables = {**session.variables(self._environment, view), **fetching}
        argv = [str(self._environment.python), "-m", "tidemill_runtime", "install", str(prefix), requirements]
        ended = supervise(
            session.wrap(argv, view=view, variables=variables),
            log=session.log,
            stop=session.stop,
            clock=session.clock,
            limits=Limits(grace_s=0, deadline_s=self._deadline_s),
            ask=Running.kill,
        )
        if ended.stop:
            raise Stopped(ended.stop)
        if ended.exit_code:
            raise _reported(session, ended, command=" ".join(argv[:4]))

    def _trained(self, ended: Ended, overlay_key: str, *, failure: InstanceFailure | None = None) -> _Trained:
        outcome = Outcome.COMPLETED
        if ended.stop:
            outcome, failure = _OUTCOMES[ended.stop], None
        elif failure is not None or ended.exit_code:
            outcome = Outcome.FAILED
            failure = failure or _reported(self._session, ended, command=" ".join(self.command[1:]))
        return _Trained(
            outcome=outcome,
            failure=failure,
            started_ms=self._started_ms,
            ended_ms=self._session.clock.now_ms(),
            peak_rss_bytes=ended.peak_rss_bytes,
            overlay_key=overlay_key,
        )


def _download(session: Session) -> Feeder:
    """Code and channels: copies of those in File mode, the first FIFO of those in Pipe mode."""
    spec = session.spec
    session.report.enter("Downloading", "Downloading input data")
    if spec.code:
        session.fetch(spec.code, "sourcedir.tar.gz")
    pipes, stores = session.task.pipes, RemoteStores(spec.remotes)
    for name in (*session.task.channels, *(f"{pipe.name}_0" for pipe in pipes)):
        if not is_segment(name):
            raise ClientFailure(f"channel name {name[:80]!r} cannot name a directory")
    for name in session.task.channels:
        directory = session.directory.ml / "input/data" / name
        place = f"{session.base_dir}/input/data/{name}"
        try:
            directory.mkdir(parents=True)
            with _downloads(session, stores, place=place) as download:
                listing = session.directory.read_channel(name)
                copy_channel(listing, directory, place=place, check=session.stop.check, download=download)
        except OSError as error:
            raise of_os_error(error, place=place) from error
    session.stop.check()
    try:
        return Feeder(
            session.directory,
            pipes,
            host_index=spec.ref.instance_index,
            num_hosts=len(spec.hosts),
            stores=stores,
            log=session.log.note,
            clock=session.clock,
        )
    except OSError as error:
        raise of_os_error(error, place=f"{session.base_dir}/input/data") from error


@contextlib.contextmanager
def _downloads(session: Session, stores: RemoteStores, *, place: str) -> Iterator[Callable[[RemoteObject, Path], None]]:
    """What downloads remote objects; all of them are there on leaving."""
    if not stores:
        yield _no_store
        return
    from tidemill.executors.shim.downloads import Downloads  # with TLS, which most jobs have no use for

    with Downloads(stores, place=place, check=session.stop.check) as downloads:
        yield downloads.add
        downloads.finish()


def _no_store(entry: RemoteObject, target: Path) -> None:
    raise InternalFailure(f"{entry.uri} is of a remote store that the spec of the instance does not name")


def _artifacts(session: Session, trained: _Trained) -> tuple[dict[str, Artifact], InstanceFailure | None]:
    """Pack what the job left. A model that cannot be packed fails the job; so does output, of one that did well."""
    directory, failure = session.directory, trained.failure
    artifacts: dict[str, Artifact] = {}
    wanted = {"output": "output/data"}
    if trained.outcome is not Outcome.FAILED:
        wanted = {"model": "model", **wanted}
    for name, relative in wanted.items():
        try:
            target = directory.artifacts / f"{name}.tar.gz"
            made = pack(directory.ml, relative, target, place=f"{session.base_dir}/{relative}")
        except InstanceFailure as error:
            session.log.note(f"tidemill: {error}")
            failure = failure or error
        else:
            if made:
                artifacts[name] = made
    if failure:
        artifacts.pop("model", None)
    return artifacts, failure


def _reported(session: Session, ended: Ended, *, command: str) -> InstanceFailure:
    """The reason that the runtime or the script wrote down, else one made of how the process ended."""
    text = read_beneath(session.directory.ml, "output/failure", max_bytes=_REPORT_MAX_BYTES)
    if text:
        return algorithm_reason(text.decode(errors="replace"), peak_rss_bytes=ended.peak_rss_bytes)
    return ended_reason(
        ended.exit_code, stderr_tail=ended.stderr_tail, command=command, peak_rss_bytes=ended.peak_rss_bytes
    )


def _with_installer_files(view: View, fetching: dict[str, str], *, writable: Path) -> View:
    """Let the installer see the files that its variables name: certificates, configuration, local indexes."""
    named = tuple(Path(value) for value in fetching.values() if value.startswith("/") and Path(value).exists())
    return replace(view, read_only=(*view.read_only, *named), writable=(writable,))


def _record(session: Session, environment: Environment, command: list[str], overlay_key: str) -> dict[str, object]:
    spec = session.spec
    return {
        "environment": environment.name,
        "environment_key": environment.key,
        "lock_sha256": environment.lock_sha256,
        "overlay_key": overlay_key,
        "python": platform.python_version(),
        "command": command,
        "code_sha256": spec.code.sha256 if spec.code else "",
        "isolation": str(session.sandbox.isolation),
        "sandbox": session.sandbox.name,
    }
