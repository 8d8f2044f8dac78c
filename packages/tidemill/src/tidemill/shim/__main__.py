"""``python -I -m tidemill.shim DIRECTORY``: run the instance whose spec is in that directory."""

import fcntl
import os
import sys
import time
from pathlib import Path

from tidemill._shared.descendants import kill_descendants
from tidemill.core import faults
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.files import read_json
from tidemill.core.kernel import adopt_orphans
from tidemill.core.process import ProcessId
from tidemill.environments.changes import release_writable
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.notify import notify
from tidemill.instance.records import SpecRecord
from tidemill.instance.status import InstanceExit, InstanceOutcome
from tidemill.sandbox import sandbox_named
from tidemill.shim.endpoint import run_endpoint
from tidemill.shim.failures import InstanceFailure, InstanceLost, InternalFailure, of_os_error
from tidemill.shim.needed_process import job_network
from tidemill.shim.report import JobLog, Reporter, write_exit, write_traceback
from tidemill.shim.sampling import sampled
from tidemill.shim.session import InstanceSession
from tidemill.shim.stopping import Stopped, TerminationSignal
from tidemill.shim.training import run_training

_ALREADY_RUNNING = 0
_FIRST_REPORT_TIMEOUT_S = 5.0


def main(arguments: list[str]) -> int:
    """Run one instance. Return at once if the instance has run already, or if another shim runs it."""
    directory = InstanceDirectory(Path(arguments[0]))
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    stop = TerminationSignal(directory)
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
        write_exit(
            directory, InstanceExit(outcome=InstanceOutcome.FAILED, failure=str(failure), ended_ms=clock.now_ms())
        )
        return 1
    faults.point("shim.started")
    ended = _run(directory, task, stop=stop, clock=clock)
    kill_descendants()
    release_writable()  # not later: when the result is written, the service may kill this process
    faults.point("shim.exit")
    write_exit(directory, ended)
    notify(task.site.state_dir, directory.ref)
    return 0


def _leave_to_other(directory: InstanceDirectory) -> int:
    """Wait until the other shim has recorded itself, so that the server never sees an instance without a shim."""
    deadline_s = time.monotonic() + _FIRST_REPORT_TIMEOUT_S
    while directory.read_run() is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return _ALREADY_RUNNING


def _run(directory: InstanceDirectory, task: SpecRecord, *, stop: TerminationSignal, clock: Clock) -> InstanceExit:
    """Run the instance and return its outcome, also after an error."""
    log = None
    try:
        log = JobLog(task.log_directory)
        session = InstanceSession(
            directory=directory,
            task=task,
            sandbox=sandbox_named(task.site.backend),
            report=Reporter(directory, state_dir=task.site.state_dir, clock=clock),
            log=log,
            stop=stop,
            clock=clock,
            network=job_network(task.site),
        )
        with sampled(directory, task, log=log, clock=clock):
            return run_training(session) if task.spec.runs_a_script else run_endpoint(session)
    except Stopped as stopped:
        return InstanceExit(outcome=stopped.reason.outcome, failure="", ended_ms=clock.now_ms())
    except InstanceFailure as failure:
        reason = failure
    except OSError as error:
        write_traceback()
        reason = of_os_error(error, place=str(error.filename or "the state directory"))
    except Exception as error:  # noqa: BLE001 - an error of the shim must become a FailureReason, not a lost instance
        write_traceback()
        reason = InternalFailure(f"{type(error).__name__}: {error}")
    finally:
        if log:
            log.close()
    return InstanceExit(
        outcome=InstanceOutcome.FAILED,
        failure=str(reason),
        ended_ms=clock.now_ms(),
        lost=isinstance(reason, InstanceLost),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
