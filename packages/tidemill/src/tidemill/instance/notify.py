"""The datagram socket by which shims wake the server: `STATE/notify.sock`."""

import contextlib
import re
import socket
from pathlib import Path

from tidemill.core.instances import InstanceRef
from tidemill.core.socket_paths import short_path

_NAME = "notify.sock"
_MESSAGE = re.compile(rb"([0-9a-f]{1,64})/([0-9]{1,6})(?:/([0-9]{1,6}))?")
_MAX_BYTES = 128


def notify(state_dir: Path, ref: InstanceRef) -> None:
    """Notify the server, if one runs, that the state of ``ref`` has changed. A lost message costs only time.

    Args:
        state_dir: The state directory.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with short_path(state_dir / _NAME) as path:
            sender.sendto(ref.mark.encode(), path)


class NotifySocket:
    """The server's end. It replaces a socket left over from an earlier server."""

    def __init__(self, state_dir: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        (state_dir / _NAME).unlink(missing_ok=True)
        with short_path(state_dir / _NAME) as path:
            self._socket.bind(path)
        (state_dir / _NAME).chmod(0o600)

    def fileno(self) -> int:
        return self._socket.fileno()

    def receive(self) -> set[InstanceRef]:
        """Return the instances of all messages that have arrived; invalid messages are ignored."""
        refs: set[InstanceRef] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                match = _MESSAGE.fullmatch(self._socket.recv(_MAX_BYTES))
                if match:
                    refs.add(InstanceRef(match[1].decode(), int(match[2]), int(match[3] or 1)))
        return refs

    def close(self) -> None:
        self._socket.close()
