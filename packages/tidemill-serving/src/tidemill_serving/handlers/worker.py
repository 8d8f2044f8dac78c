"""``python -m tidemill_serving.handlers.worker SETUP``: a process that runs the user's handlers.

The module is imported on the main thread, which also serves the first lane, so that handlers may use signals. Its
output goes to the server's standard output in whole lines. The process exits when the server does.
"""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from tidemill_serving.errors import RequestError
from tidemill_serving.handlers.answers import Answered, error_answer
from tidemill_serving.handlers.script import BadScript, print_error
from tidemill_serving.handlers.wire import PYTHON, WorkerSetup, frame, receive

_PR_SET_PDEATHSIG = 1


class HandlerScript(Protocol):
    """The handlers of one kind of endpoint."""

    names: tuple[str, ...]

    def answer(self, request: Mapping[str, Any], body: bytes) -> Answered:
        """Handle one request; exceptions of the handler propagate.

        Args:
            request: Header of the frame.

        Returns:
            Status, body and content type.
        """


def main(arguments: list[str]) -> int:
    """Load the user's module, report, and handle requests until the server closes the sockets.

    Args:
        arguments: One: the setup, as JSON.

    Returns:
        Exit status.
    """
    setup = WorkerSetup.from_argument(arguments[0])
    control = _socket(setup.control_fd)
    lanes = [_socket(fd) for fd in setup.lane_fds]
    with contextlib.suppress(OSError, AttributeError):  # Linux: works even if a handler never releases the GIL
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, write_through=False)  # pyrefly: ignore[missing-attribute]
    try:
        script = _load(setup)
    except BaseException as error:  # noqa: BLE001  # SystemExit too: the server must know why
        if not isinstance(error, BadScript):
            print_error(error)
        _report(control, {"failed": f"{error}" if isinstance(error, BadScript) else _summary(error)})
        return 1
    _report(control, {"handlers": list(script.names)})
    threading.Thread(target=_end_with, args=(control,), daemon=True).start()
    for lane in lanes[1:]:
        threading.Thread(target=_serve, args=(lane, script), daemon=True).start()
    _serve(lanes[0], script)
    return 0


def _socket(fd: int) -> socket.socket:
    os.set_inheritable(fd, False)  # processes that a handler starts must not keep the socket open
    return socket.socket(fileno=fd)


def _load(setup: WorkerSetup) -> HandlerScript:
    # Imported here, since each kind has imports that the other does not need.
    if setup.kind == PYTHON:
        from tidemill_serving.handlers.python_endpoint import PythonScript

        return PythonScript(setup)
    from tidemill_serving.handlers.tensorflow_serving import InferenceScript

    return InferenceScript(setup)


def _report(control: socket.socket, report: dict[str, Any]) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):
        control.sendall(b"".join(frame(report)))


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _end_with(control: socket.socket) -> None:
    """Exit when the server closes the control socket, also from within a handler."""
    with contextlib.suppress(OSError):
        control.recv(1)
    _exit(0)


def _serve(lane: socket.socket, script: HandlerScript) -> None:
    try:
        while (received := receive(lane)) is not None:
            answer = _answer(script, *received)
            for part in frame({"status": answer.status, "content_type": answer.content_type}, answer.body):
                lane.sendall(part)
    except OSError:
        _exit(0)  # the server has exited
    except BaseException as error:  # noqa: BLE001  # sys.exit in a handler ends the worker, on any thread
        print_error(error)
        _exit(1)


def _answer(script: HandlerScript, request: dict[str, Any], body: bytes) -> Answered:
    try:
        answer = script.answer(request, body)
    except Exception as error:  # noqa: BLE001  # fails the request, not the worker
        if isinstance(error, RequestError):  # the client's fault: a traceback would not help the user
            answer = error_answer(error, status=error.http_status)
        else:
            print_error(error)
            answer = error_answer(error)
    sys.stdout.flush()  # also write output without a line end, which belongs to this request
    return answer


def _exit(status: int) -> None:
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.path[0] in ("", os.getcwd()):  # noqa: PTH109
        del sys.path[0]  # the setup puts the user's directories there instead
    _exit(main(sys.argv[1:]))
