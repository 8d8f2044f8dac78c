"""An instance of an endpoint: the model unpacked, the model server kept running until it is told to stop."""

import os
import platform
from collections import deque
from dataclasses import replace

from tidemill.core import faults
from tidemill.executors.base import InstanceExit, Outcome
from tidemill.executors.environments import Environment
from tidemill.executors.shim.failures import AlgorithmFailure, ClientFailure, InternalFailure
from tidemill.executors.shim.session import Session
from tidemill.executors.shim.stopping import Stopped
from tidemill.executors.shim.supervision import Ended, Limits, Running, supervise

__all__ = ["run_endpoint"]

_CRASHES = 5
_CRASH_WINDOW_S = 60.0
_FIRST_PAUSE_S = 0.1
_LAST_LINES = 12
_SOCKET = "serving.sock"
_ADDRESS_MAX_BYTES = 107


def run_endpoint(session: Session) -> InstanceExit:
    """Serve until asked to stop.

    Raises:
        InstanceFailure: The model cannot be unpacked, or the server ends again and again.
        Stopped: A stop was asked for; the server has ended.
    """
    environment = session.prepare()
    _unpack(session, environment)
    faults.point("shim.downloaded")
    started_ms = session.clock.now_ms()
    session.report.enter("Serving", "The model server is running")
    _serve(session, environment)
    return InstanceExit(
        outcome=Outcome.STOPPED,
        failure="",
        ended_ms=session.clock.now_ms(),
        training_started_ms=started_ms,
        training_ended_ms=session.clock.now_ms(),
        record={
            "environment": environment.name,
            "environment_key": environment.key,
            "lock_sha256": environment.lock_sha256,
            "python": platform.python_version(),
            "model_sha256": session.spec.model.sha256 if session.spec.model else "",
            "isolation": str(session.sandbox.isolation),
            "sandbox": session.sandbox.name,
        },
    )


def _unpack(session: Session, environment: Environment) -> None:
    model = session.spec.model
    session.report.enter("Downloading", "Downloading the model")
    if model is None:
        return
    session.fetch(model, "model.tar.gz")
    base = session.base_dir
    view = session.view(environment)
    archive = f"{base}/.tidemill/model.tar.gz"
    argv = [str(environment.python), "-m", "tidemill_runtime", "extract", archive, f"{base}/model"]
    ended = supervise(
        session.wrap(argv, view=view, variables=session.variables(environment, view)),
        log=session.log,
        stop=session.stop,
        clock=session.clock,
        limits=Limits(grace_s=0),
        ask=Running.kill,
    )
    if ended.stop:
        raise Stopped(ended.stop)
    if ended.exit_code:
        last = ended.stderr_tail.strip().splitlines()[-1:] or [f"exit status {ended.exit_code}"]
        if last[0].startswith(("bwrap: ", "tidemill-sandbox: ")):
            raise InternalFailure(f"the sandbox could not be entered: {last[0]}")
        raise ClientFailure(f"{model.uri}: {last[0]}")
    (session.directory.private / "model.tar.gz").unlink(missing_ok=True)


def _serve(session: Session, environment: Environment) -> None:
    crashes: deque[float] = deque(maxlen=_CRASHES)
    while True:
        ended = _serve_once(session, environment)
        if ended.stop:
            return
        now_s = session.clock.monotonic_s()
        crashes.append(now_s)
        session.log.note(f"tidemill: the model server ended with status {ended.exit_code}")
        if len(crashes) == _CRASHES and now_s - crashes[0] < _CRASH_WINDOW_S:
            lines = "\n".join(ended.stderr_tail.strip().splitlines()[-_LAST_LINES:])
            raise AlgorithmFailure(
                f"the model server ended {_CRASHES} times within {_CRASH_WINDOW_S:g} s, last with status"
                f" {ended.exit_code}: {lines}"
            )
        if session.stop.wait(_FIRST_PAUSE_S * 2 ** len(crashes)):
            return
        session.log.note("tidemill: starting the model server again")


def _serve_once(session: Session, environment: Environment) -> Ended:
    (session.directory.private / _SOCKET).unlink(missing_ok=True)
    base, view = session.base_dir, session.view(environment)
    address, inherited = _address(session, f"{base}/.tidemill/{_SOCKET}")
    argv = [str(environment.python), "-m", "tidemill_serving"]
    argv += ["--model-dir", f"{base}/model", "--unix-socket", address]
    launch = session.wrap(argv, view=view, variables=session.variables(environment, view))
    return supervise(
        replace(launch, descriptors=(*launch.descriptors, *inherited)),
        log=session.log,
        stop=session.stop,
        clock=session.clock,
        limits=Limits(grace_s=session.spec.grace_s),
        ask=Running.terminate_command,
        started=lambda: faults.point("shim.launched"),
    )


def _address(session: Session, path: str) -> tuple[str, tuple[int, ...]]:
    """A path for the server's socket that fits into an address, and the descriptors that it goes through."""
    if len(os.fsencode(path)) <= _ADDRESS_MAX_BYTES:
        return path, ()
    # Only in plain mode is the path the outside one; the descriptor is inherited, and closed by its starter.
    fd = os.open(session.directory.private, os.O_PATH | os.O_DIRECTORY)
    return f"/proc/self/fd/{fd}/{_SOCKET}", (fd,)
