"""Read objects of remote S3 stores: each byte once and in order, even if connections break.

The service and the instances read through this module, whatever they do with the bytes.
Each request is signed when it is sent. Redirections are not followed, so that only servers named in the settings get
requests.
"""

import contextlib
import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Generator
from http.client import HTTPConnection, HTTPException, HTTPResponse
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tidemill.instance.remote_s3 import RemoteUnusable
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import RemoteObject

_SILENCE_TIMEOUT_S = 60.0
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger
_TRIES = 6  # in a row that received no byte
_FIRST_PAUSE_S = 0.2
_ERROR_BYTES = 4096
_OK, _PARTIAL, _MISSING, _REPLACED, _TOO_MANY, _SERVER_FAULTS = 200, 206, 404, 412, 429, range(500, 600)
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")
_CREDENTIALS = "check the credentials and what they allow"
_ADVICE = {
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    404: "it was deleted after the job was created. Keep the objects of a job until it has ended",
    412: "it was replaced after the job was created. Keep the objects of a job until it has ended",
}


class RemoteFault(Exception):
    """An object cannot be read; the message is one line with the object, the endpoint and the reason.

    Args:
        reason: The reason alone.
        status: HTTP status of the answer; 0 without one.
        is_gone: Whether the object was removed or replaced.
    """

    def __init__(self, message: str, *, reason: str, status: int, is_gone: bool) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.is_gone = is_gone


class TransfersClosed(Exception):
    """The group of transfers was closed."""


class _Broken(Exception):
    """A transient error, after which the request is repeated; with the HTTP status of the answer, or 0."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Transfers:
    """A group of transfers that can be ended together, and their shared connections. May be used by several threads."""

    def __init__(self, stores: RemoteStores) -> None:
        self.stores = stores
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._open: set[_Connection] = set()
        self._idle: list[_Connection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all transfers at once, even while other threads wait for them."""
        self._closed.set()
        with self._lock:
            for connection in self._open:
                connection.interrupt()
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def check(self) -> None:
        """Raise if the group was closed.

        Raises:
            TransfersClosed: The group was closed.
        """
        if self._closed.is_set():
            raise TransfersClosed

    def pause(self, pause_s: float) -> None:
        """Wait for ``pause_s`` seconds, or until `close`."""
        self._closed.wait(pause_s)

    @contextlib.contextmanager
    def connection(self, scheme: str, netloc: str) -> Generator["_Connection"]:
        """Yield a connection to a server. It is kept for the next transfer if its ``reusable`` is true afterwards."""
        connection = self._take(scheme, netloc)
        try:
            yield connection
        except BaseException:
            connection.reusable = False
            raise
        finally:
            with self._lock:
                self._open.discard(connection)
                if connection.reusable and not self._closed.is_set():
                    self._idle.append(connection)
                else:
                    connection.close()

    def forget_idle(self) -> None:
        """Close all idle connections. Called after one connection broke, because the others may be broken too."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _take(self, scheme: str, netloc: str) -> "_Connection":
        tls = self.stores.tls() if scheme == "https" else None
        with self._lock:
            self.check()
            found = next((each for each in self._idle if each.place == (scheme, netloc)), None)
            if found:
                self._idle.remove(found)
            if found and found.was_ended():
                found.close()
                found = None
            connection = found or _Connection(scheme, netloc, tls, connect_timeout_s=self.stores.connect_timeout_s)
            connection.reusable = False
            self._open.add(connection)
            return connection


class RemoteBody:
    """The bytes of one object. After a broken connection, reading continues at the next byte over a new connection."""

    def __init__(self, entry: RemoteObject, transfers: Transfers) -> None:
        self._entry = entry
        self._transfers = transfers
        self._etag = entry.etag

    def pieces(self, piece_bytes: int, *, start: int = 0, end: int | None = None) -> Generator[bytes]:
        """Yield the object in pieces of at most ``piece_bytes``.

        Args:
            piece_bytes: Maximum length of a piece.
            start: Offset of the first byte. Default: the start of the object.
            end: Offset after the last byte. Default: the end of the object.

        Raises:
            RemoteFault: The object cannot be read completely, or has changed since the job was planned.
            TransfersClosed: The group was closed.
        """
        offset, failures = start, 0
        end = self._entry.size_bytes if end is None else end
        while True:
            before = offset
            try:
                for piece in self._received(piece_bytes, offset, end):
                    offset += len(piece)
                    yield piece
                return
            except (OSError, HTTPException, _Broken) as error:
                self._transfers.check()
                self._transfers.forget_idle()
                failures = 1 if offset > before else failures + 1
                if failures >= _TRIES or isinstance(error, ssl.SSLCertVerificationError):
                    raise self._broken_off(error) from error
            self._transfers.pause(_FIRST_PAUSE_S * 2 ** (failures - 1))

    def _received(self, piece_bytes: int, offset: int, end: int) -> Generator[bytes]:
        """Yield what one connection delivers."""
        with self._response(offset, end) as response:
            while piece := response.read1(piece_bytes):
                offset += len(piece)
                yield piece
            if offset < end:
                raise _Broken(f"the connection ended at byte {offset} of {end}")

    @contextlib.contextmanager
    def _response(self, offset: int, end: int) -> Generator[HTTPResponse]:
        """Yield the answer to a request for the bytes from ``offset`` to ``end``."""
        try:
            url = urlsplit(self._transfers.stores.link(self._entry))
        except RemoteUnusable as error:
            raise self._fault(str(error), status=403) from error
        target = f"{url.path}?{url.query}" if url.query else url.path
        headers = {"Accept-Encoding": "identity"}
        if self._etag:
            headers["If-Match"] = self._etag
        if end < self._entry.size_bytes:
            headers["Range"] = f"bytes={offset}-{end - 1}"
        elif offset:
            headers["Range"] = f"bytes={offset}-"
        with self._transfers.connection(url.scheme, url.netloc) as connection:
            connection.request("GET", target, headers=headers)
            with connection.getresponse() as response:
                self._check(response, offset, end)
                yield response
                connection.reusable = response.length == 0 and not response.will_close

    def _check(self, response: HTTPResponse, offset: int, end: int) -> None:
        entry, status = self._entry, response.status
        if status == _TOO_MANY or status in _SERVER_FAULTS:
            raise _Broken(f"HTTP {status} {_code(response)}".rstrip(), status)
        if status not in (_OK, _PARTIAL):
            code, advice = _code(response), _ADVICE.get(status, "check endpoint_url, region and credentials")
            is_gone = status == _REPLACED or (status == _MISSING and code in ("", "NoSuchKey"))
            raise self._fault(f"HTTP {status} {code}".rstrip(), advice=advice, status=status, is_gone=is_gone)
        etag = response.headers.get("ETag")
        self._etag = self._etag or etag or ""
        if etag != self._etag and self._etag:  # from a store that ignores If-Match
            raise self._fault(f"its ETag is {etag}, and was {self._etag}", advice=_ADVICE[_REPLACED], is_gone=True)
        partial, content_range = offset or end < entry.size_bytes, response.headers.get("Content-Range") or ""
        if partial and not content_range.startswith(f"bytes {offset}-"):
            raise self._fault(f"it is read from byte {offset}, and the store does not answer ranges")
        found = content_range.rpartition("/")[2] if partial else str(response.length)
        if found != str(entry.size_bytes) or response.length != end - offset:
            reason = f"it has {found} bytes, and had {entry.size_bytes}"
            raise self._fault(reason, advice=_ADVICE[_REPLACED], is_gone=True)

    def _broken_off(self, error: Exception) -> RemoteFault:
        """Return the error for a transient one that has lasted too long."""
        if isinstance(error, _Broken):
            return self._fault(str(error), status=error.status)
        late = isinstance(error, TimeoutError)
        reason = "nothing came in time" if late else getattr(error, "strerror", None) or error or type(error).__name__
        return self._fault(str(reason), advice="check endpoint_url and the network")

    def _fault(self, reason: str, *, advice: str = "", status: int = 0, is_gone: bool = False) -> RemoteFault:
        place = self._transfers.stores.endpoint(self._entry)
        said = f"{reason}; {advice}" if advice else reason
        message = f"{self._entry.uri} cannot be read from {place}: {said}"
        return RemoteFault(message, reason=reason, status=status, is_gone=is_gone)


class _Connection(HTTPConnection):
    """A connection that another thread can interrupt.

    Args:
        scheme: ``http`` or ``https``.
        netloc: Host and port.
        tls: TLS context that verifies the server; None for http.
        connect_timeout_s: Longest time until a connection to one address is made.
    """

    def __init__(self, scheme: str, netloc: str, tls: ssl.SSLContext | None, *, connect_timeout_s: float) -> None:
        self.default_port = 80 if tls is None else 443
        super().__init__(netloc)
        self.place = (scheme, netloc)
        self.reusable = False
        self._tls = tls
        self._connect_timeout_s = connect_timeout_s
        self._socket: socket.socket | None = None
        self._interrupted = False

    def connect(self) -> None:
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        for number, (family, kind, protocol, _, address) in enumerate(found, 1):
            sock = self._use(socket.socket(family, kind, protocol))
            sock.settimeout(self._connect_timeout_s)
            try:
                sock.connect(address)
                break
            except OSError:
                sock.close()
                if number == len(found):
                    raise
        self._check_interrupted(sock)  # a socket that is still connecting cannot be shut down
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls:
            # Separate the handshake from wrap_socket, so that `interrupt` can end it.
            tls = self._tls.wrap_socket(sock, server_hostname=self.host, do_handshake_on_connect=False)
            self._use(tls)
            tls.do_handshake()
            sock = tls
        sock.settimeout(_SILENCE_TIMEOUT_S)
        self.sock = sock

    def was_ended(self) -> bool:
        """Return whether the store has ended an idle connection."""
        return self._socket is not None and bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        super().close()
        if self._socket is not None:
            self._socket.close()

    def interrupt(self) -> None:
        """End the operation of another thread on this connection, and reset the connection to the store."""
        self._interrupted = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # After a shutdown, Linux does not send window updates when the other thread reads the rest. A store
                # whose send window was full would then wait for minutes. A reset ends its wait at once.
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                # Not the method of the TLS socket, which would remove the TLS object that the other thread uses.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _use(self, sock: socket.socket) -> socket.socket:
        self._socket = sock
        self._check_interrupted(sock)
        return sock

    def _check_interrupted(self, sock: socket.socket) -> None:
        if self._interrupted:
            sock.close()
            raise TransfersClosed


def _code(response: HTTPResponse) -> str:
    """Return the S3 error code of an answer; empty without one."""
    with contextlib.suppress(OSError, HTTPException):
        found = _CODE.search(response.read(_ERROR_BYTES))
        return found[1].decode() if found else ""
    return ""
