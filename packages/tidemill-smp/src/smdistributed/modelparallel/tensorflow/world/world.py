"""The connections of this rank to all others: messages, heartbeats, and the detection of lost ranks.

One thread per peer reads the connection into mailboxes, so a send waits only for the network. A message is identified
by (peer, tag); messages with the same tag stay in order. `receive` raises as soon as a rank is known to be lost, and
after `hang_timeout_s` in any case.
"""

import os
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from smdistributed.modelparallel.backend.exceptions import SMPDeadlockError, SMPPeerLostError
from smdistributed.modelparallel.tensorflow.world import wire
from smdistributed.modelparallel.tensorflow.world.lost_peers import DIED, FAILED, LEFT, LostPeer, LostPeers
from smdistributed.modelparallel.tensorflow.world.wire import Kind

HEARTBEAT_S = 1.0
_SENDING = struct.Struct("@ll")  # struct timeval


class _Link:
    """The connection to one peer."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.sending = threading.Lock()
        self.heard_s = time.monotonic()
        self.doing = ""
        """What the peer reports to be waiting for; empty while it works."""
        self.acknowledged = 0


class World:
    """This rank and its connections to all others."""

    def __init__(
        self,
        *,
        rank: int,
        local_rank: int,
        local_size: int,
        connections: dict[int, socket.socket],
        hang_timeout_s: float,
        name_of: Callable[[int], str] = "rank {}".format,
    ) -> None:
        self.rank = rank
        """Global rank of this process."""
        self.size = len(connections) + 1
        """Number of processes."""
        self.local_rank = local_rank
        """Rank of this process on its machine."""
        self.local_size = local_size
        """Number of processes on this machine."""
        self.hang_timeout_s = hang_timeout_s
        self.name_of = name_of
        """Describes a rank and its partition, for messages."""
        self._links = {peer: _Link(connection) for peer, connection in connections.items()}
        self._changed = threading.Condition()
        self._mailboxes: dict[tuple[int, int], deque[bytearray]] = defaultdict(deque)
        self._lost_peers = LostPeers(lambda rank: self.name_of(rank))
        self._doings: dict[int, str] = {}
        self._loss_listeners: list[Callable[[str], None]] = []
        self._doing_sources: list[Callable[[], str]] = []
        self._closing = threading.Event()
        self._process = os.getpid()

    def start(self) -> None:
        """Start reading messages and sending heartbeats."""
        for peer, link in self._links.items():
            limit = _SENDING.pack(int(self.hang_timeout_s), int(self.hang_timeout_s % 1 * 1e6) or 1)
            link.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            threading.Thread(target=self._read, args=(peer, link), name=f"smp-read-{peer}", daemon=True).start()
        if self._links:
            threading.Thread(target=self._beat, name="smp-heartbeat", daemon=True).start()

    # --- messages ---------------------------------------------------------------------------------------------

    def send(self, peer: int, tag: int, payload: bytes | memoryview, *, doing: str) -> None:
        """Send a message.

        Raises:
            SMPPeerLostError: If the peer has left, or any rank died or failed.
            SMPDeadlockError: If the peer has accepted no data for `hang_timeout_s`.
        """
        with self._changed:
            self._lost_peers.check((peer,), doing)
        with self._recording(doing):
            self._put(peer, Kind.MESSAGE, tag, payload, doing)

    def receive(self, peer: int, tag: int, *, doing: str) -> bytearray:
        """Wait for the next message of `tag` from `peer`.

        Raises:
            SMPPeerLostError: If the peer has left, or any rank died or failed.
            SMPDeadlockError: If no message has arrived for `hang_timeout_s`.
        """
        key = (peer, tag)
        with self._recording(doing), self._changed:
            self._wait(lambda: key in self._mailboxes, peer, doing)
            mailbox = self._mailboxes[key]
            message = mailbox.popleft()
            if not mailbox:
                del self._mailboxes[key]
        return message

    def acknowledge(self, peer: int, *, doing: str) -> None:
        """Acknowledge one more message of a peer."""
        self._put(peer, Kind.ACK, 0, b"", doing)

    def wait_acknowledged(self, peer: int, count: int, *, doing: str) -> None:
        """Wait until a peer has acknowledged `count` messages in total."""
        link = self._links[peer]
        with self._recording(doing), self._changed:
            self._wait(lambda: link.acknowledged >= count, peer, doing)

    # --- life and death ---------------------------------------------------------------------------------------

    def on_loss(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with an explanation, in a thread, when a rank dies or fails; now, if one already has."""
        with self._changed:
            self._loss_listeners.append(listener)
            lost = self._lost_peers.root_cause()
        if lost is not None:
            listener(self._lost_peers.explain(lost))

    def add_doing_source(self, source: Callable[[], str]) -> None:
        """Add a source of the description of this rank's wait, which is reported to its peers; empty if it does not
        wait."""
        self._doing_sources.append(source)

    def check(self, doing: str) -> None:
        """Raise if any rank died or failed.

        Raises:
            SMPPeerLostError: Names the operation of this rank.
        """
        with self._changed:
            self._lost_peers.check((), doing)

    def has_lost(self) -> bool:
        """Whether any rank died or failed."""
        with self._changed:
            return self._lost_peers.root_cause() is not None

    def describe(self, peer: int) -> str:
        """Return the current state of a peer, as the end of a sentence in an error message."""
        link = self._links[peer]
        silent_s = time.monotonic() - link.heard_s
        if silent_s > 5 * HEARTBEAT_S:
            return f"it has given no sign of life for {silent_s:.0f} s (stopped, or its machine lost)"
        if link.doing:
            return f"it is alive and itself waits in {link.doing}"
        return "it is alive and busy with something else (or stuck there)"

    def close(self, failure: str = "") -> None:
        """Send the other ranks the reason why this process ends, and disconnect without waiting for them."""
        if self._closing.is_set() or os.getpid() != self._process:
            return
        self._closing.set()
        kind, words = (Kind.FAILURE, failure.encode()[:2000]) if failure else (Kind.GOODBYE, b"")
        for link in self._links.values():
            if link.sending.acquire(timeout=1):
                with suppress(OSError):
                    link.connection.settimeout(1)
                    wire.send_frame(link.connection, kind, 0, words)
                    link.connection.shutdown(socket.SHUT_WR)
                link.sending.release()

    def forget_in_child(self) -> None:
        """Close the connections in a forked child, which is not a rank and must not keep them open."""
        for link in self._links.values():
            link.connection.close()

    # --- inside -----------------------------------------------------------------------------------------------

    def _put(self, peer: int, kind: Kind, tag: int, payload: bytes | memoryview, doing: str) -> None:
        link = self._links[peer]
        with link.sending:
            try:
                wire.send_frame(link.connection, kind, tag, payload)
            except BlockingIOError as error:
                raise self._deadlock(peer, doing) from error
            except OSError as error:
                with self._changed:
                    self._changed.wait_for(lambda: self._lost_peers.has(peer), timeout=1)  # its reader knows more
                    self._lost_peers.check((peer,), doing)
                raise SMPPeerLostError(f"{self.name_of(peer)} is gone: {error}; this rank was in {doing}") from error

    def _wait(self, is_there: Callable[[], bool], peer: int, doing: str) -> None:
        deadline = time.monotonic() + self.hang_timeout_s
        while not is_there():
            self._lost_peers.check((peer,), doing)
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise self._deadlock(peer, doing)
            self._changed.wait(remaining)

    def _deadlock(self, peer: int, doing: str) -> SMPDeadlockError:
        return SMPDeadlockError(
            f"{self.name_of(peer)} did not answer within {self.hang_timeout_s:g} s (hang_timeout_s) while this rank, "
            f"{self.name_of(self.rank)}, was in {doing}; {self.describe(peer)}"
        )

    @contextmanager
    def _recording(self, doing: str) -> Generator[None]:
        thread = threading.get_ident()
        before = self._doings.get(thread)
        self._doings[thread] = doing if before is None else before
        try:
            yield
        finally:
            if before is None:
                self._doings.pop(thread, None)

    def _read(self, peer: int, link: _Link) -> None:
        last = LostPeer(peer, DIED)
        try:
            while True:
                frame = wire.read_frame(link.connection)
                link.heard_s = time.monotonic()
                if frame.kind is Kind.GOODBYE:
                    last = LostPeer(peer, LEFT)
                elif frame.kind is Kind.FAILURE:
                    last = LostPeer(peer, FAILED, frame.payload.decode(errors="replace"))
                    break
                else:
                    self._take(peer, link, frame)
        except (OSError, EOFError, ValueError, MemoryError):
            pass
        self._record_loss(last)

    def _take(self, peer: int, link: _Link, frame: wire.Frame) -> None:
        if frame.kind is Kind.HEARTBEAT:
            link.doing = frame.payload.decode(errors="replace")
            return
        with self._changed:
            if frame.kind is Kind.ACK:
                link.acknowledged += 1
            else:
                self._mailboxes[peer, frame.tag].append(frame.payload)
            self._changed.notify_all()

    def _record_loss(self, lost: LostPeer) -> None:
        if self._closing.is_set():
            return
        with self._changed:
            news = self._lost_peers.add(lost) and lost.how != LEFT
            self._changed.notify_all()
            listeners = list(self._loss_listeners) if news else []
        for listener in listeners:
            listener(self._lost_peers.explain(lost))

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_S):
            words = [*list(self._doings.values())[:1], *(source() for source in self._doing_sources)]
            doing = next((word for word in words if word), "").encode()[:500]
            for link in self._links.values():
                # A send in progress, e.g. to a peer that accepts no data, must not delay heartbeats to the others.
                if not link.sending.acquire(blocking=False):
                    continue
                with suppress(OSError):
                    self._beat_once(link, doing)
                link.sending.release()

    def _beat_once(self, link: _Link, doing: bytes) -> None:
        whole = wire.pack_frame(Kind.HEARTBEAT, 0, doing)
        sent = link.connection.send(whole, socket.MSG_DONTWAIT)
        if sent < len(whole):
            link.connection.sendall(whole[sent:])
