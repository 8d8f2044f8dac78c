"""TLS between ranks. All ranks run on one machine; `SMP_SOCKETS=tcp` makes them use TCP, as on several machines."""

import contextlib
import os
import socket
import subprocess
import sys
import threading

import pytest

import ranks
import smdistributed.modelparallel.tensorflow as smp
from ports import reserved_port
from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow._shared.encryption.certificate import make_certificate
from smdistributed.modelparallel.tensorflow._shared.encryption.tunnel import _Tunnel, enclose
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import encrypts
from smdistributed.modelparallel.tensorflow.world.rendezvous import rank_errors
from test_world import exchange_by_both

SECRET, OTHER = b"a" * 32, b"b" * 32
WAIT_S = 30.0
ENCRYPTED = {"SMP_SOCKETS": "tcp", "SMP_ENCRYPTION": "1"}
MARK = b"gradients of a secret model"


class Wiretap:
    """Forwards a connection, and records the bytes in both directions."""

    def __init__(self):
        self.captured = {"to": bytearray(), "from": bytearray()}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = socket.create_server(("127.0.0.1", 0))
        self._threads = []
        self._passed_on = []

    def ends(self):
        """Return the two ends of a tapped connection."""
        near = socket.create_connection(self._listener.getsockname())
        tapped, _ = self._listener.accept()
        onward = socket.create_connection(self._target.getsockname())
        far, _ = self._target.accept()
        self._passed_on += [tapped, onward]
        for source, target, way in ((tapped, onward, "to"), (onward, tapped, "from")):
            self._threads.append(threading.Thread(target=self._pass_on, args=(source, target, way)))
            self._threads[-1].start()
        return near, far

    def close(self):
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        for each in (self._listener, self._target, *self._passed_on):
            each.close()

    def _pass_on(self, source, target, way):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.captured[way] += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def both(near, far, *, near_secret=SECRET, far_secret=SECRET):
    """Return the encrypted ends of a connection, or the errors in their place."""
    found = {}

    def begin(name, raw, secret, server):
        try:
            found[name] = enclose(raw, secret, server=server, timeout_s=WAIT_S)
        except OSError as error:
            found[name] = error

    thread = threading.Thread(target=begin, args=("far", far, far_secret, True))
    thread.start()
    begin("near", near, near_secret, False)
    thread.join()
    return found["near"], found["far"]


def read_all(connection):
    parts = []
    while data := connection.recv(1 << 20):
        parts.append(data)
    return b"".join(parts)


def test_a_certificate_depends_on_the_secret_alone():
    certificate, key = make_certificate(SECRET)
    assert make_certificate(SECRET) == (certificate, key)
    other = make_certificate(OTHER)
    assert other[0] != certificate
    assert other[1] != key


def test_sent_data_arrives_and_is_encrypted_in_transit():
    tap = Wiretap()
    near, far = both(*tap.ends())
    there, back = MARK * 100_000, MARK * 50_000
    with near, far:

        def answer():
            assert read_all(far) == there
            far.sendall(back)
            far.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=answer)
        thread.start()
        near.sendall(there)
        near.shutdown(socket.SHUT_WR)
        assert read_all(near) == back, "one direction goes on when the other has ended"
        thread.join()
    tap.close()
    assert len(tap.captured["to"]) > len(there)
    assert len(tap.captured["from"]) > len(back)
    for captured in tap.captured.values():
        assert MARK not in captured
        assert SECRET not in captured


def test_a_side_without_the_secret_is_refused_by_the_other():
    tap = Wiretap()
    near, far = both(*tap.ends(), far_secret=OTHER)
    tap.close()
    assert isinstance(far, OSError)
    if not isinstance(near, OSError):  # in TLS 1.3, the connecting side may finish first
        with near:
            assert near.recv(1) == b""


def test_a_side_that_does_not_encrypt_is_refused():
    tap = Wiretap()
    near, far = tap.ends()
    with near:
        near.sendall(b"a frame in the clear" * 100)
        with pytest.raises(OSError, match=r"(?i)wrong|version|ssl"):
            enclose(far, SECRET, server=True, timeout_s=WAIT_S)
    tap.close()


WRITER = """
import socket, sys
from smdistributed.modelparallel.tensorflow._shared.encryption.tunnel import enclose
raw = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
assert "cryptography" not in sys.modules, "a process that does not encrypt does not wait for its import"
connection = enclose(raw, bytes.fromhex(sys.argv[2]), server=False, timeout_s=30)
connection.sendall(bytes(int(sys.argv[3])))
"""


def test_data_written_before_a_rank_ended_is_delivered():
    size_bytes = 300_000  # more than the peer's tunnel reads in one call, less than the socket buffers hold
    with socket.create_server(("127.0.0.1", 0)) as listener:
        arguments = [str(listener.getsockname()[1]), SECRET.hex(), str(size_bytes)]
        process = subprocess.Popen([sys.executable, "-c", WRITER, *arguments], env=os.environ)
        raw, _ = listener.accept()
        with enclose(raw, SECRET, server=True, timeout_s=WAIT_S) as connection:
            assert len(read_all(connection)) == size_bytes
    assert process.wait(WAIT_S) == 0


class SlowEncryption:
    """A TLS object and its output, whose encryption takes until it is told to end."""

    def __init__(self):
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def write(self, data):
        self.has_begun.set()
        assert self.may_end.wait(WAIT_S)

    def read(self):
        return b"encrypted"


def test_bytes_that_are_just_being_encrypted_are_waited_for_at_the_exit():
    tls, (raw, peer), (near, far) = SlowEncryption(), socket.socketpair(), socket.socketpair()
    held = _Tunnel(raw, far, tls, None, tls)
    near.sendall(b"data")
    sending = threading.Thread(target=held._send)
    sending.start()
    try:
        assert tls.has_begun.wait(WAIT_S)
        assert held.holds_bytes()
    finally:
        tls.may_end.set()
        sending.join()
        near.close()
        held.close()
    with peer:
        assert peer.recv(100) == b"encrypted"
    assert not held.holds_bytes()


def test_ranks_exchange_objects_and_tensors_over_encrypted_connections():
    assert ranks.run(2, exchange_by_both, environment=ENCRYPTED) == [([0, 1], 1.0), ([0, 1], 0.0)]


def test_ranks_connect_through_a_store_at_an_address_over_encrypted_connections():
    with reserved_port() as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
        results = ranks.run(2, exchange_by_both, environment={**ENCRYPTED, "SMP_STORE": address})
    assert results == [([0, 1], 1.0), ([0, 1], 0.0)]


def tensors_go_through_tunnels():
    threads = [thread.name for thread in threading.enumerate()]
    smp.barrier()
    return threads.count("tls-tunnel")


def test_each_connection_of_a_rank_has_a_tunnel():
    assert ranks.run(2, tensors_go_through_tunnels, environment=ENCRYPTED) == [2, 2], "objects, and tensors"


def test_another_value_is_refused(monkeypatch):
    monkeypatch.setenv("SMP_ENCRYPTION", "yes")
    with pytest.raises(SMPConfigurationError, match="SMP_ENCRYPTION is 'yes'; allowed is 0 or 1"), rank_errors():
        encrypts()


def test_encryption_without_its_package_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("SMP_ENCRYPTION", "1")
    assert encrypts()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    words = r"SMP_ENCRYPTION is 1: .* cryptography, which is not installed"
    with pytest.raises(SMPConfigurationError, match=words), rank_errors():
        encrypts()
