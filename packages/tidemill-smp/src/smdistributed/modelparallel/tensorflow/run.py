"""Start the ranks of a job on this machine, or on each of several machines, without MPI.

    python -m smdistributed.modelparallel.tensorflow.run -n 2 script.py --epochs 3
    python -m smdistributed.modelparallel.tensorflow.run -n 4 --prefix -m package.module --epochs 3

On several machines, run the same command on each, with the same secret in the environment variable `SMP_SECRET`; ``-n``
is the number of ranks on each machine, and rank 0 is on the first:

    export SMP_SECRET=...  # 64 hexadecimal digits
    python -m smdistributed.modelparallel.tensorflow.run -n 2 --hosts 10.0.0.1,10.0.0.2 --encrypt script.py

Output lines of different ranks are not mixed. If a rank fails, the others get a few seconds to report that they lost
it, and a moment to exit; then they are killed. The exit code is that of the rank that failed first (128 + n if signal n
killed it), not of a rank that failed because it lost another one. Ctrl-C and SIGTERM end all ranks; if this process is
killed, the ranks are killed too.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, BinaryIO, NamedTuple

from smdistributed.modelparallel.tensorflow._shared.encryption.certificate import find_obstacle
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import read_secret
from smdistributed.modelparallel.tensorflow._shared.ranks.errors import RankSettingError
from smdistributed.modelparallel.tensorflow.allocator import launch_variables
from smdistributed.modelparallel.tensorflow.world.rendezvous import blame_file

TERMINATE_AFTER_S = 5.0
"""Time for a rank to report the loss after another rank has failed; then it gets SIGTERM."""
LEAVE_AFTER_S = 2.0
"""Time for a rank to exit after it has reported the loss. All that is left is the exit of the interpreter, which may
take long on a busy machine and has no effect."""
KILL_AFTER_S = 2.0
"""Time for a rank to exit after SIGTERM; then it gets SIGKILL."""
DEFAULT_PORT = 29400
_WITH_VALUE = ("-n", "--ranks", "--hosts", "--host-index", "--port")
_LOOK_S = 0.1
_PR_SET_PDEATHSIG = 1
_DRAIN_S = 1.0


class _Event(NamedTuple):
    """A rank ended, or this process got a signal."""

    rank: int | None
    code: int


def main(arguments: list[str] | None = None) -> int:
    """Run a job.

    Args:
        arguments: The command line. Default: that of the process.

    Returns:
        The exit code of the job.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    head, command = _split(words)
    parser = argparse.ArgumentParser(
        prog="python -m smdistributed.modelparallel.tensorflow.run",
        usage="%(prog)s -n RANKS [OPTION ...] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description="Start the ranks of a model-parallel job on this machine, or on each of several machines.",
    )
    parser.add_argument("-n", "--ranks", type=int, required=True, help="how many processes to start on this machine")
    parser.add_argument("--prefix", action="store_true", help="begin each line with the number of its rank")
    parser.add_argument("--hosts", default="", help="addresses of all machines, with commas; first that of rank 0")
    parser.add_argument("--host-index", type=int, help="which of them is this machine, from 0; found if not given")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="where ranks meet on the first (%(default)s)")
    parser.add_argument("--encrypt", action="store_true", help="encrypt connections between machines with TLS")
    options = parser.parse_args(head)
    if options.ranks < 1:
        parser.error(f"-n is {options.ranks}; allowed is an int >= 1")
    if not command:
        parser.error("there is no script to run: name one, or -m and a module")
    with tempfile.TemporaryDirectory(prefix="smp-run-") as directory:
        try:
            rendezvous = _rendezvous(options, directory)
        except (ValueError, RankSettingError) as error:
            parser.error(str(error))
        return _RankJob(options.ranks, command, rendezvous, directory, prefix=options.prefix).run()


class _Rendezvous(NamedTuple):
    """Where this machine's ranks are among all, and the variables by which they meet the others."""

    first_rank: int
    size: int
    variables: dict[str, str]


def _rendezvous(options: argparse.Namespace, directory: str) -> _Rendezvous:
    """Return how the ranks meet.

    Raises:
        ValueError: If the options for several machines do not fit each other or this machine.
        RankSettingError: If several machines have no secret in common.
    """
    variables = {"SMP_REPORTS": directory, **({"SMP_ENCRYPTION": "1"} if options.encrypt else {})}
    if not options.hosts:
        if options.host_index is not None or options.encrypt:
            raise ValueError("--host-index and --encrypt are for ranks on several machines: name them by --hosts")
        variables |= {"SMP_STORE": directory, "SMP_SECRET": secrets.token_hex(32)}
        return _Rendezvous(0, options.ranks, variables)
    hosts = [host.strip() for host in options.hosts.split(",")]
    if not all(hosts) or len(set(hosts)) < len(hosts):
        raise ValueError(f"--hosts is {options.hosts!r}; allowed are different addresses, separated by commas")
    if options.encrypt and (obstacle := find_obstacle()):
        raise ValueError(f"--encrypt cannot be used: {obstacle}")
    if not 0 < options.port < 1 << 16:
        raise ValueError(f"--port is {options.port}; allowed is an int from 1 to 65535")
    index = _own_index(hosts) if options.host_index is None else options.host_index
    if not 0 <= index < len(hosts):
        raise ValueError(f"--host-index is {index}; allowed is an int from 0 to {len(hosts) - 1}")
    secret = read_secret(required=True).hex()
    variables |= {"SMP_STORE": f"{hosts[0]}:{options.port}", "SMP_HOST": hosts[index], "SMP_SECRET": secret}
    return _Rendezvous(index * options.ranks, len(hosts) * options.ranks, variables)


def _own_index(hosts: list[str]) -> int:
    """Return which address is one of this machine."""
    for index, host in enumerate(hosts):
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind((host, 0))
            return index
    raise ValueError(f"none of --hosts {','.join(hosts)} is an address of this machine: give its place by --host-index")


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the command line into the launcher's own arguments and, from the script on, those of Python."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in _WITH_VALUE else 1
    return words[:at], words[at:]


class _RankJob:
    def __init__(self, size: int, command: list[str], rendezvous: _Rendezvous, directory: str, *, prefix: bool) -> None:
        self._size = size
        self._rendezvous = rendezvous
        self._command = command
        self._directory = directory
        self._prefix = prefix
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._readers: list[threading.Thread] = []
        self._writing = threading.Lock()

    def run(self) -> int:
        started_s = time.monotonic()
        before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            for rank in range(self._size):
                self._start(rank)
            for rank, process in enumerate(self._ranks):
                threading.Thread(target=self._wait, args=(rank, process), daemon=True).start()
            cause = self._watch()
            self._drain()
        finally:
            self._signal_all(signal.SIGKILL)
            for number, handler in before.items():
                signal.signal(number, handler)
        if cause is None:
            return 0
        words = _describe(cause, self._rendezvous.first_rank)
        print(f"smp.run: {words} after {time.monotonic() - started_s:.1f} s", file=sys.stderr, flush=True)  # noqa: T201
        return cause.code if cause.code > 0 else 128 - cause.code

    def _note(self, number: int, _: object) -> None:
        self._events.put(_Event(None, -number))

    def _start(self, rank: int) -> None:
        """Start the rank with that number on this machine."""
        environment = {
            "PYTHONUNBUFFERED": "1",  # Python would buffer output to a pipe
            **os.environ,
            **launch_variables(os.environ),
            "SMP_RANK": str(self._rendezvous.first_rank + rank),
            "SMP_SIZE": str(self._rendezvous.size),
            "SMP_LOCAL_RANK": str(rank),
            "SMP_LOCAL_SIZE": str(self._size),
            **self._rendezvous.variables,
        }
        process = subprocess.Popen(
            [sys.executable, *self._command],
            env=environment,
            stdin=None if rank == 0 else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_die_with(os.getpid()),
            start_new_session=True,
        )
        self._ranks.append(process)
        for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert source is not None
            self._readers.append(threading.Thread(target=self._copy, args=(rank, source, target.buffer), daemon=True))

    def _wait(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self._events.put(_Event(rank, process.wait()))

    def _watch(self) -> _Event | None:
        """Wait until all ranks have ended, and end them after a failure; return the first failure."""
        for reader in self._readers:
            reader.start()
        running = set(range(self._size))
        cause: _Event | None = None
        ending: _Ending | None = None
        while running:
            if ending is not None:
                for rank, number in ending.due(running):
                    self._signal(rank, number)
            try:
                event = self._events.get(timeout=None if ending is None else _LOOK_S)
            except queue.Empty:
                continue
            if event.rank is not None:
                running.discard(event.rank)
            elif cause is None or cause.rank is not None:
                self._signal_all(signal.Signals(-event.code))
            else:
                self._signal_all(signal.SIGKILL)  # the second request to stop
            if event.code == 0:
                continue
            ending = ending or _Ending(self._has_reported)
            if cause is None or (self._is_consequence(cause) and not self._is_effect(event, ending)):
                cause = event
        return cause

    def _has_reported(self, rank: int) -> bool:
        return blame_file(self._directory, self._rendezvous.first_rank + rank).exists()

    def _is_effect(self, event: _Event, ending: _Ending) -> bool:
        return self._is_consequence(event) or ending.has_signaled(event.rank)

    def _is_consequence(self, event: _Event) -> bool:
        return event.rank is not None and self._has_reported(event.rank)

    def _signal_all(self, number: signal.Signals) -> None:
        for rank in range(len(self._ranks)):
            self._signal(rank, number)

    def _signal(self, rank: int, number: signal.Signals) -> None:
        # Signal the process group, which outlives the rank while its children run.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._ranks[rank].pid, number)

    def _copy(self, rank: int, source: IO[bytes], target: BinaryIO) -> None:
        mark = f"[{self._rendezvous.first_rank + rank}] ".encode() if self._prefix else b""
        rest = b""
        while data := os.read(source.fileno(), 65536):
            rest += data
            end = max(rest.rfind(b"\n"), rest.rfind(b"\r")) + 1  # progress bars end their lines with a carriage return
            if end:
                self._put(target, mark, rest[:end])
                rest = rest[end:]
        if rest:
            self._put(target, mark, rest + b"\n")

    def _put(self, target: BinaryIO, mark: bytes, lines: bytes) -> None:
        text = b"".join(mark + line for line in lines.splitlines(keepends=True)) if mark else lines
        with self._writing, suppress(BrokenPipeError):
            target.write(text)
            target.flush()

    def _drain(self) -> None:
        deadline = time.monotonic() + _DRAIN_S
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))


class _Ending:
    """Decides when to signal the remaining ranks after a failure."""

    def __init__(self, has_reported: Callable[[int], bool]) -> None:
        self._has_reported = has_reported
        self._begun_s = time.monotonic()
        self._reported_s: dict[int, float] = {}
        self._sent: set[tuple[int, signal.Signals]] = set()

    def due(self, running: Iterable[int]) -> list[tuple[int, signal.Signals]]:
        """Return the ranks to signal now, with the signal; each signal is returned once."""
        now_s = time.monotonic()
        due = []
        for rank in running:
            if rank not in self._reported_s and self._has_reported(rank):
                self._reported_s[rank] = now_s
            end_s = self._begun_s + TERMINATE_AFTER_S
            if rank in self._reported_s:
                end_s = min(end_s, self._reported_s[rank] + LEAVE_AFTER_S)
            for number, at_s in ((signal.SIGTERM, end_s), (signal.SIGKILL, end_s + KILL_AFTER_S)):
                if now_s >= at_s and (rank, number) not in self._sent:
                    self._sent.add((rank, number))
                    due.append((rank, number))
        return due

    def has_signaled(self, rank: int | None) -> bool:
        """Return whether this rank was signaled, so that its exit is not a failure."""
        return any(signaled == rank for signaled, _ in self._sent)


def _die_with(launcher: int) -> Callable[[], None]:
    """Return a function that a rank runs before Python starts: the kernel then kills the rank with the launcher."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)

    def ask() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != launcher:
                os._exit(1)

    return ask


def _describe(cause: _Event, first_rank: int) -> str:
    if cause.rank is None:
        return f"ended by {signal.Signals(-cause.code).name}"
    rank = first_rank + cause.rank
    if cause.code < 0:
        name = signal.Signals(-cause.code).name
        return f"rank {rank} was killed by signal {-cause.code} ({name}), so the job was ended"
    return f"rank {rank} ended with exit code {cause.code}, so the job was ended"


if __name__ == "__main__":
    sys.exit(main())
