"""The S3 process killed, disconnected or out of disk at each step of a put: the whole object is visible, or nothing."""

import signal
import socket
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError, ReadTimeoutError

POINTS = ("store.object.rename", "store.object.fsync", "store.commit.before")
PART = 5 * 1024 * 1024


def test_a_kill_at_any_step_of_a_put_leaves_all_of_the_object_or_nothing(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    expected = {"before": b"acknowledged"}
    with start(tmp_path / "s") as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        client.put_object(Bucket="bucket", Key="before", Body=expected["before"])
    log = tmp_path / "hits"
    for point in (*POINTS, "store.commit.after"):
        faults = {"TIDEMILL_FAULTS": f"{point}:exit", "TIDEMILL_FAULTS_LOG": str(log)}
        with start(tmp_path / "s", faults) as server:
            assert_holds(server, expected)
            with pytest.raises((ConnectionClosedError, HTTPClientError)):
                server.client().put_object(Bucket="bucket", Key=point, Body=point.encode() * 100_000)
            assert server.process.wait(timeout=30) == -signal.SIGKILL
        assert log.read_text().splitlines()[-1].startswith(f"{point} exit")
    expected["store.commit.after"] = b"store.commit.after" * 100_000
    with start(tmp_path / "s") as server:
        assert_holds(server, expected)


@pytest.mark.parametrize(
    ("action", "reason"), [("enospc", "no space left|could not commit"), ("eio", "store failed|could not commit")]
)
def test_a_put_on_a_failing_disk_is_refused_with_the_reason(
    tmp_path: Path, start: Callable[..., Any], action: str, reason: str
) -> None:
    with start(tmp_path / "s") as server:
        server.client().create_bucket(Bucket="bucket")
    log = tmp_path / "hits"
    faults = ";".join(f"{point}:{action}" for point in POINTS)
    with start(tmp_path / "s", {"TIDEMILL_FAULTS": faults, "TIDEMILL_FAULTS_LOG": str(log)}) as server:
        client = server.client()
        for _ in POINTS:  # each fault happens once, in the order of the steps
            with pytest.raises(ClientError, match=reason) as raised:
                client.put_object(Bucket="bucket", Key="k", Body=b"x" * 2_000_000)
            assert raised.value.response["Error"]["Code"] == "ServiceUnavailable"
            assert_holds(server, {})
        client.put_object(Bucket="bucket", Key="k", Body=b"later")
        assert_holds(server, {"k": b"later"})
    assert [line.split()[0] for line in log.read_text().splitlines()] == list(POINTS)


def test_a_put_whose_answer_is_lost_is_kept_whole(tmp_path: Path, start: Callable[..., Any]) -> None:
    with start(tmp_path / "s") as server:
        server.client().create_bucket(Bucket="bucket")
    with start(tmp_path / "s", {"TIDEMILL_FAULTS": "store.commit.after:eio"}) as server:
        with pytest.raises(ClientError, match="Nothing of this request is certain"):
            server.client().put_object(Bucket="bucket", Key="k", Body=b"kept")
        assert_holds(server, {"k": b"kept"})


def test_a_cut_put_is_never_visible(tmp_path: Path, start: Callable[..., Any]) -> None:
    size_bytes = 4 * 1024 * 1024
    with start(tmp_path / "s") as server:
        client = server.client(signature_version="s3v4")
        client.create_bucket(Bucket="bucket")
        for sixteenth in range(16):
            url = client.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": f"cut-{sixteenth}"})
            cut_off(url, size_bytes, send_bytes=size_bytes * sixteenth // 16)
        # A normal end waits for every request in progress.
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=30)
        assert (server.temporaries(), server.content_files()) == ([], [])
    with start(tmp_path / "s") as server:
        assert_holds(server, {})


def test_a_repeated_complete_gets_the_same_answer(tmp_path: Path, start: Callable[..., Any]) -> None:
    with start(tmp_path / "s") as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        upload = {"Bucket": "bucket", "Key": "mp"}
        upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]
        parts = [
            {
                "PartNumber": number,
                "ETag": client.upload_part(PartNumber=number, Body=bytes([number]) * size, **upload)["ETag"],
            }
            for number, size in ((1, PART), (2, 10))
        ]
    with start(tmp_path / "s", {"TIDEMILL_FAULTS": "store.commit.after:eio"}) as server:
        client = server.client()
        with pytest.raises(ClientError, match="Nothing of this request is certain"):
            client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        first = client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        second = client.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
        assert first["ETag"] == second["ETag"] == client.head_object(Bucket="bucket", Key="mp")["ETag"]
        with pytest.raises(ClientError, match="NoSuchUpload"):
            client.complete_multipart_upload(MultipartUpload={"Parts": parts[:1]}, **upload)
        assert len(client.get_object(Bucket="bucket", Key="mp")["Body"].read()) == PART + 10


def test_a_complete_continues_after_its_client_disconnects(tmp_path: Path, start: Callable[..., Any]) -> None:
    log = tmp_path / "hits"
    # The first file is that of the part.
    faults = {"TIDEMILL_FAULTS": "store.object.fsync:delay=2:1:9:1", "TIDEMILL_FAULTS_LOG": str(log)}
    with start(tmp_path / "s", faults) as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        upload = {"Bucket": "bucket", "Key": "mp"}
        upload["UploadId"] = client.create_multipart_upload(**upload)["UploadId"]
        named = {"Parts": [{"PartNumber": 1, "ETag": client.upload_part(PartNumber=1, Body=b"one", **upload)["ETag"]}]}
        with pytest.raises(ReadTimeoutError):
            server.client(read_timeout=0.5).complete_multipart_upload(MultipartUpload=named, **upload)
        client.complete_multipart_upload(MultipartUpload=named, **upload)
        assert client.get_object(Bucket="bucket", Key="mp")["Body"].read() == b"one"
    assert len(log.read_text().splitlines()) == 1


def assert_holds(server: Any, expected: dict[str, bytes]) -> None:
    """Check that the bucket contains exactly these objects, and the store nothing else."""
    client = server.client()
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="bucket").get("Contents", [])]
    assert {key: client.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys} == expected
    assert server.temporaries() == []
    assert len(server.content_files()) == len(expected)


def cut_off(url: str, size_bytes: int, *, send_bytes: int) -> None:
    """Begin to put an object, and disconnect after ``send_bytes``."""
    parts = urllib.parse.urlsplit(url)
    head = f"PUT {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {size_bytes}\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(head.encode() + b"x" * send_bytes)
