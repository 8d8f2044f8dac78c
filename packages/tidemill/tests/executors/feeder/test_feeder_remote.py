"""Channels with objects in a remote S3: a real one, over connections that break."""

import collections
import gzip
import random
import select
import socket
import ssl
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tidemill.core.remotes import RemoteS3
from tidemill.instance.remote_s3 import remote_client
from tidemill.instance.remote_stores import RemoteStores
from tidemill.instance.spec import InlineText, RemoteObject
from tidemill.instance.transfers import RemoteBody, Transfers, TransfersClosed


@pytest.fixture
def far(stage: Any, remote: Any) -> Any:
    """Add the remote store to the stage, and return it."""
    stage.remotes = remote.remotes
    return remote


def noise(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def test_remote_objects_are_streamed_epoch_after_epoch(stage: Any, far: Any) -> None:
    contents = [noise(size, size) for size in (0, 1, 100_000, 3_000_000, 5, 0, 7)]
    entries = [far.put(f"a b/ü+%2F?#;&='~{number}", content) for number, content in enumerate(contents)]
    with stage.feeding(*entries):
        for epoch in range(3):
            assert stage.read(epoch) == b"".join(contents)
            assert stage.outcome(epoch)["state"] == "ok"
            assert stage.outcome(epoch)["objects"] == 7


@pytest.mark.parametrize("wrapper", ["None", "RecordIO"])
@pytest.mark.parametrize("compression", ["None", "Gzip"])
def test_they_are_unpacked_and_wrapped_like_local_ones(stage: Any, far: Any, compression: str, wrapper: str) -> None:
    contents = [noise(size, size) for size in (3, 70_001, 10_000_000)]
    packed = [gzip.compress(content, 1) if compression == "Gzip" else content for content in contents]
    entries = [far.put(f"{number}", content) for number, content in enumerate(packed)]
    mixed = [entries[0], InlineText(text="label"), entries[1], stage.object("local", packed[0]), entries[2]]
    expected = [contents[0], b"label", contents[1], contents[0], contents[2]]
    with stage.feeding(*mixed, compression=compression, record_wrapper=wrapper):
        data = stage.read()
    assert data == b"".join(stage.record(each) if wrapper == "RecordIO" else each for each in expected)


def test_shards_and_shuffling_are_those_of_local_objects(stage: Any, far: Any) -> None:
    contents = [b"%02d," % number for number in range(20)]
    options = {"share": (1, 2), "shuffle_seed": 3}
    with stage.feeding(*(stage.object(f"{n}", content) for n, content in enumerate(contents)), **options):
        expected = [stage.read(0), stage.read(1)]
    for fifo in stage.data.glob("train_*"):
        fifo.unlink()
    with stage.feeding(*(far.put(f"{n:02}", content) for n, content in enumerate(contents)), **options):
        assert [stage.read(0), stage.read(1)] == expected


def test_a_transfer_continues_where_its_connection_broke(stage: Any, far: Any) -> None:
    contents = [noise(1_000_000, 1), noise(700_000, 2)]
    entries = [far.put(f"{number}", content) for number, content in enumerate(contents)]
    far.wire.cut_after = 150_001
    with stage.feeding(*entries):
        assert stage.read() == b"".join(contents)
        assert stage.outcome()["state"] == "ok"
    ranged = [head for head in far.wire.requests if "\r\nRange: bytes=" in head]
    assert len(ranged) >= 10
    assert all(f"\r\nIf-Match: {entries[0].etag}" in head or entries[1].etag in head for head in far.wire.requests)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"])
def test_requests_to_an_unavailable_store_are_retried(stage: Any, far: Any, answer: bytes) -> None:
    entry = far.put("a", b"data")
    far.wire.answer, far.wire.cut_after = answer, 0 if not answer else 1 << 60

    class Returning(list[str]):
        def append(self, head: str) -> None:
            super().append(head)
            if len(self) == 2:
                far.wire.answer, far.wire.cut_after = b"", 1 << 60

    far.wire.requests = Returning()
    with stage.feeding(entry):
        assert stage.read() == b"data"
        assert stage.outcome()["state"] == "ok"
    assert len(far.wire.requests) >= 2


def fails(stage: Any, far: Any, *entries: Any, **options: Any) -> str:
    """Return the error of an epoch, after checking that it equals the feeder's and is in the log."""
    with stage.feeding(*entries, **options) as feeder:
        stage.read()
        outcome = stage.outcome()
    assert outcome["state"] == "error"
    assert str(feeder.failure).startswith(f"ClientError: channel 'train', epoch 0: {outcome['error']}"[:1000])
    assert any(outcome["error"][:200] in line for line in stage.lines)
    assert f"{entries[-1].uri} cannot be read from {far.wire.url}: " in outcome["error"]
    return str(outcome["error"])


def test_an_object_that_was_replaced_is_not_streamed(stage: Any, far: Any) -> None:
    first, second = far.put("a", b"first"), far.put("b", b"second")
    far.put("b", b"SECOND")
    error = fails(stage, far, first, second)
    assert "HTTP 412 PreconditionFailed; it was replaced after the job was created" in error
    assert stage.outcome()["bytes"] == 5
    assert stage.outcome()["objects"] == 1


def test_an_object_that_is_replaced_between_two_halves_is_not_mixed(stage: Any, far: Any) -> None:
    old = far.put("a", b"o" * 500_000)

    class Replacing(list[str]):
        def append(self, head: str) -> None:
            if len(self) == 1:
                far.put("a", b"n" * 500_000)
            super().append(head)

    far.wire.requests, far.wire.cut_after = Replacing(), 200_000
    with stage.feeding(old):
        data = stage.read()
        assert set(data) == set(b"o")
        assert 0 < len(data) < 500_000
        assert stage.outcome()["bytes"] == len(data)
        assert "HTTP 412" in stage.outcome()["error"]


def test_a_deleted_object_is_an_error_that_names_it(stage: Any, far: Any) -> None:
    entry = far.put("a", b"first")
    far.s3.delete_object(Bucket=far.bucket, Key="a")
    assert "HTTP 404 NoSuchKey; it was deleted after the job was created" in fails(stage, far, entry)


def test_keys_that_are_not_those_of_the_store_are_named_as_the_cause(
    stage: Any, far: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    error = fails(stage, far, far.put("a", b"first"))
    assert "HTTP 403 SignatureDoesNotMatch; check the credentials and what they allow" in error


def test_missing_credentials_are_an_error_with_advice(stage: Any, far: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = far.put("a", b"first")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    assert "there are no credentials for" in fails(stage, far, entry)
    assert far.wire.requests == []


def test_an_endpoint_without_a_listener_is_an_error(stage: Any, far: Any) -> None:
    entry = far.put("a", b"first")
    far.wire.close()
    assert "Connection refused; check endpoint_url and the network" in fails(stage, far, entry)


def test_a_redirection_is_not_followed(stage: Any, far: Any) -> None:
    far.wire.answer = b"HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    assert "HTTP 307; check endpoint_url, region and credentials" in fails(stage, far, far.put("a", b"first"))


def test_a_store_without_if_match_is_detected(stage: Any, far: Any) -> None:
    far.wire.answer = b'HTTP/1.1 200 OK\r\nETag: "other"\r\nContent-Length: 5\r\n\r\nwrong'
    entry = far.put("a", b"first")
    assert f'its ETag is "other", and was {entry.etag}' in fails(stage, far, entry)
    assert stage.outcome()["bytes"] == 0


def test_a_truncated_gzip_object_is_an_error(stage: Any, far: Any) -> None:
    with stage.feeding(far.put("a", gzip.compress(noise(100_000))[:-9]), compression="Gzip"):
        stage.read()
        assert f"s3://{far.bucket}/a is truncated" in stage.outcome()["error"]


def test_a_reader_that_leaves_ends_the_transfers_of_its_epoch(stage: Any, far: Any) -> None:
    entries = [far.put(f"{number}", noise(6_000_000, number)) for number in range(6)]
    with stage.feeding(*entries):
        with stage.ended(stage.reader("fifo.read(10)")) as reader:
            reader.wait(30)
        stage.wait_until(lambda: stage.outcome()["state"] == "error")
        assert "the reader left" in stage.outcome()["error"]
        assert len(stage.read(1)) == 36_000_000


class FullWindow:
    """A store that sends one object without end, and reports when the client reads so little that it must wait."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.end: OSError | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._send, daemon=True)
        self.thread.start()

    def _send(self) -> None:
        client, _ = self._listener.accept()
        with self._listener, client:
            client.recv(65536)
            client.sendall(b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 1000000000\r\n\r\n')
            while select.select([], [client], [], 1)[1]:
                client.send(bytes(65536))
            self.waits.set()
            try:
                client.sendall(bytes(100_000_000))
            except OSError as error:
                self.end = error


def test_a_store_that_waits_for_window_space_is_disconnected_when_transfers_close() -> None:
    store = FullWindow()
    entry = RemoteObject(uri="s3://bucket/a", name="a", size_bytes=1_000_000_000, etag='"e"', remote="bucket")
    transfers = Transfers(RemoteStores({"bucket": RemoteS3(endpoint_url=store.url, anonymous=True)}))
    pieces = RemoteBody(entry, transfers).pieces(1 << 18)
    next(pieces)
    assert store.waits.wait(60)
    transfers.close()
    with pytest.raises(TransfersClosed):
        collections.deque(pieces)  # reads what has arrived, as the thread of a transfer does
    store.thread.join(30)
    assert isinstance(store.end, ConnectionError)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the time limit for silent stores above what a busy machine can take for everything else."""
    monkeypatch.setattr("tidemill.instance.transfers._SILENCE_TIMEOUT_S", 600.0)


@pytest.mark.usefixtures("patient")
def test_a_store_that_falls_silent_does_not_keep_the_feeder_from_ending(stage: Any, far: Any) -> None:
    entries = [far.put(f"{number}", noise(1_000_000, number)) for number in range(3)]
    far.wire.silent_after = 300_000
    with stage.feeding(*entries), stage.ended(stage.reader("fifo.read(1); print(flush=True); fifo.read()")) as reader:
        reader.stdout.readline()
        stage.wait_until(lambda: len(far.wire.requests) == 3)
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 300  # and not as long as a silent store is waited for
    assert stage.outcome()["state"] in ("writing", "error")  # by whether reader or feeder ended first


def test_memory_does_not_grow_with_the_size_of_an_object(stage: Any, far: Any) -> None:
    entries = [far.put(f"{number}", noise(40_000_000, number)) for number in range(3)]
    draining = "while data := fifo.read(1 << 20): pass"
    feeder = stage.feeder(*entries)
    remote_client(far.remotes[far.bucket])  # whatever boto3 takes for itself
    tracemalloc.start()
    try:
        with feeder.running() as start, stage.ended(stage.reader(draining)) as reader:
            start()
            assert reader.wait(120) == 0
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stage.outcome() == {"version": 2, "state": "ok", "bytes": 120_000_000, "objects": 3, "error": ""}
    assert peak_bytes < 40_000_000


def test_an_anonymous_store_gets_no_signature(stage: Any, far: Any) -> None:
    stage.remotes = {far.bucket: RemoteS3(endpoint_url=far.wire.url, anonymous=True)}
    body = b"open"
    entry = far.put("a", body)
    far.wire.answer = b"HTTP/1.1 200 OK\r\nETag: %s\r\nContent-Length: 4\r\n\r\nopen" % entry.etag.encode()
    with stage.feeding(entry):
        assert stage.read() == body
    assert far.wire.requests[0].startswith(f"GET /{far.bucket}/a HTTP/1.1\r\n")


@pytest.fixture
def secure(stage: Any, remote: Any, certificate: Path) -> Any:
    """Return the remote store at an https endpoint, whose certificate is not trusted yet."""
    remote.wire.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    remote.wire.tls.load_cert_chain(certificate)
    stage.remotes = remote.remotes
    return remote


def test_a_store_is_read_by_tls(stage: Any, secure: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    contents = [noise(1_000_000, 1), noise(700_000, 2), b""]
    secure.wire.cut_after = 400_001
    with stage.feeding(*(secure.put(f"{number}", content) for number, content in enumerate(contents))):
        assert stage.read() == b"".join(contents)
        assert stage.outcome()["state"] == "ok"


def test_a_store_with_a_certificate_that_is_not_trusted_gets_no_request(stage: Any, secure: Any) -> None:
    assert "certificate verify failed" in fails(stage, secure, secure.put("a", b"first"))
    assert secure.wire.requests == []


@pytest.mark.usefixtures("patient")
def test_a_silent_store_by_tls_does_not_keep_the_feeder_from_ending(
    stage: Any, secure: Any, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    entry = secure.put("a", noise(1_000_000))
    secure.wire.silent_after = 300_000
    with stage.feeding(entry), stage.ended(stage.reader("fifo.read(1); print(flush=True); fifo.read()")) as reader:
        reader.stdout.readline()
        began_s = time.monotonic()
    assert time.monotonic() - began_s < 300
