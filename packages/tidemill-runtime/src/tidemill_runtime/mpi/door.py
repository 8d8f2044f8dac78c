"""``python -m tidemill_runtime.mpi.door DIRECTORY FILE HOST [OTHER ...]``: the door of an instance; see `network`.

The door listens at the instance's own address. It passes commands and notices of the other instances to the supervisor,
and delivers the notices that the supervisor writes to its standard input, one JSON line each. When that input ends, it
delivers what other instances may still wait for, and exits.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime import channel
from tidemill_runtime.mpi.handshake import NUM_PORTS, SupervisorConnection, answer, port_of
from tidemill_runtime.mpi.network import DOOR_OPEN, DOOR_SOCKET, Addresses, call, was_reached
from tidemill_runtime.mpi.peers import PATIENCE_S, write_notice
from tidemill_runtime.mpi.plan import ENDED, FAILED, Outcome
from tidemill_runtime.mpi.sockets import connect

if TYPE_CHECKING:
    from collections.abc import Sequence

_HANDSHAKE_S = 10.0
_FINISH_S = 10.0
_FEW_TRIES = 3
_TRY_S = 0.2
_STRANGERS = 64
_BACKLOG = 128
_CHUNK_BYTES = 1 << 16


class Door:
    """The door of one instance.

    Args:
        directory: Directory of its supervisor.
        addresses: Addresses of all instances, and the secret.

    Raises:
        OSError: There is no free port.
    """

    def __init__(self, directory: Path, addresses: Addresses, *, host: str) -> None:
        self._directory = directory
        self._addresses = addresses
        self._host = host
        self._rooms = threading.Semaphore(_STRANGERS)
        self._busy: list[threading.Thread] = []
        self._listener = self._listen()

    def serve(self) -> None:
        """Accept connections of the other instances, each in a thread."""
        while True:
            self._rooms.acquire()
            raw, _ = self._listener.accept()
            threading.Thread(target=self._serve_connection, args=(raw,), daemon=True).start()

    def finish(self) -> None:
        """Send the other instances the answers that they wait for: results of commands, and receipts of notices."""
        for thread in list(self._busy):
            thread.join(_FINISH_S)

    def deliver(self, notice: str, outcome: dict[str, Any], *, to: str) -> None:
        """Deliver a notice. Until an instance has begun, retry only notices that it may wait for.

        Args:
            outcome: Fields of the outcome.
        """
        waited_for = notice == ENDED and outcome["exit_code"] == 0
        until = time.monotonic() + PATIENCE_S
        tries = 0
        while (time.monotonic() < until if waited_for else tries < _FEW_TRIES) and not was_reached(self._directory, to):
            if self._try_to_deliver(notice, outcome, to):
                return
            tries += 1
            time.sleep(_TRY_S)
        self._try_to_deliver(notice, outcome, to)

    def _try_to_deliver(self, notice: str, outcome: dict[str, Any], to: str) -> bool:
        connection = call(self._addresses, to)
        if connection is None:
            return False
        try:
            connection.raw.settimeout(_HANDSHAKE_S)
            connection.send({"notice": notice, "outcome": outcome, "sender": self._host})
            return connection.receive() is not None
        except (OSError, ValueError):
            return False
        finally:
            connection.close()

    def _listen(self) -> socket.socket:
        address = self._addresses.addresses[self._host]
        failed: OSError | None = None
        for number in range(NUM_PORTS):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port_of(self._addresses.secret, self._host, number)))
                listener.listen(_BACKLOG)
                return listener
            except OSError as error:
                listener.close()
                failed = error
        raise OSError(f"{self._host} cannot listen at {address} for the other instances of the job: {failed}")

    def _serve_connection(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            raw.settimeout(_HANDSHAKE_S)
            try:
                raw = self._addresses.secured(raw, server=True)
                connection = answer(raw, secret=self._addresses.secret, host=self._host)
                message = connection.receive()
            except (OSError, ValueError):
                raw.close()
                return
            finally:
                self._rooms.release()
            raw.settimeout(None)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                self._handle(connection, message or {})
            finally:
                connection.close()

    def _handle(self, connection: SupervisorConnection, message: dict[str, Any]) -> None:
        self._busy.append(threading.current_thread())
        if "command" in message:
            self._run(connection, str(message["command"]))
        elif message.get("notice") in (FAILED, ENDED) and message.get("sender") in self._addresses.addresses:
            outcome = Outcome(**message["outcome"])
            write_notice(self._directory, message["notice"], outcome, sender=message["sender"])
            connection.send({})
            with contextlib.suppress(OSError):  # the supervisor has ended
                supervisor = connect(str(self._directory), DOOR_SOCKET)
                channel.send(supervisor, {})
                supervisor.close()

    def _run(self, connection: SupervisorConnection, command: str) -> None:
        """Pass a command to the supervisor, and pass its output and exit status back."""
        supervisor = connect(str(self._directory), DOOR_SOCKET)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        try:
            channel.send(supervisor, {"command": command}, descriptors=(null, pipes[0][1], pipes[1][1]))
        finally:
            for fd in (null, pipes[0][1], pipes[1][1]):
                os.close(fd)
        with selectors.DefaultSelector() as selector, supervisor:
            for stream, (fd, _) in enumerate(pipes, 1):
                os.set_blocking(fd, False)
                selector.register(fd, selectors.EVENT_READ, stream)
            selector.register(supervisor, selectors.EVENT_READ)
            selector.register(connection.raw, selectors.EVENT_READ)
            try:
                self._forward_output(connection, selector, supervisor)
            finally:
                for fd, _ in pipes:
                    os.close(fd)

    def _forward_output(
        self, connection: SupervisorConnection, selector: selectors.BaseSelector, supervisor: socket.socket
    ) -> None:
        while True:
            ready = {key.fd: key.data for key, _ in selector.select()}
            streams = {fd: stream for fd, stream in ready.items() if stream is not None}
            for fd, stream in streams.items():
                data = _read(fd)
                if data == b"":
                    selector.unregister(fd)
                elif data:
                    connection.send({"stream": stream, "text": data.decode("latin-1")})
            if connection.raw.fileno() in ready:
                return  # mpirun has ended, and its daemon notices that
            if supervisor.fileno() in ready and not streams:
                ended = channel.receive(supervisor)
                connection.send({"status": ended.content["status"] if ended else 1})
                return


def main(directory: str, file: str, host: str, others: Sequence[str]) -> int:
    """Run the door until the supervisor has ended and all its notices are delivered.

    Args:
        file: File of the instances' addresses.

    Returns:
        0, or 1 if the door cannot listen.
    """
    try:
        door = Door(Path(directory), Addresses.read(Path(file)), host=host)
    except OSError as error:
        print(error, flush=True)  # noqa: T201
        return 1
    print(DOOR_OPEN, flush=True)  # noqa: T201
    threading.Thread(target=door.serve, daemon=True).start()
    deliveries = []
    for line in sys.stdin:
        notice = json.loads(line)
        for other in others:
            deliveries.append(
                threading.Thread(target=door.deliver, args=(notice["notice"], notice["outcome"]), kwargs={"to": other})
            )
            deliveries[-1].start()
    door.finish()
    for thread in deliveries:
        thread.join()
    return 0


def _read(fd: int) -> bytes | None:
    """Return the available bytes; empty at the end; None if none are available now."""
    try:
        return os.read(fd, _CHUNK_BYTES)
    except BlockingIOError:
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
