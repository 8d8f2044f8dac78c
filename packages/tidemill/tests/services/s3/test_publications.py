"""What a job published: other jobs can neither replace nor delete it, by any operation, at any moment."""

import http.client
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError
from sqlalchemy import Connection, insert

from tidemill.core.job_scope import JobScope
from tidemill.errors import AwsError
from tidemill.services.authorization.publications import JobWriter
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects import index as object_index
from tidemill.store.objects.index import ObjectInfo, open_row, seal
from tidemill.store.objects.schema import objects

BUCKET = "sagemaker-tests"
MODEL = "out/job-1/output/model.tar.gz"
INPUT = "tidemill-inputs/0123/a.csv"


@pytest.fixture(scope="module")
def key(server: Any, s3: Any) -> Callable[[int], Any]:
    """Return a function that returns the client of a job by its number; 1 to 9 share the checkpoints ``shared/``."""
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})

    def client(number: int) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=server.url,
            region_name="us-west-2",
            aws_access_key_id=f"ASIATIDEMILLJOB{number}",
            aws_secret_access_key="tidemill-tests-secret",
            config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4"),
        )

    return client


@pytest.fixture
def published(key: Callable[[int], Any], s3: Any) -> bytes:
    """Publish a model of job 1 and an input of a user; return their bytes."""
    key(1).put_object(Bucket=BUCKET, Key=MODEL, Body=b"weights")
    s3.put_object(Bucket=BUCKET, Key=INPUT, Body=b"weights")
    return b"weights"


CHANGES: dict[str, Callable[[Any, str], Any]] = {
    "s3:PutObject": lambda s3, key: s3.put_object(Bucket=BUCKET, Key=key, Body=b"x"),
    "s3:PutObject by a copy": lambda s3, key: s3.copy_object(Bucket=BUCKET, Key=key, CopySource=f"{BUCKET}/mine"),
    "s3:PutObject in parts": lambda s3, key: s3.create_multipart_upload(Bucket=BUCKET, Key=key),
    "s3:DeleteObject": lambda s3, key: s3.delete_object(Bucket=BUCKET, Key=key),
    "s3:PutObjectTagging": lambda s3, key: s3.put_object_tagging(Bucket=BUCKET, Key=key, Tagging={"TagSet": []}),
    "s3:DeleteObjectTagging": lambda s3, key: s3.delete_object_tagging(Bucket=BUCKET, Key=key),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", [MODEL, INPUT])
def test_another_job_changes_neither_a_published_object_nor_an_input(
    key: Callable[[int], Any], s3: Any, published: bytes, change: str, name: str
) -> None:
    other = key(10)
    other.put_object(Bucket=BUCKET, Key="mine", Body=b"x")
    with pytest.raises(ClientError, match="AccessDenied") as caught:
        CHANGES[change](other, name)
    action, whose = change.split()[0], "training-job/job-1" if name == MODEL else "another user"
    assert f"{action} on resource: arn:aws:s3:::{BUCKET}/{name}: the object was published by {whose}" in str(
        caught.value
    )
    assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == published


def test_a_batch_deletes_what_is_free_and_names_what_is_not(
    key: Callable[[int], Any], s3: Any, published: bytes
) -> None:
    other = key(10)
    other.put_object(Bucket=BUCKET, Key="free", Body=b"x")
    wanted = [{"Key": name} for name in ("free", MODEL, "never", INPUT)]
    reply = other.delete_objects(Bucket=BUCKET, Delete={"Objects": wanted})
    assert [each["Key"] for each in reply["Deleted"]] == ["free", "never"]
    assert [(each["Key"], each["Code"]) for each in reply["Errors"]] == [
        (MODEL, "AccessDenied"),
        (INPUT, "AccessDenied"),
    ]
    left = {each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET)["Contents"]}
    assert left >= {MODEL, INPUT}
    assert "free" not in left


def test_jobs_share_what_no_job_publishes_and_what_both_requests_name(key: Callable[[int], Any], s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="of-a-user", Body=b"x")
    for name in ("my/artifact.txt", "shared/checkpoint", "of-a-user"):
        key(1).put_object(Bucket=BUCKET, Key=name, Body=b"one")
        key(2).put_object(Bucket=BUCKET, Key=name, Body=b"two")
        assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == b"two"
    with pytest.raises(ClientError, match="published by training-job/job-2"):
        key(10).put_object(Bucket=BUCKET, Key="shared/checkpoint", Body=b"x")
    key(1).delete_object(Bucket=BUCKET, Key="shared/checkpoint")


def test_the_publisher_and_users_may_change_it(key: Callable[[int], Any], s3: Any, published: bytes) -> None:
    key(1).put_object(Bucket=BUCKET, Key=MODEL, Body=b"better")
    s3.copy_object(Bucket=BUCKET, Key=MODEL, CopySource=f"{BUCKET}/{INPUT}")
    key(10).put_object(Bucket=BUCKET, Key=MODEL, Body=b"x")  # what a user has put there belongs to no job


def test_a_put_that_began_before_the_publication_does_not_replace_it(
    server: Any, key: Callable[[int], Any], s3: Any
) -> None:
    name = "out/job-3/output/model.tar.gz"
    url = urlsplit(key(10).generate_presigned_url("put_object", {"Bucket": BUCKET, "Key": name}))
    connection = http.client.HTTPConnection(url.netloc)
    connection.putrequest("PUT", f"{url.path}?{url.query}")
    connection.putheader("Content-Length", "6")
    connection.endheaders()
    connection.send(b"att")
    key(3).put_object(Bucket=BUCKET, Key=name, Body=b"weights")
    connection.send(b"ack")
    reply = connection.getresponse()
    assert (reply.status, b"<Code>AccessDenied</Code>" in reply.read()) == (403, True)
    connection.close()
    assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == b"weights"


def test_a_form_of_another_job_does_not_replace_it(key: Callable[[int], Any], s3: Any, published: bytes) -> None:
    form = key(10).generate_presigned_post(BUCKET, MODEL)
    fields = {**form["fields"], "file": ("x", b"x")}
    reply = urllib3.request("POST", form["url"], fields=fields)
    assert (reply.status, b"published by training-job/job-1" in reply.data) == (403, True)
    assert s3.get_object(Bucket=BUCKET, Key=MODEL)["Body"].read() == published


def test_an_upload_in_parts_that_began_before_the_publication_does_not_replace_it(
    key: Callable[[int], Any], s3: Any
) -> None:
    name, other = "out/job-4/output/model.tar.gz", key(10)
    upload = other.create_multipart_upload(Bucket=BUCKET, Key=name)["UploadId"]
    where = {"Bucket": BUCKET, "Key": name, "UploadId": upload}
    part = other.upload_part(**where, PartNumber=1, Body=b"x")
    key(4).put_object(Bucket=BUCKET, Key=name, Body=b"weights")
    with pytest.raises(ClientError, match="published by training-job/job-4"):
        other.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    other.abort_multipart_upload(**where)
    assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == b"weights"


def test_another_job_neither_adds_to_a_published_upload_nor_ends_it(key: Callable[[int], Any], s3: Any) -> None:
    name, other = "out/job-5/checkpoint", key(10)
    where = {"Bucket": BUCKET, "Key": name}
    where["UploadId"] = key(5).create_multipart_upload(**where)["UploadId"]
    part = key(5).upload_part(**where, PartNumber=1, Body=b"weights")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.put_object(Bucket=BUCKET, Key="source", Body=b"x")
    for attempt in (
        lambda: other.upload_part(**where, PartNumber=1, Body=b"x"),
        lambda: other.upload_part_copy(**where, PartNumber=1, CopySource=f"{BUCKET}/source"),
        lambda: other.complete_multipart_upload(**where, MultipartUpload=parts),
        lambda: other.abort_multipart_upload(**where),
    ):
        with pytest.raises(ClientError, match="published by training-job/job-5"):
            attempt()
    key(5).complete_multipart_upload(**where, MultipartUpload=parts)
    assert s3.get_object(Bucket=BUCKET, Key=name)["Body"].read() == b"weights"
    with pytest.raises(ClientError, match="published by training-job/job-5"):
        other.put_object(Bucket=BUCKET, Key=name, Body=b"x")


def test_a_tagged_model_is_still_published(key: Callable[[int], Any], s3: Any, published: bytes) -> None:
    s3.put_object_tagging(Bucket=BUCKET, Key=MODEL, Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
    with pytest.raises(ClientError, match="published by training-job/job-1"):
        key(10).delete_object(Bucket=BUCKET, Key=MODEL)


def test_an_object_of_an_earlier_version_is_kept_as_that_version_kept_it(tmp_path: Any) -> None:
    info = ObjectInfo(
        bucket=BUCKET, key="k", content_id="c", size_bytes=1, etag="e", sha256="s", modified_ms=1, publisher=""
    )
    values = open_row(info.to_row(), what="row")
    del values["document"]["publisher"]

    def store(connection: Connection) -> None:
        object_index.insert_bucket(connection, BUCKET, 0)
        connection.execute(insert(objects).values(seal(values)))

    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        database.write_sync(store)
        found = database.read(lambda connection: object_index.get_object(connection, BUCKET, "k"))
    assert found is not None
    assert found.publisher is None
    writer = JobWriter("arn", "R", JobScope(name="job-1", output=f"{BUCKET}/out/job-1"), keeps_published=True)
    refusal = writer.refusal("s3:DeleteObject", BUCKET, "k", publisher=found.publisher)
    assert isinstance(refusal, AwsError)
    assert "an earlier version of tidemill stored the object" in refusal.message
    assert writer.refusal("s3:DeleteObject", BUCKET, "out/job-1/k", publisher=None) is None


def test_a_job_cannot_write_other_keys_by_an_archive(key: Callable[[int], Any], s3: Any) -> None:
    place = {"Bucket": BUCKET, "Key": "out/job-1/files.tar", "ContentType": "application/vnd.tidemill.files+tar"}
    with pytest.raises(ClientError, match=r"AccessDenied.*one by one"):
        key(1).put_object(Body=b"an archive", **place)
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix=place["Key"])
    # A presigned URL is for one key: its holder stores what an owner of the key would have extracted.
    url = s3.generate_presigned_url("put_object", Params=place)
    put = urllib3.PoolManager().request("PUT", url, body=b"an archive", headers={"Content-Type": place["ContentType"]})
    assert put.status == 200
    assert s3.get_object(Bucket=BUCKET, Key=place["Key"])["Body"].read() == b"an archive"
