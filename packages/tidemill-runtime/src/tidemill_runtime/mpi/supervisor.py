"""``python -m tidemill_runtime.mpi.supervisor PLAN``: run mpirun, and own the ranks that it starts.

    runtime ── supervisor ─┬─ mpirun ── process manager ── entry (one for each rank)
                           └─ rank (one for each entry)

MPI starts an `entry` in place of each rank; the entry requests the rank from the supervisor, and lives as long as the
rank. So the supervisor reads each rank's streams through pipes, sees how each rank ended regardless of MPI's reaction,
and can signal the ranks without signaling mpirun, which would kill them at once.

The job ends as soon as a rank fails: the others get SIGTERM, and SIGKILL after `GRACE_S`. MPI learns of failures last,
so that it cannot add reasons of its own. A stopped job's ranks have all the time that the platform gives them.

With several instances each has a supervisor, and the first one runs mpirun. mpirun reaches the other instances through
`reach`: their supervisors start MPI's daemons, which start entries there. The supervisor that sees the first failure
notifies the others (`peers`), which then treat failures of their own ranks as effects, and wait to be stopped.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime import channel
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.daemons import Daemon
from tidemill_runtime.mpi.entry import DIRECTORY, SOCKET
from tidemill_runtime.mpi.network import peers_of
from tidemill_runtime.mpi.plan import ENDED, FAILED, MpiPlan, Outcome
from tidemill_runtime.mpi.rank import Rank, RankOutput
from tidemill_runtime.mpi.sockets import listen
from tidemill_runtime.process import begin_afresh, signal_numbers
from tidemill_runtime.tee import write_all

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

GRACE_S = 5.0
"""Seconds from SIGTERM to SIGKILL for the other ranks after a rank has failed."""
ABORT_S = 1.0
"""Seconds for the ranks to report why MPI aborted the job."""
PEERS_S = 20.0
"""Seconds that an instance waits to be stopped after a failure on another one, before it reports the failure itself."""
MPIRUN_S = 10.0
"""Seconds for mpirun to end after all ranks have ended."""
_STOPPED = 143
_ABORT = re.compile(r"Abort\((-?\d+)\) on node .*: application called MPI_Abort\(")
_WITHOUT_MPI = re.compile(r"PMIU?_\w+ (?:error|returned)|write_line failure")
"""Output of an MPICH rank whose process manager is gone; the process manager ends when another rank aborts."""
_MPIS_OWN = ("HYDRA_", "MPICH_", "MPIR_", "MPIEXEC_", "FI_", "UCX_", "OMPI_", "OPAL_", "PMIX_", "PRTE_", "LC_")
_BASE = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "USER", "LOGNAME")


class Supervisor:
    """The ranks of one instance.

    Args:
        plan: The work to do.
        directory: Directory of plan, socket and outcome.
    """

    def __init__(self, plan: MpiPlan, *, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._selector = selectors.DefaultSelector()
        self._ranks: list[Rank] = []
        self._failures: list[Rank] = []
        self._stopping = False
        self._ending = False
        self._deadline: float | None = None
        self._mpirun: subprocess.Popen[bytes] | None = None
        self._mpirun_output: RankOutput | None = None
        self._daemons: list[Daemon] = []
        self._peers = peers_of(plan)
        self._open(listen(directory / SOCKET), self._start_rank)
        if self._peers is not None:
            self._open(self._peers.listen(), self._start_daemon)
        self._ended_there = self._end_of_mpirun()

    def run(self) -> Outcome:
        """Run mpirun until it ends."""
        with signal_numbers() as signals_fd:
            self._selector.register(
                signals_fd, selectors.EVENT_READ, lambda: self._handle_signals(os.read(signals_fd, 4096))
            )
            if self._plan.mpirun:
                self._start_mpirun()
            while self._poll():
                self._send_due_signals()
                self._wait(self._deadline)
            if self._mpirun_output is not None:
                self._mpirun_output.drain()
            return self._outcome()

    def notify_others(self, outcome: Outcome) -> None:
        """Notify the instances that wait for mpirun that it has ended; some may not have begun yet.

        Args:
            outcome: How the job ended on this instance.
        """
        if self._peers is None:
            return
        if self._plan.mpirun:
            self._peers.notify(ENDED, replace(outcome, reports=""))
        self._peers.close()

    def _wait(self, deadline: float | None) -> None:
        """Handle the next events, or return at the deadline."""
        patience_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        for key, _ in self._selector.select(patience_s):
            key.data()

    def _start_mpirun(self) -> None:
        read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        entry = (sys.executable, "-I", "-m", "tidemill_runtime.mpi.entry", str(self._directory))
        try:
            self._mpirun = subprocess.Popen(
                [*self._plan.mpirun, *entry],
                env=_base_variables(),
                stdin=subprocess.DEVNULL,
                stdout=write_fd,
                stderr=write_fd,
                start_new_session=True,
                preexec_fn=begin_afresh(os.getpid()),  # safe: there is one thread
            )
        finally:
            os.close(write_fd)
        self._mpirun_output = RankOutput(
            read_fd, to_fd=None, tag=""
        )  # not shown: it would hide the ranks' own messages
        self._follow(self._mpirun_output)

    def _poll(self) -> bool:
        """Record the ranks that have ended; return whether anything still runs."""
        ended = [rank for rank in self._ranks if rank.exit_code is None and rank.poll() is not None]
        for rank in ended:
            for output in (rank.stdout, rank.stderr):
                self._unwatch(output.fd)
                output.drain()
                os.close(output.fd)
        for rank in sorted(ended, key=_likely_cause):
            self._handle_exit(rank)
        if not self._running:
            for rank in self._ranks:
                self._answer(rank)
        return bool(self._running) or self._mpi_runs

    @property
    def _mpi_runs(self) -> bool:
        """Return whether mpirun (on other instances: its daemon) runs or has yet to start."""
        ends = [daemon.poll() for daemon in self._daemons]
        if self._mpirun is not None:
            return self._mpirun.poll() is None
        return None in ends if ends else self._ended_there is None and not self._stopping

    def _end_of_mpirun(self) -> int | None:
        """Return the exit code of mpirun on another instance, if it has ended."""
        notice = self._read_notice(ENDED)
        return notice.exit_code if notice else None

    def _read_notice(self, notice: str) -> Outcome | None:
        with contextlib.suppress(OSError, ValueError):
            return self._peers.read_notice(notice) if self._peers else None
        return None

    @property
    def _running(self) -> list[Rank]:
        return [rank for rank in self._ranks if rank.exit_code is None]

    def _handle_exit(self, rank: Rank) -> None:
        if rank.exit_code == 0:
            self._answer(rank)
            return
        sent = self._ending and rank.exit_code in (-signal.SIGTERM, -signal.SIGKILL)
        # MPI_Abort may hang at the end of its rank, which then needs the signal but has failed before.
        if not sent or _ABORT.search(rank.stderr.text()):
            self._failures.append(rank)
            if not self._stopping and not _is_effect(rank):
                self._report_failure(rank)
        # A rank that seems to have failed because of MPI has a cause that is about to be reported.
        self._end(after_s=ABORT_S if _is_effect(rank) else 0.0)

    def _end(self, *, after_s: float) -> None:
        """End the remaining ranks, because one failed or MPI gave up."""
        if not self._stopping and not self._ending:
            deadline = time.monotonic() + after_s
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _send_due_signals(self) -> None:
        """Send due signals: SIGTERM, then SIGKILL, to the remaining ranks, or to mpirun if no rank remains."""
        if not self._mpi_runs:
            self._end(after_s=ABORT_S)
        others_may_run = self._peers is not None and not self._failures
        if self._ranks and not self._running and self._deadline is None and not others_may_run:
            self._deadline = time.monotonic() + MPIRUN_S
        if self._deadline is None or time.monotonic() < self._deadline:
            return
        number = signal.SIGKILL if self._ending else signal.SIGTERM
        self._ending, self._deadline = True, time.monotonic() + GRACE_S
        for rank in self._running:
            rank.signal(number)
        if not self._running:
            self._signal_mpi(number)

    def _handle_signals(self, numbers: bytes) -> None:
        for number in numbers:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stopping = True
                for rank in self._ranks:
                    rank.signal(number)
                if not self._ranks:
                    self._signal_mpi(signal.SIGTERM)

    def _signal_mpi(self, number: int) -> None:
        """Send a signal to mpirun and its daemons here."""
        for daemon in self._daemons:
            daemon.signal(number)
        if self._mpirun is not None and self._mpirun.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._mpirun.pid, number)

    def _open(self, listener: socket.socket, start: Callable[[socket.socket, channel.Message], None]) -> None:
        """Accept all connections of a socket, and call `start` with each and its message."""
        self._selector.register(listener, selectors.EVENT_READ, lambda: self._accept(listener, start))

    def _accept(self, listener: socket.socket, start: Callable[[socket.socket, channel.Message], None]) -> None:
        connection, _ = listener.accept()
        connection.settimeout(MPIRUN_S)
        try:
            message = channel.receive(connection)
        except (OSError, ValueError):
            message = None
        if message is None or self._stopping or self._ending:
            connection.close()
            return
        connection.settimeout(None)
        try:
            start(connection, message)
        finally:
            for fd in message.descriptors:
                os.close(fd)

    def _start_daemon(self, connection: socket.socket, message: channel.Message) -> None:
        if "command" not in message.content:
            self._ended_there = self._end_of_mpirun()
            connection.close()
            return
        variables = {**_base_variables(), DIRECTORY: str(self._directory)}
        self._daemons.append(Daemon(connection, message, variables=variables))

    def _start_rank(self, entry: socket.socket, message: channel.Message) -> None:
        variables = self._variables(message)
        number = int(variables["OMPI_COMM_WORLD_RANK"])
        reports = Path(variables["TIDEMILL_REPORTS"])
        reports.mkdir(parents=True, exist_ok=True)
        rank = Rank(
            number,
            tag=f"[1,mpirank:{number},{self._plan.host}]",
            argv=self._plan.argv,
            directory=Path(self._plan.directory),
            variables=variables,
            cpus=message.content["cpus"],
            pass_fds=message.descriptors,
            entry=entry,
        )
        self._ranks.append(rank)
        self._deadline = None
        for output in (rank.stdout, rank.stderr):
            self._follow(output)
        self._selector.register(entry, selectors.EVENT_READ, lambda: self._handle_mpi_exit(rank))

    def _variables(self, message: channel.Message) -> dict[str, str]:
        """Return the rank's environment: this instance's, MPI's additions, and the names that Open MPI would use."""
        own = {*_base_variables(), DIRECTORY}
        given = message.content["variables"]
        variables = {**os.environ, **{name: value for name, value in given.items() if name not in own}}
        for name, fd in zip(message.content["descriptors"], message.descriptors):
            variables[name] = str(fd)
        names = {
            "RANK": "PMI_RANK",
            "SIZE": "PMI_SIZE",
            "LOCAL_RANK": "MPI_LOCALRANKID",
            "LOCAL_SIZE": "MPI_LOCALNRANKS",
        }
        for name, of_mpich in names.items():
            if of_mpich in given:
                variables[f"OMPI_COMM_WORLD_{name}"] = given[of_mpich]
        if "MPI_LOCALRANKID" in given:
            variables["OMPI_COMM_WORLD_NODE_RANK"] = given["MPI_LOCALRANKID"]
        number = variables["OMPI_COMM_WORLD_RANK"]
        return {
            **variables,
            **self._plan.variables,
            "TIDEMILL_REPORTS": str(Path(self._plan.reports) / f"rank-{number}"),
        }

    def _handle_mpi_exit(self, rank: Rank) -> None:
        """Handle that MPI has ended an entry whose rank still runs: MPI aborts the job."""
        self._selector.unregister(rank.entry)
        rank.left_by_mpi = not rank.has_ended
        self._end(after_s=ABORT_S)

    def _follow(self, output: RankOutput) -> None:
        def pass_on() -> None:
            if not output.pass_on():
                self._selector.unregister(output.fd)

        self._selector.register(output.fd, selectors.EVENT_READ, pass_on)

    def _unwatch(self, thing: int | socket.socket) -> None:
        """Stop watching a descriptor or socket, if it is still watched."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(thing)

    def _answer(self, rank: Rank) -> None:
        """Tell MPI through the entry that a rank ended, without its exit code: MPI would only add its own messages."""
        if rank.entry.fileno() < 0:
            return
        self._unwatch(rank.entry)
        with contextlib.suppress(OSError):
            channel.send(rank.entry, {"status": 0})
        rank.entry.close()

    def _outcome(self) -> Outcome:
        rank = next((each for each in self._failures if not _is_effect(each)), None) or next(iter(self._failures), None)
        mpirun_text = self._mpirun_output.text().strip() if self._mpirun_output else ""
        if mpirun_text and rank is None and not self._stopping:
            write_all(2, f"{mpirun_text}\n".encode())
        manager = self._mpirun or (self._daemons[0] if self._daemons else None)
        status = (manager.poll() if manager else self._ended_there) or 0
        some = self._ranks or self._ended_there is not None  # an instance may have no ranks
        if some and all(rank.exit_code == 0 for rank in self._ranks) and status in (0, -signal.SIGKILL):
            return Outcome(0)
        cause = self._cause_elsewhere()
        if cause is not None:
            return cause
        if rank is not None:
            return self._outcome_of(rank)
        if self._stopping:
            return Outcome(_STOPPED)
        return Outcome(status or 1, tail=f"mpirun ended with exit code {status}: {mpirun_text or 'it said nothing'}")

    def _outcome_of(self, rank: Rank) -> Outcome:
        code, tail = _before_abort(rank.exit_code or 1, rank.stderr.text())
        return Outcome(
            exit_code=code,
            where=f"rank {rank.number} on {self._plan.host}",
            pid=rank.pid,
            reports=str(Path(self._plan.reports) / f"rank-{rank.number}"),
            tail=tail,
        )

    def _report_failure(self, rank: Rank) -> None:
        """Notify the other instances which rank failed, unless a rank there failed before."""
        if self._peers is not None:
            self._peers.notify(FAILED, replace(self._outcome_of(rank), reports=""))

    def _cause_elsewhere(self) -> Outcome | None:
        """Return the failure on another instance that ended the ranks of this one; None if they ended by themselves.

        The platform stops this instance after the other one has reported. Only if it does not, this instance reports.
        """
        if self._peers is None or self._stopping:
            return None
        deadline = time.monotonic() + PEERS_S
        while True:
            cause = self._read_notice(FAILED)
            if cause is not None and cause.where.endswith(f" on {self._plan.host}"):
                return None
            if self._stopping:
                return Outcome(_STOPPED)
            if time.monotonic() > deadline:
                return cause
            self._wait(deadline)


def _is_effect(rank: Rank) -> bool:
    """Return whether a rank seems to have failed because MPI was gone: MPICH's ranks then crash or give up."""
    text = rank.stderr.text()
    if rank.exit_code == -signal.SIGKILL or _ABORT.search(text):
        return False
    return rank.left_by_mpi or bool(_WITHOUT_MPI.search(text))


def _likely_cause(rank: Rank) -> int:
    """Return a sort key for ranks that ended at the same time, most likely cause first.

    No process here sends SIGKILL, and an abort makes the other ranks crash.
    """
    if rank.exit_code == -signal.SIGKILL:
        return 0
    return 1 if _ABORT.search(rank.stderr.text()) else 2 if (rank.exit_code or 0) < 0 else 3


def _before_abort(exit_code: int, tail: str) -> tuple[int, str]:
    """Return exit code and last output of a rank as they were before MPICH's MPI_Abort, which may crash or hang."""
    aborted = _ABORT.search(tail)
    return (int(aborted[1]) or max(exit_code, 1), tail[: aborted.start()]) if aborted else (exit_code, tail)


def _base_variables() -> dict[str, str]:
    """Return the environment of mpirun: only its own needs. The ranks get theirs from the supervisor."""
    return {name: value for name, value in os.environ.items() if name in _BASE or name.startswith(_MPIS_OWN)}


def main(path: Path) -> int:
    """Carry out a plan.

    Returns:
        0 if all ranks succeeded, else 1; the outcome is in a file.
    """
    try:
        supervisor = Supervisor(MpiPlan.read(path), directory=path.parent)
    except ConfigurationError as error:
        Outcome(1, tail=str(error)).write(path.with_name("outcome.json"))
        return 1
    outcome = supervisor.run()
    outcome.write(path.with_name("outcome.json"))
    supervisor.notify_others(outcome)
    return 1 if outcome.exit_code else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
