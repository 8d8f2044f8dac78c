"""The notice that the service answers: to the process that started it, and to systemd."""

import contextlib
import os
import socket


class Ready:
    """The pipe on which a parent waits: it receives the URL once, or end of file."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def __enter__(self) -> "Ready":
        if self._fd is not None:
            # Otherwise child processes would keep the pipe open, and the parent waiting.
            os.set_inheritable(self._fd, False)
        return self

    def __exit__(self, *_exception: object) -> None:
        self._close()

    def announce(self, url: str) -> None:
        _notify_systemd()
        if self._fd is not None:
            # The service also runs if the parent has exited.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, f"{url}\n".encode())
            self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _notify_systemd() -> None:
    """Tell systemd, if it started this process as a unit, that the service answers; children do not get to know it."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notice, contextlib.suppress(OSError):
        notice.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
