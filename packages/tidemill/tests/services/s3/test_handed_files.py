"""Files that the SDK hands to a service of the same user as open descriptors."""

import asyncio
import contextlib
import hashlib
import os
import signal
import socket
import stat
import subprocess
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from tidemill.core.clock import SystemClock
from tidemill.core.handed_files import GREETING, MULTIPART_BYTES, SOCKET_HEADER, media_type
from tidemill.core.names import S3Uri
from tidemill.sdk.handed_file import handed_over
from tidemill.sdk.upload import files_below, upload_files
from tidemill.services.s3 import HandedFiles, handed_files
from tidemill.store.objects.disk_place import DiskPlace

JOBS_BUCKET = "sagemaker-handed"
LARGE = MULTIPART_BYTES + 12_345
CLIENT = """
import sys
from pathlib import Path
from tidemill.sdk.handed_file import handed_over
with handed_over(Path(sys.argv[1]), sys.argv[2], copied=lambda _: None) as ticket:
    print(ticket, flush=True)
    sys.stdin.read()
"""


def file_of(directory: Path, size_bytes: int) -> Path:
    file = directory / f"file-{size_bytes}"
    file.write_bytes(os.urandom(size_bytes))
    return file


def socket_of(server: Any) -> str:
    return str(server.root / "files.sock")


def descriptors_of(server: Any, file: Path) -> list[Path]:
    """Return the service's descriptors of a file."""
    return [each for each in Path(f"/proc/{server.process.pid}/fd").iterdir() if os.path.realpath(each) == str(file)]


def put(s3: Any, bucket: str, key: str, ticket: str | None, **members: Any) -> Any:
    assert ticket is not None
    return s3.put_object(Bucket=bucket, Key=key, Body=b"", ContentType=media_type(ticket), **members)


@pytest.fixture
def bodies(s3: Any) -> Iterator[list[tuple[str, int]]]:
    """Operation and size of the body of each request of the client."""
    sent: list[tuple[str, int]] = []

    def note(request: Any, event_name: str, **_: Any) -> None:
        sent.append((event_name.rpartition(".")[2], int(request.headers.get("Content-Length", 0))))

    s3.meta.events.register("before-send.s3", note)
    yield sent
    s3.meta.events.unregister("before-send.s3", note)


@pytest.mark.parametrize("size_bytes", [300_000, LARGE])
def test_the_sdk_hands_a_file_over_and_the_object_is_a_copy_of_it(
    server: Any, s3: Any, bucket: str, tmp_path: Path, bodies: list[tuple[str, int]], size_bytes: int
) -> None:
    file, counted = file_of(tmp_path, size_bytes), list[int]()
    data = file.read_bytes()
    extra = {"Metadata": {"a": "b"}}
    upload_files(s3, files_below(file), S3Uri(bucket, "p"), progress=counted.append, extra_args=extra)
    assert bodies == [("ListObjectsV2", 0), ("PutObject", 0)]
    assert sum(counted) == size_bytes
    with file.open("r+b") as opened:
        opened.write(b"changed later")
    found = s3.get_object(Bucket=bucket, Key=f"p/{file.name}", ChecksumMode="ENABLED")
    assert found["Body"].read() == data
    assert (found["ContentType"], found["Metadata"]) == ("binary/octet-stream", {"a": "b"})
    assert found["ChecksumCRC32"] == b64encode(zlib.crc32(data).to_bytes(4, "big")).decode()
    etag = found["ETag"].strip('"')
    if size_bytes < MULTIPART_BYTES:
        assert etag == hashlib.md5(data).hexdigest()
    else:  # as of an upload in parts, which boto3 makes of files of this size
        assert etag.endswith("-1")
        assert s3.head_object(Bucket=bucket, Key=f"p/{file.name}", PartNumber=1)["PartsCount"] == 1
    status = server.content_file(data).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_nlink) == (0o400, 1)


def test_a_ticket_is_valid_once_and_only_while_its_client_is_connected(
    server: Any, s3: Any, bucket: str, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    file = file_of(tmp_path, 1000)
    with handed_over(file, socket_of(server), copied=lambda _: None) as ticket:
        put(s3, bucket, "once", ticket)
        with pytest.raises(ClientError, match="the ticket in the media type names no file"):
            put(s3, bucket, "twice", ticket)
    before = set(server.content_files())
    with handed_over(file, socket_of(server), copied=lambda _: None) as ticket:
        (copy,) = set(server.content_files()) - before
    wait_until(lambda: not copy.exists())
    with pytest.raises(ClientError, match="the ticket in the media type names no file"):
        put(s3, bucket, "late", ticket)
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == ["once"]


@pytest.mark.parametrize(
    "members", [{"Body": b"bytes"}, {"ChecksumAlgorithm": "SHA256"}, {"IfNoneMatch": "*"}, {"Bucket": "absent"}]
)
def test_a_refused_request_with_a_ticket_stores_nothing(
    server: Any, s3: Any, bucket: str, tmp_path: Path, wait_until: Callable[..., Any], members: dict[str, Any]
) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    before = set(server.content_files())
    with handed_over(file_of(tmp_path, 1000), socket_of(server), copied=lambda _: None) as ticket:
        arguments = {"Bucket": bucket, "Key": "k", "Body": b"", "ContentType": media_type(str(ticket)), **members}
        with pytest.raises(ClientError):
            s3.put_object(**arguments)
    wait_until(lambda: set(server.content_files()) <= before)
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"


def test_the_policy_of_the_key_decides_and_jobs_are_not_told_of_the_socket(
    server: Any, s3: Any, tmp_path: Path
) -> None:
    s3.create_bucket(Bucket=JOBS_BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    keys = {"aws_access_key_id": "ASIATIDEMILLJOB1", "aws_secret_access_key": "tidemill-tests-secret"}
    config = Config(retries={"total_max_attempts": 1}, signature_version="s3v4")
    job = boto3.client("s3", endpoint_url=server.url, region_name="us-west-2", config=config, **keys)
    headers = {
        name: client.list_objects_v2(Bucket=JOBS_BUCKET, MaxKeys=0)["ResponseMetadata"]["HTTPHeaders"]
        for name, client in (("user", s3), ("job", job))
    }
    assert {name: SOCKET_HEADER in each for name, each in headers.items()} == {"user": True, "job": False}
    s3.put_object(Bucket=JOBS_BUCKET, Key="tidemill-inputs/theirs", Body=b"kept")
    file = file_of(tmp_path, 1000)
    with handed_over(file, socket_of(server), copied=lambda _: None) as ticket:
        with pytest.raises(ClientError, match="AccessDenied"):
            put(job, "another-bucket", "k", ticket)
        with pytest.raises(ClientError, match="AccessDenied"):
            put(job, JOBS_BUCKET, "tidemill-inputs/theirs", ticket)
        kind = media_type(str(ticket))
        url = s3.generate_presigned_url("put_object", Params={"Bucket": JOBS_BUCKET, "Key": "k", "ContentType": kind})
        assert urllib3.request("PUT", url, body=b"bytes", headers={"Content-Type": kind}).status == 200
        put(job, JOBS_BUCKET, "out/job-1/mine", ticket)  # no refusal has used the ticket up
    assert s3.get_object(Bucket=JOBS_BUCKET, Key="k")["Body"].read() == b"bytes"
    assert s3.get_object(Bucket=JOBS_BUCKET, Key="out/job-1/mine")["Body"].read() == file.read_bytes()
    assert s3.get_object(Bucket=JOBS_BUCKET, Key="tidemill-inputs/theirs")["Body"].read() == b"kept"


def answer_to(server: Any, message: bytes, fds: list[int]) -> str:
    """Return the last word of the service to a message with descriptors; empty if it only closes the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(socket_of(server))
        if fds:
            socket.send_fds(connection, [message], fds)
        else:
            connection.send(message)
        answer = ""
        while received := connection.recv(1024):
            answer = received.decode()
        return answer


@pytest.mark.parametrize(
    ("path", "flags", "text"),
    [
        ("file", os.O_WRONLY, "not open for reading"),
        ("file", os.O_PATH, "not open for reading"),
        (".", os.O_RDONLY, "not that of a regular file"),
        ("pipe", os.O_RDWR, "not that of a regular file"),
        ("large", os.O_RDONLY, "at most 67108864 are allowed"),
        ("/proc/self/status", os.O_RDONLY, "none of the local file systems"),
        ("/dev/zero", os.O_RDONLY, "none of the local file systems"),
    ],
)
def test_only_readable_regular_files_of_local_disks_are_taken(
    server: Any, tmp_path: Path, path: str, flags: int, text: str
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    os.truncate(tmp_path / "file", 1)
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as large:
        large.truncate((64 << 20) + 1)
    before = set(server.content_files())
    fd = os.open(tmp_path / path, flags)
    try:
        assert text in answer_to(server, GREETING, [fd])
    finally:
        os.close(fd)
    assert (server.temporaries(), set(server.content_files()) - before) == ([], set())


def test_a_first_message_without_exactly_one_descriptor_is_refused(server: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1")
    with (tmp_path / "file").open("rb") as file:
        one = file.fileno()
        for message, fds in ((GREETING, []), (GREETING, [one, one]), (b"/etc/passwd", [one]), (b"/etc/passwd", [])):
            assert answer_to(server, message, fds).startswith("refused the first message has to be")
    assert not descriptors_of(server, tmp_path / "file")


def test_another_user_of_the_machine_is_refused(server: Any, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # Even one whom the permissions of the directory and of the socket would let in.
    script = (
        "import os, socket, sys\n"
        "place = os.open(sys.argv[1], os.O_PATH)\n"
        "os.setuid(65534)\n"
        "with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:\n"
        "    connection.settimeout(30)\n"
        "    connection.connect(f'/proc/self/fd/{place}')\n"
        "    try: print(connection.recv(100))\n"
        "    except ConnectionResetError: print(b'')\n"
    )
    Path(socket_of(server)).chmod(0o666)
    try:
        done = subprocess.run([sys.executable, "-c", script, socket_of(server)], capture_output=True, text=True)
    finally:
        Path(socket_of(server)).chmod(0o600)
    assert (done.stdout.strip(), done.stderr) == ("b''", "")


@pytest.mark.parametrize("what", ["no socket", "unknown ticket", "checksum asked for"])
def test_a_file_that_cannot_be_handed_over_is_uploaded_as_usual(
    server: Any,
    s3: Any,
    bucket: str,
    tmp_path: Path,
    bodies: list[tuple[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    what: str,
) -> None:
    file, counted = file_of(tmp_path, LARGE), list[int]()
    extra = {"ChecksumAlgorithm": "SHA256"} if what == "checksum asked for" else None
    if what == "unknown ticket":  # as behind a tunnel to another machine
        monkeypatch.setattr("tidemill.sdk.upload.media_type", lambda _: media_type("of-another-service"))
    if what == "no socket":
        monkeypatch.setattr("tidemill.sdk.handed_file.SOCKET_NAME", "agent.sock")
    upload_files(s3, files_below(file), S3Uri(bucket, "p"), progress=counted.append, extra_args=extra)
    puts = [size for name, size in bodies if name == "PutObject"]
    assert puts == ([0, LARGE] if what == "unknown ticket" else [LARGE])
    assert sum(counted) == LARGE
    head = s3.head_object(Bucket=bucket, Key=f"p/{file.name}")
    assert head["ETag"].strip('"') == hashlib.md5(file.read_bytes()).hexdigest()


def test_a_client_killed_or_a_file_changed_during_the_copy_leaves_nothing(
    tmp_path: Path, start: Callable[..., Any], wait_until: Callable[..., Any]
) -> None:
    gates, log, file = (tmp_path / "1", tmp_path / "2"), tmp_path / "hits", file_of(tmp_path, LARGE)
    faults = f"store.object.fsync:wait={gates[0]};store.object.rename:wait={gates[1]}"
    with start(tmp_path / "s", {"TIDEMILL_FAULTS": faults, "TIDEMILL_FAULTS_LOG": str(log)}) as server:
        command = [sys.executable, "-c", CLIENT, str(file), socket_of(server)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as client:
            wait_until(lambda: log.exists() and "store.object.fsync" in log.read_text())
            client.kill()
        assert len(server.temporaries()) == 1
        gates[0].touch()
        wait_until(lambda: (server.temporaries(), server.content_files()) == ([], []))
        assert not descriptors_of(server, file)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            wait_until(lambda: "store.object.rename" in log.read_text())
            os.utime(file, ns=(1, 1))
            gates[1].touch()
            assert client.communicate()[0] == "None\n"
        wait_until(lambda: (server.temporaries(), server.content_files()) == ([], []))
        assert not descriptors_of(server, file)


def test_a_service_killed_during_the_copy_or_the_commit_leaves_no_object(
    tmp_path: Path, start: Callable[..., Any]
) -> None:
    file, log = file_of(tmp_path, LARGE), tmp_path / "hits"
    for point in ("store.object.fsync", "store.commit.before", ""):
        faults = {"TIDEMILL_FAULTS": f"{point}:exit", "TIDEMILL_FAULTS_LOG": str(log)} if point else {}
        with start(tmp_path / "s", faults) as server:
            client = server.client()
            if not log.exists():
                client.create_bucket(Bucket="bucket")
            assert "Contents" not in client.list_objects_v2(Bucket="bucket")
            assert (server.temporaries(), server.content_files()) == ([], [])
            if not point:
                break
            with handed_over(file, socket_of(server), copied=lambda _: None) as ticket:
                assert (ticket is None) == (point == "store.object.fsync")
                if ticket is not None:
                    with pytest.raises(ConnectionClosedError):
                        put(client, "bucket", "k", ticket)
            assert server.process.wait(timeout=30) == -signal.SIGKILL
        assert log.read_text().splitlines()[-1].startswith(f"{point} exit")


@pytest.mark.parametrize("limit", ["GREETING_TIMEOUT_S", "TICKET_TIMEOUT_S"])
def test_what_a_client_does_not_finish_ends_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(handed_files, limit, 0.05)
    file = file_of(tmp_path, 1000)

    def idle() -> list[str]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(30)
            connection.connect(str(tmp_path / "files.sock"))
            if limit == "TICKET_TIMEOUT_S":
                with file.open("rb") as content:
                    socket.send_fds(connection, [GREETING], [content.fileno()])
            words = []
            while received := connection.recv(1024):
                words.append(received.decode().split(" ")[0])
            return words

    async def serve() -> list[str]:
        store = DiskPlace(tmp_path / "objects", clock=SystemClock(), grace_s=0)
        async with HandedFiles(store, limit_bytes=1 << 20).listening(tmp_path / "files.sock"):
            words = await asyncio.to_thread(idle)
        store.close()
        return [word for word in words if word != "copied"]

    expected = ["refused"] if limit == "GREETING_TIMEOUT_S" else ["ticket", "refused"]
    assert asyncio.run(serve()) == expected
    assert [path for path in (tmp_path / "objects").rglob("*") if path.is_file()] == []


def test_a_connection_beyond_the_limit_is_closed_and_the_client_gets_no_ticket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handed_files, "CONNECTIONS_MAX", 2)
    monkeypatch.setattr(handed_files, "GREETING_TIMEOUT_S", 3600)
    file, path = file_of(tmp_path, 1000), str(tmp_path / "files.sock")

    def has_ticket() -> bool:
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                idle = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                idle.connect(path)
            with handed_over(file, path, copied=lambda _: None) as beyond:
                return beyond is not None

    async def serve() -> bool:
        store = DiskPlace(tmp_path / "objects", clock=SystemClock(), grace_s=0)
        async with HandedFiles(store, limit_bytes=1 << 20).listening(Path(path)):
            got = await asyncio.to_thread(has_ticket)
        store.close()
        return got

    assert not asyncio.run(serve())


def test_a_file_system_that_can_shares_the_blocks_until_the_user_writes(tmp_path: Path, need: Any) -> None:
    need("btrfs")
    image, place = tmp_path / "disk", tmp_path / "place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    for command in (["mkfs.btrfs", "-q", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no btrfs can be mounted here: {done.stderr.strip()}")
    try:
        source = file_of(place, 40 << 20)
        data = source.read_bytes()
        os.sync()
        before = os.statvfs(place)
        stored, sha256 = asyncio.run(_copied(place / "objects", source))
        os.sync()
        after = os.statvfs(place)
        assert (before.f_bfree - after.f_bfree) * after.f_frsize < 10 << 20
        with source.open("r+b") as file:
            file.write(b"changed later")
        assert stored.read_bytes() == data
        assert hashlib.sha256(data).hexdigest() == sha256
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


async def _copied(root: Path, source: Path) -> tuple[Path, str]:
    store = DiskPlace(root, clock=SystemClock(), grace_s=0)
    with source.open("rb") as file:
        size_bytes = source.stat().st_size
        async with store.copy(file.fileno(), size_bytes=size_bytes, copied=lambda _: None) as content:
            store.hand_over(content.content_id)
    store.close()
    return store.path(content.content_id), content.sha256
