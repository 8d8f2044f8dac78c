"""``python -I -m tidemill.executors.shim DIRECTORY``: run the instance whose spec lies there."""

import contextlib
import fcntl
import os
import shutil
import sys
import time
import traceback
from pathlib import Path

from tidemill.core import faults
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.files import read_json
from tidemill.core.process import ProcessId
from tidemill.executors.base import InstanceExit, Outcome, StopReason
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.notify import notify
from tidemill.executors.process_tree import kill_descendants
from tidemill.executors.records import SpecRecord
from tidemill.executors.sandbox import sandbox_named
from tidemill.executors.shim.endpoint import run_endpoint
from tidemill.executors.shim.failures import InstanceFailure, InternalFailure, of_os_error
from tidemill.executors.shim.report import JobLog, Reporter
from tidemill.executors.shim.session import Session
from tidemill.executors.shim.stopping import Stopped, StopSignal
from tidemill.executors.shim.supervision import adopt_orphans
from tidemill.executors.shim.training import run_training

__all__ = ["main"]

_ALREADY_RUNNING = 0
_FIRST_REPORT_TIMEOUT_S = 5.0
_EXIT_TRIES = 60
_STOPPED = {StopReason.STOPPED: Outcome.STOPPED, StopReason.MAX_RUNTIME: Outcome.MAX_RUNTIME}


def main(arguments: list[str]) -> int:
    """Run one instance; leave at once where that has been done, or is being done."""
    directory = InstanceDirectory(Path(arguments[0]))
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    stop = StopSignal(directory)
    lock_fd = os.open(directory.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return _leave_to_other(directory)
    if directory.read_exit() or directory.read_run():
        return _ALREADY_RUNNING
    adopt_orphans()
    directory.write_run(ProcessId.own())
    stop.look()
    clock = SystemClock()
    try:
        task = SpecRecord.from_json(read_json(directory.spec_file) or {})
    except (ValueError, KeyError, TypeError) as error:
        failure = InternalFailure(f"the spec of the instance cannot be read: {type(error).__name__}: {error}")
        _write_exit(directory, InstanceExit(outcome=Outcome.FAILED, failure=str(failure), ended_ms=clock.now_ms()))
        return 1
    faults.point("shim.started")
    ended = _run(directory, task, stop=stop, clock=clock)
    kill_descendants()
    faults.point("shim.exit")
    _write_exit(directory, ended)
    notify(task.site.state_dir, directory.ref)
    return 0


def _leave_to_other(directory: InstanceDirectory) -> int:
    """Stay until the other shim has said who it is, so that the server never sees an instance without a shim."""
    deadline_s = time.monotonic() + _FIRST_REPORT_TIMEOUT_S
    while directory.read_run() is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return _ALREADY_RUNNING


def _run(directory: InstanceDirectory, task: SpecRecord, *, stop: StopSignal, clock: Clock) -> InstanceExit:
    """Run the instance; whatever happens, its end is one of the outcomes."""
    log = None
    try:
        log = JobLog(task.spec.log_directory)
        session = Session(
            directory=directory,
            task=task,
            sandbox=sandbox_named(task.site.backend),
            report=Reporter(directory, state_dir=task.site.state_dir, clock=clock),
            log=log,
            stop=stop,
            clock=clock,
        )
        return run_endpoint(session) if task.spec.kind == "endpoint" else run_training(session)
    except Stopped as stopped:
        return InstanceExit(outcome=_STOPPED[stopped.reason], failure="", ended_ms=clock.now_ms())
    except InstanceFailure as failure:
        reason = failure
    except OSError as error:
        _write_traceback()
        reason = of_os_error(error, place=str(error.filename or "the state directory"))
    except Exception as error:  # noqa: BLE001 - a fault of ours must end in FailureReason, not in a lost instance
        _write_traceback()
        reason = InternalFailure(f"{type(error).__name__}: {error}")
    finally:
        if log:
            log.close()
    return InstanceExit(outcome=Outcome.FAILED, failure=str(reason), ended_ms=clock.now_ms())


def _write_exit(directory: InstanceDirectory, ended: InstanceExit) -> None:
    """Write the last word, on a full disk too: what the job had for itself alone makes room."""
    for place in range(_EXIT_TRIES):
        try:
            directory.write_exit(ended)
        except OSError:
            _write_traceback()
            for own in (directory.tmp, directory.home, directory.ml):
                shutil.rmtree(own, ignore_errors=True)
            time.sleep(min(1.0, 0.01 * 2**place))
        else:
            return


def _write_traceback() -> None:
    """For ``shim.log``, which lies on the disk that may be full: that must not be the end of the shim."""
    with contextlib.suppress(OSError):
        traceback.print_exc()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
