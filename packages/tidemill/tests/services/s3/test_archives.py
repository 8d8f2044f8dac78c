"""Many small files as one archive, which the service extracts, and the SDK's uploads by it."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from tidemill.core.names import S3Uri
from tidemill.sdk.console import Console
from tidemill.sdk.upload import LocalData, files_below, upload, upload_files

ARCHIVE = "application/vnd.tidemill.files+tar"


def packed(*members: tuple[str, bytes | str]) -> bytes:
    """Return a tar archive; a text becomes the target of a link."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname = tarfile.SYMTYPE, content
                archive.addfile(member)
            else:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return body.getvalue()


def objects_of(s3: Any, bucket: str) -> dict[str, str]:
    """Return the MD5 of each object, by key."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {entry["Key"]: entry["ETag"].strip('"') for page in pages for entry in page.get("Contents", ())}


def md5s(contents: dict[str, bytes]) -> dict[str, str]:
    return {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}


def requests_of(s3: Any) -> list[str]:
    """Return a list to which the names of later requests of the client are added."""
    names: list[str] = []
    s3.meta.events.register("before-call.s3", lambda model, **_: names.append(model.name))
    return names


def test_the_files_of_an_archive_become_objects_beside_its_key(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="data/a/1", Body=b"old")
    body = packed(("a/1", b"one"), ("a/empty", b""), ("ü b", b"two" * 1000))
    reply = s3.put_object(Bucket=bucket, Key="data/batch.tar", Body=body, ContentType=ARCHIVE)
    assert reply["ResponseMetadata"]["HTTPHeaders"]["x-tidemill-extracted"] == "3"
    assert objects_of(s3, bucket) == md5s({"data/a/1": b"one", "data/a/empty": b"", "data/ü b": b"two" * 1000})
    assert s3.get_object(Bucket=bucket, Key="data/ü b")["Body"].read() == b"two" * 1000


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (packed(("a", b"1"), ("../b", b"2")), "is not a relative path"),
        (packed(("a", b"1"), ("/b", b"2")), "is not a relative path"),
        (packed(("a", b"1"), ("b", "/etc/passwd")), "is no regular file"),
        (packed(("a", b"1"), ("k" * 1030, b"2")), "1024|1,024"),
        (b"no archive" * 100, "not an uncompressed tar archive"),
    ],
)
def test_an_archive_with_a_member_that_cannot_be_an_object_stores_nothing(
    s3: Any, bucket: str, body: bytes, text: str
) -> None:
    with pytest.raises(ClientError, match=text):
        s3.put_object(Bucket=bucket, Key="batch.tar", Body=body, ContentType=ARCHIVE)
    assert objects_of(s3, bucket) == {}


@pytest.mark.parametrize(
    "members", [{"ServerSideEncryption": "aws:kms"}, {"Metadata": {"a": "1"}}, {"Tagging": "a=1"}, {"IfNoneMatch": "*"}]
)
def test_what_cannot_be_applied_to_the_files_of_an_archive_is_refused(
    s3: Any, bucket: str, members: dict[str, Any]
) -> None:
    with pytest.raises(ClientError, match=f"{next(iter(members))} cannot be applied to the files of an archive"):
        s3.put_object(Bucket=bucket, Key="batch.tar", Body=packed(("a", b"1")), ContentType=ARCHIVE, **members)
    assert objects_of(s3, bucket) == {}


@pytest.mark.matrix
def test_the_sdk_sends_small_files_in_archives_and_finds_them_unchanged(
    s3: Any, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    contents = {f"{index % 7}/{index:05}": b"%d" % index for index in range(4200)} | {"large": bytes(300_000)}
    for name, content in contents.items():
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_bytes(content)
    requests = requests_of(s3)
    local = LocalData.read(data)
    uri = upload(s3, local, bucket=bucket, console=Console())
    assert requests.count("PutObject") == 3  # two archives and the large file
    prefix = S3Uri.parse(uri).key
    assert objects_of(s3, bucket) == md5s({f"{prefix}{name}": content for name, content in contents.items()})
    del requests[:]
    assert upload(s3, local, bucket=bucket, console=Console()) == uri
    assert requests == ["ListObjectsV2"]
    assert "Unchanged, not uploaded again" in capsys.readouterr().out
    s3.delete_object(Bucket=bucket, Key=f"{prefix}3/00003")
    del requests[:]
    upload(s3, local, bucket=bucket, console=Console())
    assert requests.count("PutObject") == 1
    assert f"{prefix}3/00003" in objects_of(s3, bucket)


@pytest.mark.parametrize(("answer", "extracted"), [("denied", 0), ("stored", 0), ("denied", 1), ("stored", 1)])
def test_files_are_sent_one_by_one_if_an_archive_is_not_extracted(
    s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, extracted: int
) -> None:
    monkeypatch.setattr("tidemill.sdk.upload._ARCHIVE_FILES", 7)
    seen: list[str] = []
    for index in range(20):
        (tmp_path / f"{index}").write_bytes(b"%d" % index)

    def is_later(path: str) -> bool:
        seen.append(path)
        return len(seen) > extracted

    def change(params: dict[str, Any], **_: Any) -> Any:
        if params["headers"].get("Content-Type") == ARCHIVE and is_later(params["url_path"]):
            params["headers"]["Content-Type"] = "application/x-tar"  # a plain S3 stores the archive

    def deny(model: Any, params: dict[str, Any], **_: Any) -> None:
        if params["headers"].get("Content-Type") == ARCHIVE and is_later(params["url_path"]):
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "a policy"}}, model.name)

    event, handler = "before-call.s3.PutObject", change if answer == "stored" else deny
    s3.meta.events.register(event, handler)
    try:
        upload_files(s3, files_below(tmp_path), S3Uri(bucket, "p"))
    finally:
        s3.meta.events.unregister(event, handler)  # other tests use this client too
    assert len(set(seen)) == (1 if extracted == 0 else 3)
    assert objects_of(s3, bucket) == md5s({f"p/{index}": b"%d" % index for index in range(20)})


def test_upload_data_counts_every_byte_and_a_refused_file_ends_it(s3: Any, bucket: str, tmp_path: Path) -> None:
    for index in range(30):
        (tmp_path / f"{index}").write_bytes(bytes(10))
    (tmp_path / "large").write_bytes(bytes(400_000))
    counted: list[int] = []
    arguments: dict[str, Callable[[int], None]] = {"progress": counted.append}
    upload_files(s3, files_below(tmp_path), S3Uri(bucket, "p"), **arguments)
    assert sum(counted) == 400_300
    (tmp_path / ("k" * 200)).write_bytes(b"x")
    with pytest.raises(S3UploadFailedError, match="KeyTooLong"):
        upload_files(s3, files_below(tmp_path / ("k" * 200)), S3Uri(bucket, "k" * 1000))
