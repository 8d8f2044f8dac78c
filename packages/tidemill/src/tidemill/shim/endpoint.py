"""An instance of an endpoint: unpacks the model, and keeps the model server running until a stop is requested."""

import contextlib
import os
import platform
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core import faults
from tidemill.core.instances import Isolation
from tidemill.environments.builder import JobEnvironment
from tidemill.instance.spec import ObjectFile
from tidemill.instance.status import InstanceExit, InstanceOutcome
from tidemill.shim.archives import extract, run_to_end
from tidemill.shim.cgroup import Cgroup
from tidemill.shim.failures import AlgorithmFailure, of_os_error
from tidemill.shim.limits import LimitWatch, chosen_cpus
from tidemill.shim.packages import Installed, Needs, Packages, record_of
from tidemill.shim.session import InstanceSession
from tidemill.shim.shared_models import shared_model
from tidemill.shim.supervision import CommandEnd, CommandLimits, Running, supervise

_CRASHES = 5
_CRASH_WINDOW_S = 60.0
_FIRST_PAUSE_S = 0.1
_LONGEST_ANSWER_MS = "3600000"
_LAST_LINES = 12
_SOCKET = "serving.sock"
_MODEL, _MODELS = "model", "models"
_ADDRESS_MAX_BYTES = 107
_REQUIREMENTS = "SAGEMAKER_REQUIREMENTS"
_OF_CODE = ("SAGEMAKER_PROGRAM", _REQUIREMENTS)
"""Variables of a request that name files of the code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServing:
    """How to run the model server of an instance.

    Attributes:
        models: Directory of the model, or of the models of a multi-model endpoint, relative to ``/opt/ml``.
        port: Loopback port to listen on, 0 for a free one; None listens on the instance's unix socket.
        most_ends: Number of exits of the server within a minute after which the instance fails.
    """

    models: str = "model"
    port: int | None = None
    most_ends: int = _CRASHES


def run_endpoint(session: InstanceSession) -> InstanceExit:
    """Serve until a stop is requested.

    Raises:
        InstanceFailure: The model cannot be unpacked, or the server keeps ending.
        Stopped: A stop was requested while no server ran.
    """
    environment = session.prepare()
    with _unpacked(session, environment) as ready:
        faults.point("shim.downloaded")
        return _serve(ready, environment)


def _serve(session: InstanceSession, environment: JobEnvironment) -> InstanceExit:
    started_ms = session.clock.now_ms()
    session.report.enter("Serving", "The model server is running")
    # The server of a multi-model endpoint starts without a model; requests load models.
    models = _MODEL if session.task.model is not None else _MODELS
    installed = keep_serving(session, environment, ModelServing(models=models))
    return InstanceExit(
        outcome=InstanceOutcome.STOPPED,
        failure="",
        ended_ms=session.clock.now_ms(),
        training_started_ms=started_ms,
        training_ended_ms=session.clock.now_ms(),
        record={
            "environment": environment.name,
            "environment_key": environment.key,
            "lock_sha256": environment.lock_sha256,
            **record_of(installed),
            "python": platform.python_version(),
            "model_sha256": session.task.model.sha256 if session.task.model else "",
            "isolation": str(session.sandbox.isolation),
            "sandbox": session.sandbox.name,
        },
    )


@contextlib.contextmanager
def _unpacked(session: InstanceSession, environment: JobEnvironment) -> Generator[InstanceSession]:
    """Unpack model and code, and yield a session whose commands see them."""
    model, code = session.task.model, session.task.code
    session.report.enter("Downloading", "Downloading the model")
    if code is not None:
        extract(session, environment, code, "code")
    if model is None:
        (session.directory.ml / _MODELS).mkdir(exist_ok=True)
        yield session
    elif session.sandbox.isolation is Isolation.PLAIN:  # without mounts, every instance needs its own files
        extract(session, environment, model, _MODEL)
        yield session
    else:
        with _shared(session, environment, model) as files:
            yield replace(session, covers=((files, _MODEL),))


@contextlib.contextmanager
def _shared(session: InstanceSession, environment: JobEnvironment, model: ObjectFile) -> Generator[Path]:
    """Yield the directory with the model's files, which instances with the same model share."""
    own = session.directory.ml / _MODEL
    unpacked: list[str] = []

    def unpack() -> Path:
        extract(session, environment, model, _MODEL)
        unpacked.append(model.uri)
        return own

    def wait(timeout_s: float) -> None:
        session.stop.wait(timeout_s)
        session.stop.check()

    with contextlib.ExitStack() as stack:
        shared = shared_model(session.task.site.state_dir / _MODELS, model.sha256, unpack=unpack, wait=wait)
        try:
            files = stack.enter_context(shared)
        except OSError as error:
            raise of_os_error(error, place=f"{session.base_dir}/{_MODEL}") from error
        own.mkdir(exist_ok=True)  # the place at which the files are mounted
        if not unpacked:
            session.log.note("tidemill: the model is shared with an instance that has unpacked it")
        yield files


def keep_serving(session: InstanceSession, environment: JobEnvironment, serving: ModelServing) -> Installed:
    """Keep the server running until a stop is requested.

    Args:
        serving: Options of the server.

    Returns:
        The environment of the user's code.

    Raises:
        InstanceFailure: The server keeps ending or exceeding its limits, or packages cannot be installed.
    """
    crashes: deque[float] = deque(maxlen=serving.most_ends)
    needed = _needed(session, environment, serving)
    packages = Packages(session, environment)
    installed = packages.prepare()
    if needed:
        installed = packages.install(needed)
    while True:
        watch = LimitWatch(session.spec.limits, session.directory, session.log.note)
        with watch.watching():
            ended = _serve_once(session, environment, installed, serving, watch.cgroup)
        if ended.stop:
            return installed
        now_s = session.clock.monotonic_s()
        crashes.append(now_s)
        if len(crashes) == serving.most_ends and now_s - crashes[0] < _CRASH_WINDOW_S:
            if watch.failure:
                raise watch.failure
            lines = "\n".join(ended.stderr_tail.strip().splitlines()[-_LAST_LINES:])
            times = f" {serving.most_ends} times within {_CRASH_WINDOW_S:g} s, last" if serving.most_ends > 1 else ""
            raise AlgorithmFailure(f"the model server ended{times} with status {ended.exit_code}: {lines}")
        what = watch.failure or f"the model server ended with status {ended.exit_code}"
        session.log.note(f"tidemill: {what}")
        if session.stop.wait(_FIRST_PAUSE_S * 2 ** len(crashes)):
            return installed
        session.log.note("tidemill: starting the model server again")


def _needed(session: InstanceSession, environment: JobEnvironment, serving: ModelServing) -> str:
    """Return the requirements.txt whose packages the user's code needs, as the job sees it; empty if none is needed.

    The model server finds it, in a process that runs no user code.
    """
    places = (
        *(source / "code" for source, below in session.covers if below == serving.models),
        *(session.directory.ml / each for each in (f"{serving.models}/code", "code")),
    )
    given = session.spec.variables
    if _REQUIREMENTS not in given and not any((place / "requirements.txt").exists() for place in places):
        return ""
    needs = Needs()
    launch = session.wrap_module(
        "tidemill_serving",
        ["--report-needs", "--model-dir", f"{session.base_dir}/{serving.models}", *_code_options(session)],
        environment=environment,
        view=session.view(environment),
        variables={Needs.VARIABLE: str(needs.fd), **{name: given[name] for name in _OF_CODE if name in given}},
    )
    # If it fails, so does the server, which then names the reason.
    run_to_end(session, replace(launch, descriptors=(*launch.descriptors, needs.fd)))
    return needs.read()


def _code_options(session: InstanceSession) -> list[str]:
    return ["--kind", session.spec.serves, "--code-dir", f"{session.base_dir}/code"]


def _serve_once(
    session: InstanceSession,
    environment: JobEnvironment,
    installed: Installed,
    serving: ModelServing,
    cgroup: Cgroup | None,
) -> CommandEnd:
    (session.directory.private / _SOCKET).unlink(missing_ok=True)
    base, view = session.base_dir, installed.added_to(session.view(environment))
    address, inherited = _address(session, f"{base}/.tidemill/{_SOCKET}")
    argv = [str(environment.python), "-m", "tidemill_serving", "--model-dir", f"{base}/{serving.models}"]
    if serving.port is None:  # the service enforces the time limit of each request
        argv += ["--unix-socket", address, "--rest-api-timeout-in-ms", _LONGEST_ANSWER_MS]
    else:
        argv += ["--port", str(serving.port)]
    argv += _code_options(session)
    argv += ["--archives", f"{base}/.tidemill/{session.directory.archives.name}"]
    variables = session.variables(environment, view, first_on_path=installed.commands) | installed.variables
    launch = session.wrap(argv, view=view, variables=variables)
    return supervise(
        replace(launch, descriptors=(*launch.descriptors, *inherited)),
        log=session.log,
        stop=session.stop,
        clock=session.clock,
        limits=CommandLimits(grace_s=session.spec.grace_s),
        ask=Running.terminate_command,
        started=lambda: faults.point("shim.launched"),
        cpus=chosen_cpus(session.spec),
        cgroup=cgroup,
    )


def _address(session: InstanceSession, path: str) -> tuple[str, tuple[int, ...]]:
    """Return a path of the server's socket that is short enough for an address, and the descriptors that it uses."""
    if len(os.fsencode(path)) <= _ADDRESS_MAX_BYTES:
        return path, ()
    # Only paths of plain mode are this long. The command inherits the descriptor; the caller closes it.
    fd = os.open(session.directory.private, os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{fd}/{_SOCKET}", (fd,)
