"""Contents in another S3, which is moto's server or a second service: readable keys, and no lost objects."""

import contextlib
import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError

MIB = 1024 * 1024
MARK = r"\.[0-9a-f]{16}"


class Other:
    """A bucket of another S3.

    Attributes:
        arguments: Of a service that keeps its contents there.
    """

    def __init__(self, server: Any) -> None:
        self.s3 = server.client()
        self.bucket = f"team-{os.urandom(6).hex()}"
        self.s3.create_bucket(Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        self.arguments = (f"s3://{self.bucket}/team/models", server.url)

    def names(self, data: str = "") -> list[str]:
        """The names of its objects for the bucket ``data``, with ``MARK`` for what makes each unique."""
        found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=f"team/models/{data}").get("Contents", [])
        return [re.sub(MARK, ".MARK", each["Key"]).removeprefix(f"team/models/{data}") for each in found]

    def one(self, prefix: str) -> str:
        """The key of its only object below a prefix."""
        (found,) = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=f"team/models/{prefix}")["Contents"]
        return str(found["Key"])

    def parts(self) -> list[str]:
        """Keys of uploads that are not complete."""
        return [each["Key"] for each in self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])]


@pytest.fixture
def other(server: Any) -> Other:
    """A bucket of a second service."""
    return Other(server)


@pytest.fixture(scope="module", params=["server", "moto"])
def any_other(request: pytest.FixtureRequest) -> Other:
    """A bucket of a second service, and one of moto's server, which shares no code with the project."""
    return Other(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, start: Callable[..., Any], any_other: Other) -> Iterator[Any]:
    """A client of a service that keeps its contents in the other S3."""
    with start(tmp_path_factory.mktemp("elsewhere") / "s", {}, *any_other.arguments) as server:
        yield server.client()


@pytest.fixture
def data(shared: Any) -> str:
    """A new bucket of that service."""
    name = f"data-{os.urandom(6).hex()}"
    shared.create_bucket(Bucket=name)
    return name


def test_objects_lie_there_under_their_keys_and_read_back(shared: Any, data: str, any_other: Other) -> None:
    bodies = {
        "job-1/output/model.tar.gz": os.urandom(20 * MIB + 7),
        "train/a": b"a",
        "train/a/b.csv": b"x" * MIB,
        "empty": b"",
        "../up//ü\tx": b"odd",
        "k" * 1024: b"long",
    }
    for key, body in bodies.items():
        shared.put_object(Bucket=data, Key=key, Body=body)
    for key, body in bodies.items():
        got = shared.get_object(Bucket=data, Key=key)
        assert (got["ContentLength"], got["Body"].read() == body) == (len(body), True), key
    model = bodies["job-1/output/model.tar.gz"]
    for first, last in ((0, 9), (8 * MIB - 3, 8 * MIB + 3), (20 * MIB, 20 * MIB + 6)):
        part = shared.get_object(Bucket=data, Key="job-1/output/model.tar.gz", Range=f"bytes={first}-{last}")
        assert part["Body"].read() == model[first : last + 1]
    names = any_other.names(f"{data}/")
    assert [name for name in names if not name.startswith("kkk")] == [
        "%2E%2E/up/%2F/ü%09x.MARK",
        "empty.MARK",
        "job-1/output/model.MARK.tar.gz",
        "train/a.MARK",
        "train/a/b.MARK.csv",
    ]
    assert len(any_other.one(f"{data}/kkk").encode()) == 1024
    there = any_other.one(f"{data}/job-1/")
    assert any_other.s3.get_object(Bucket=any_other.bucket, Key=there)["Body"].read() == model


def test_a_multipart_object_becomes_one_object_there_and_copies_share_it(
    shared: Any, data: str, any_other: Other
) -> None:
    upload = {"Bucket": data, "Key": "big.bin"}
    upload["UploadId"] = shared.create_multipart_upload(**upload)["UploadId"]
    bodies = [os.urandom(6 * MIB), os.urandom(5 * MIB), b"end"]
    parts = [
        {"PartNumber": n, "ETag": shared.upload_part(PartNumber=n, Body=body, **upload)["ETag"]}
        for n, body in enumerate(bodies, 1)
    ]
    assert any_other.names(f"{data}/") == []
    done = shared.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    assert shared.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)["ETag"] == done["ETag"]
    shared.copy_object(Bucket=data, Key="copy.bin", CopySource=f"{data}/big.bin")
    shared.delete_object(Bucket=data, Key="big.bin")
    assert shared.get_object(Bucket=data, Key="copy.bin")["Body"].read() == b"".join(bodies)
    assert shared.get_object(Bucket=data, Key="copy.bin", PartNumber=2)["Body"].read() == bodies[1]
    assert any_other.names(f"{data}/") == ["big.MARK.bin"]
    parts = {"Bucket": data, "Key": "piece"}
    parts["UploadId"] = shared.create_multipart_upload(**parts)["UploadId"]
    piece = shared.upload_part_copy(
        PartNumber=1, CopySource=f"{data}/copy.bin", CopySourceRange=f"bytes={6 * MIB - 2}-{6 * MIB + 1}", **parts
    )["CopyPartResult"]
    named = [{"PartNumber": 1, "ETag": piece["ETag"]}]
    shared.complete_multipart_upload(MultipartUpload={"Parts": named}, **parts)
    assert shared.get_object(Bucket=data, Key="piece")["Body"].read() == bodies[0][-2:] + bodies[1][:2]


def test_content_of_replaced_and_deleted_objects_is_removed(
    tmp_path: Path, start: Callable[..., Any], other: Other
) -> None:
    with start(tmp_path / "s", {}, *other.arguments) as server:
        client = server.client()
        client.create_bucket(Bucket="data")
        for body in (b"old", b"new"):
            client.put_object(Bucket="data", Key="kept", Body=body)
        for number in range(40):  # more than are removed at once
            client.put_object(Bucket="data", Key=f"gone/{number}", Body=b"gone")
        client.delete_objects(Bucket="data", Delete={"Objects": [{"Key": f"gone/{n}"} for n in range(40)]})
    other.s3.put_object(Bucket=other.bucket, Key="team/models/data/of-the-team", Body=b"never ours")
    with start(tmp_path / "s", {}, *other.arguments) as server:
        assert server.client().get_object(Bucket="data", Key="kept")["Body"].read() == b"new"
        assert other.names() == ["data/kept.MARK", "data/of-the-team"]


def test_bytes_that_the_team_changed_are_never_sent(shared: Any, data: str, any_other: Other) -> None:
    size_bytes = 9 * MIB
    shared.put_object(Bucket=data, Key="model", Body=b"m" * size_bytes)
    key = any_other.one(f"{data}/")
    any_other.s3.put_object(Bucket=any_other.bucket, Key=key, Body=b"other")
    with pytest.raises(ClientError, match=rf"s3://{data}/model, .*/{data}/model\.\w+, .* has 5 bytes") as raised:
        shared.get_object(Bucket=data, Key="model")
    assert raised.value.response["Error"]["Code"] == "InternalError"
    any_other.s3.delete_object(Bucket=any_other.bucket, Key=key)
    with pytest.raises(ClientError, match="it was removed or replaced there: HTTP 404 NoSuchKey"):
        shared.get_object(Bucket=data, Key="model", Range="bytes=5-6")


def test_a_kill_at_any_step_of_a_put_leaves_all_of_the_object_or_only_garbage(
    tmp_path: Path, start: Callable[..., Any], other: Other
) -> None:
    body, log = os.urandom(9 * MIB), tmp_path / "hits"
    points = ("store.object.upload", "store.object.uploaded", "store.commit.before")
    with start(tmp_path / "s", {}, *other.arguments) as server:
        server.client().create_bucket(Bucket="data")
        server.client().put_object(Bucket="data", Key="before", Body=b"acknowledged")
    kept, garbage = {"before": b"acknowledged"}, 0
    for point in (*points, "store.commit.after"):
        # Commits before that of the object: the clean-up at the start, and the note of the upload.
        faults = f"{point}:exit:1:1:{2 * ('commit' in point)}"
        variables = {"TIDEMILL_FAULTS": faults, "TIDEMILL_FAULTS_LOG": str(log)}
        assert len(other.names()) == len(kept) + garbage
        with start(tmp_path / "s", variables, *other.arguments) as server:
            _assert_holds(server, other, kept)
            with pytest.raises((ConnectionClosedError, HTTPClientError)):
                server.client().put_object(Bucket="data", Key=point, Body=body)
            assert server.process.wait(timeout=30) == -signal.SIGKILL
        assert log.read_text().splitlines()[-1].startswith(f"{point} exit")
        kept |= {point: body} if point == "store.commit.after" else {}
        garbage = int(point not in ("store.object.upload", "store.commit.after"))
    with start(tmp_path / "s", {}, *other.arguments) as server:
        _assert_holds(server, other, kept)


def test_a_kill_during_an_upload_leaves_no_parts_there(
    tmp_path: Path, start: Callable[..., Any], server: Any, other: Other
) -> None:
    # Parts that an upload which was killed has left: of a content that is noted, and of a stranger.
    with start(tmp_path / "s", {"TIDEMILL_FAULTS": "store.object.upload:exit"}, *other.arguments) as cut:
        cut.client().create_bucket(Bucket="data")
        with pytest.raises((ConnectionClosedError, HTTPClientError)):
            cut.client().put_object(Bucket="data", Key="model", Body=b"m")
        cut.process.wait(timeout=30)
    noted = _noted(tmp_path / "s/tidemill.db")
    for key in (*noted, "team/models/data/strange"):
        other.s3.create_multipart_upload(Bucket=other.bucket, Key=key)
    assert len(noted) == 1
    with start(tmp_path / "s", {}, *other.arguments):
        assert other.parts() == ["team/models/data/strange"]
    assert _noted(tmp_path / "s/tidemill.db") == []


@pytest.mark.matrix
def test_the_other_s3_may_go_and_come_back(tmp_path: Path, start: Callable[..., Any]) -> None:
    body = os.urandom(9 * MIB)
    with start(tmp_path / "other") as far:
        far.client().create_bucket(Bucket="team")
        port = far.url.rpartition(":")[2]
        elsewhere = ("s3://team/p", far.url)
        with start(tmp_path / "s", {}, *elsewhere) as server:
            client = server.client()
            client.create_bucket(Bucket="data")
            client.put_object(Bucket="data", Key="model", Body=body)
            client.put_object(Bucket="data", Key="small", Body=b"small")
            far.process.send_signal(signal.SIGKILL)
            far.process.wait(timeout=30)
            for refused in (
                lambda: client.put_object(Bucket="data", Key="later", Body=b"later"),
                lambda: client.get_object(Bucket="data", Key="model"),
            ):
                with pytest.raises(
                    ClientError, match=r"the S3 that holds contents failed .* Repeat the request"
                ) as raised:
                    refused()
                assert raised.value.response["Error"]["Code"] == "ServiceUnavailable"
            # What has a copy on this machine, and what is known of objects, is still answered.
            assert client.get_object(Bucket="data", Key="small")["Body"].read() == b"small"
            client.delete_object(Bucket="data", Key="small")
            assert [each["Key"] for each in client.list_objects_v2(Bucket="data")["Contents"]] == ["model"]
            with start(tmp_path / "other", {"PORT": port}) as back:
                client.put_object(Bucket="data", Key="later", Body=b"later")
                assert client.get_object(Bucket="data", Key="model")["Body"].read() == body
                assert len(back.client().list_objects_v2(Bucket="team")["Contents"]) == 3
        # It can start while the other S3 is unavailable, because objects were stored there before.
        with start(tmp_path / "s", {}, *elsewhere) as server, pytest.raises(ClientError, match="ServiceUnavailable"):
            server.client().get_object(Bucket="data", Key="model")


@pytest.mark.parametrize(
    ("home", "url", "reason"),
    [
        (
            "s3://nothing-there/p",
            None,
            "cannot be used: .* HTTP 404 NoSuchBucket.*; check bucket, region and credentials",
        ),
        ("s3://team/p", "http://127.0.0.1:1", "cannot be used: .*; check its endpoint_url and the network"),
    ],
)
def test_the_service_does_not_start_on_a_bucket_that_it_cannot_use(
    tmp_path: Path, start: Callable[..., Any], server: Any, capfd: Any, home: str, url: str | None, reason: str
) -> None:
    with pytest.raises(AssertionError, match="did not start"), start(tmp_path / "s", {}, home, url or server.url):
        pass
    assert re.search(f"ConfigurationError: object_store = '{home}' {reason}", capfd.readouterr().err)


def test_keys_without_permission_are_refused_at_the_start(
    tmp_path: Path, start: Callable[..., Any], other: Other, capfd: Any
) -> None:
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong"}
    with pytest.raises(AssertionError, match="did not start"), start(tmp_path / "s", wrong, *other.arguments):
        pass
    assert "HTTP 403 SignatureDoesNotMatch" in capfd.readouterr().err


@pytest.mark.matrix
def test_objects_stay_where_they_are_when_the_setting_changes(
    tmp_path: Path, start: Callable[..., Any], other: Other, capfd: Any
) -> None:
    with start(tmp_path / "s") as server:
        server.client().create_bucket(Bucket="data")
        server.client().put_object(Bucket="data", Key="on-disk", Body=b"disk")
    with start(tmp_path / "s", {}, *other.arguments) as server:
        client = server.client()
        client.put_object(Bucket="data", Key="there", Body=b"there")
        assert client.get_object(Bucket="data", Key="on-disk")["Body"].read() == b"disk"
        client.copy_object(Bucket="data", Key="copy", CopySource="data/on-disk")
    assert other.names() == ["data/there.MARK"]
    with pytest.raises(AssertionError, match="did not start"), start(tmp_path / "s"):
        pass
    assert f"objects lie in s3://{other.bucket}, and no entry of the setting remote_s3" in capfd.readouterr().err
    with start(tmp_path / "s", {}, f"s3://{other.bucket}/elsewhere", other.arguments[1]) as server:
        client = server.client()
        for key, body in {"on-disk": b"disk", "copy": b"disk", "there": b"there"}.items():
            assert client.get_object(Bucket="data", Key=key)["Body"].read() == body


def _assert_holds(server: Any, other: Other, expected: dict[str, bytes]) -> None:
    """The bucket holds exactly these objects, and the other S3 and the disk nothing else."""
    client = server.client()
    keys = [each["Key"] for each in client.list_objects_v2(Bucket="data")["Contents"]]
    assert {key: client.get_object(Bucket="data", Key=key)["Body"].read() for key in keys} == expected
    assert (len(other.names()), other.parts(), server.content_files()) == (len(expected), [], [])


def _noted(database: Path) -> list[str]:
    """Keys in the other S3 that are noted as content without an object."""
    with contextlib.closing(sqlite3.connect(database)) as raw:
        found = raw.execute("SELECT content_id FROM unnamed_content").fetchall()
    return [content_id.removeprefix("s3://").partition("/")[2] for (content_id,) in found]
