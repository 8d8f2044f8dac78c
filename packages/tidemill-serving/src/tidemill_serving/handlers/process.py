"""One worker process: start it, wait until it is ready, exchange frames with it, and end it."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.code import UserCode
from tidemill_serving.handlers.lane import Frame, Lane
from tidemill_serving.handlers.wire import WorkerSetup

_EXIT_WITHIN_S = 2.0


class WorkerProcess:
    """A process that runs handlers.

    Args:
        setup: Setup for the worker; `start` fills in the numbers of its sockets.
        threads: Number of requests that the process handles at a time.
        answered: Called with each answer and the lane that received it.
        loop: The running event loop.
    """

    def __init__(
        self,
        code: UserCode,
        setup: WorkerSetup,
        *,
        threads: int,
        answered: Callable[[Lane, Frame], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._code = code
        self._setup = setup
        self._threads = threads
        self._answered = answered
        self._loop = loop
        self._process: asyncio.subprocess.Process | None = None
        self._control: Lane | None = None
        self._report: asyncio.Future[Frame] = loop.create_future()
        self._drained = asyncio.Event()
        self._open_lanes: set[Lane] = set()
        self.lanes: list[Lane] = []
        self.handlers: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """Process id; 0 before the start."""
        return self._process.pid if self._process else 0

    async def start(self) -> None:
        """Start the process and wait until it has loaded the user's module.

        Raises:
            StartFailed: The module cannot be loaded; its traceback is in the log.
        """
        ours, theirs = zip(*(socket.socketpair() for _ in range(self._threads + 1)), strict=True)
        fds = [end.fileno() for end in theirs]
        setup = replace(self._setup, control_fd=fds[0], lane_fds=tuple(fds[1:]))
        try:
            self._process = await _spawn(self._code.python, setup, fds)
        except OSError as error:
            raise StartFailed(f"cannot start {self._code.python} for {self._name}: {error}") from error
        finally:
            for end in theirs:
                end.close()
        self._control = await self._connect(ours[0], self._reported, self._ended_early)
        self.lanes = [await self._connect(each, self._answered, self._lane_lost) for each in ours[1:]]
        self._open_lanes = set(self.lanes)
        report, _ = await self._report
        if "failed" in report:
            await self._process.wait()
            raise StartFailed(f"{self._name} could not be loaded: {report['failed']}")
        self.handlers = tuple(report["handlers"])

    async def ended(self) -> int:
        """Wait for the process and return its exit status, negative for a signal; receive its last answers first."""
        assert self._process is not None
        status = await self._process.wait()
        with contextlib.suppress(asyncio.TimeoutError):  # a child that a handler forked may hold the sockets open
            await asyncio.wait_for(self._drained.wait(), _EXIT_WITHIN_S)
        return status

    def kill(self) -> None:
        """Kill the process immediately."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        """End the process by closing its sockets; kill it if it does not exit."""
        for lane in filter(None, (self._control, *self.lanes)):
            lane.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), _EXIT_WITHIN_S)
            except TimeoutError:
                self.kill()
                await self._process.wait()

    @property
    def _name(self) -> str:
        return str(self._code.script) if self._code.script else "the worker process"

    async def _connect(
        self, end: socket.socket, received: Callable[[Lane, Frame], None], lost: Callable[[Lane], None]
    ) -> Lane:
        end.setblocking(False)
        _, lane = await self._loop.create_unix_connection(lambda: Lane(received, lost), sock=end)
        return lane

    def _lane_lost(self, lane: Lane) -> None:
        self._open_lanes.discard(lane)
        if not self._open_lanes:
            self._drained.set()

    def _reported(self, _: Lane, frame: Frame) -> None:
        if not self._report.done():
            self._report.set_result(frame)

    def _ended_early(self, _: Lane) -> None:
        if not self._report.done():
            self._report.set_result(({"failed": "its process ended without a report; see the lines above"}, b""))


def described_end(status: int) -> str:
    """Describe an exit status, e.g. ``exit status 1`` or ``killed by SIGKILL``.

    Args:
        status: As `subprocess` returns it: negative for a signal.

    Returns:
        Text for a message.
    """
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


async def _spawn(python: str, setup: WorkerSetup, fds: Sequence[int]) -> asyncio.subprocess.Process:
    # With unbuffered output, lines of several workers would be mixed.
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return await asyncio.create_subprocess_exec(
        python,
        "-m",
        "tidemill_serving.handlers.worker",
        setup.to_argument(),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=fds,
        env=variables,
        start_new_session=True,  # keeps Ctrl-C from the worker, so that the server can finish requests first
    )
