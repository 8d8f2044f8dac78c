"""Default encryption and policies of buckets, by boto3 with the keys of a user and of jobs."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
import urllib3
from botocore.config import Config
from botocore.exceptions import ClientError

KEY = "1234abcd-12ab-34cd-56ef-1234567890ab"
ARN = f"arn:aws:kms:us-west-2:000000000000:key/{KEY}"
SSE = "s3:x-amz-server-side-encryption"
MODEL = "out/job-1/output/model.tar.gz"
SEALED = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": KEY}


@pytest.fixture
def bucket(s3: Any) -> Iterator[str]:
    """Yield a bucket to which the policy of jobs opens no key."""
    name = f"rules-{os.urandom(6).hex()}"
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    yield name
    s3.delete_bucket_policy(Bucket=name)
    s3.delete_objects(
        Bucket=name, Delete={"Objects": [{"Key": each["Key"]} for each in s3.list_objects_v2(Bucket=name)["Contents"]]}
    )
    s3.delete_bucket(Bucket=name)


@pytest.fixture
def job(server: Any) -> Any:
    """Return the client of a job."""
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-west-2",
        aws_access_key_id="ASIATIDEMILLJOB1",
        aws_secret_access_key="tidemill-tests-secret",
        config=Config(retries={"total_max_attempts": 1}, signature_version="s3v4"),
    )


def default(algorithm: str, **members: Any) -> dict[str, Any]:
    shown = {"SSEAlgorithm": algorithm, **members}
    return {"Rules": [{"ApplyServerSideEncryptionByDefault": shown, "BucketKeyEnabled": algorithm != "AES256"}]}


def put_policy(s3: Any, bucket: str, *statements: dict[str, Any]) -> str:
    text = json.dumps({"Version": "2012-10-17", "Statement": [{"Principal": "*", **each} for each in statements]})
    s3.put_bucket_policy(Bucket=bucket, Policy=text)
    return text


def deny(bucket: str, action: str = "s3:PutObject", *, key: str = "/*", **conditions: Any) -> dict[str, Any]:
    members = {"Effect": "Deny", "Action": action, "Resource": f"arn:aws:s3:::{bucket}{key}"}
    return members | ({"Condition": conditions} if conditions else {})


def refused(call: Callable[..., Any], **members: Any) -> tuple[int, str, str]:
    with pytest.raises(ClientError) as caught:
        call(**members)
    response = caught.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response["Error"]["Message"]


def shown(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in (*SEALED, "BucketKeyEnabled") if name in reply}


def upload(s3: Any, bucket: str, key: str, **members: Any) -> dict[str, Any]:
    at = {"Bucket": bucket, "Key": key}
    at["UploadId"] = s3.create_multipart_upload(**at, **members)["UploadId"]
    parts = [{"PartNumber": 1, "ETag": s3.upload_part(PartNumber=1, Body=b"x", **at)["ETag"]}]
    reply: dict[str, Any] = s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **at)
    return reply


def archive() -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w", format=tarfile.PAX_FORMAT) as files:
        member = tarfile.TarInfo("inner")
        member.size = 1
        files.addfile(member, io.BytesIO(b"x"))
    return body.getvalue()


def test_objects_without_a_request_to_encrypt_show_the_default_of_their_bucket(s3: Any, bucket: str) -> None:
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=default("aws:kms", KMSMasterKeyID=KEY))
    found = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
    assert found == default("aws:kms", KMSMasterKeyID=KEY)
    expected = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": ARN, "BucketKeyEnabled": True}
    assert shown(s3.put_object(Bucket=bucket, Key="put", Body=b"x")) == expected
    assert shown(s3.copy_object(Bucket=bucket, Key="copy", CopySource=f"{bucket}/put")) == expected
    assert shown(upload(s3, bucket, "parts")) == expected
    s3.put_object(Bucket=bucket, Key="many/a.tar", Body=archive(), ContentType="application/vnd.tidemill.files+tar")
    for key in ("put", "copy", "parts", "many/inner"):
        assert shown(s3.head_object(Bucket=bucket, Key=key)) == expected
    own = s3.put_object(Bucket=bucket, Key="own", Body=b"x", ServerSideEncryption="AES256")
    assert shown(own) == {"ServerSideEncryption": "AES256"}
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=default("AES256"))
    assert shown(s3.put_object(Bucket=bucket, Key="put", Body=b"x")) == {"ServerSideEncryption": "AES256"}
    s3.delete_bucket_encryption(Bucket=bucket)
    assert shown(s3.put_object(Bucket=bucket, Key="put", Body=b"x")) == {}


def test_a_default_that_cannot_be_shown_is_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    put = s3.put_bucket_encryption
    many = {"Rules": default("AES256")["Rules"] * 2}
    assert refused(put, Bucket=bucket, ServerSideEncryptionConfiguration=many)[:2] == (400, "MalformedXML")
    other = refused(put, Bucket=bucket, ServerSideEncryptionConfiguration=default("aws:fsx"))
    assert other[:2] == (400, "MalformedXML")
    keyed = default("AES256", KMSMasterKeyID=KEY)
    assert refused(put, Bucket=bucket, ServerSideEncryptionConfiguration=keyed)[:2] == (400, "InvalidArgument")
    absent = refused(put, Bucket="no-such-bucket-here", ServerSideEncryptionConfiguration=default("AES256"))
    assert absent[:2] == (404, "NoSuchBucket")


def test_a_policy_demands_encryption_of_every_write_by_every_caller(s3: Any, bucket: str) -> None:
    text = put_policy(
        s3,
        bucket,
        {"Sid": "Kms", **deny(bucket, StringNotEquals={SSE: "aws:kms"})},
        deny(bucket, Null={SSE: "true"}),
        deny(bucket, StringNotEquals={f"{SSE}-aws-kms-key-id": ARN}),
    )
    assert s3.get_bucket_policy(Bucket=bucket)["Policy"] == text
    assert s3.get_bucket_policy_status(Bucket=bucket)["PolicyStatus"] == {"IsPublic": False}
    at = {"Bucket": bucket, "Key": "k"}
    status, code, message = refused(s3.put_object, Body=b"x", **at)
    assert (status, code) == (403, "AccessDenied")
    assert f"s3:PutObject on resource: arn:aws:s3:::{bucket}/k" in message
    assert "Statement 1 (Kms) of the bucket's policy denies it" in message
    assert refused(s3.put_object, Body=b"x", ServerSideEncryption="AES256", **at)[1] == "AccessDenied"
    assert refused(s3.put_object, Body=b"x", ServerSideEncryption="aws:kms", **at)[1] == "AccessDenied"
    s3.put_object(Body=b"x", **at, **SEALED)
    copy = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/k"}
    assert refused(s3.copy_object, **copy)[1] == "AccessDenied"
    s3.copy_object(**copy, **SEALED)
    assert refused(s3.create_multipart_upload, **at)[1] == "AccessDenied"
    upload(s3, bucket, "parts", **SEALED)
    packed = refused(s3.put_object, Body=archive(), ContentType="application/vnd.tidemill.files+tar", **at, **SEALED)
    assert packed[1] == "AccessDenied"
    s3.delete_bucket_policy(Bucket=bucket)
    assert refused(s3.get_bucket_policy, Bucket=bucket)[1] == "NoSuchBucketPolicy"
    s3.put_object(Body=b"x", **at)


def test_a_policy_holds_for_presigned_urls_and_forms(s3: Any, bucket: str) -> None:
    put_policy(s3, bucket, deny(bucket, Null={SSE: "true"}))
    at, header = {"Bucket": bucket, "Key": "k"}, {"x-amz-server-side-encryption": "AES256"}
    plain = s3.generate_presigned_post(**at)
    sealed = s3.generate_presigned_post(**at, Fields=header, Conditions=[header])
    posted = [
        urllib3.request("POST", form["url"], fields={**form["fields"], "file": ("k", b"x")}).status
        for form in (plain, sealed)
    ]
    assert posted == [403, 204]
    # A URL in the signed parts of which no encryption is named asks for none.
    url = s3.generate_presigned_url("put_object", Params=at)
    assert urllib3.request("PUT", url, body=b"x").status == 403


def test_the_default_of_a_bucket_does_not_replace_the_header_that_a_policy_demands(s3: Any, bucket: str) -> None:
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=default("aws:kms", KMSMasterKeyID=KEY))
    put_policy(s3, bucket, deny(bucket, Null={SSE: "true"}))
    assert refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x")[1] == "AccessDenied"
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", **SEALED)


def test_a_policy_against_everything_leaves_itself_to_the_owner(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put_policy(s3, bucket, deny(bucket, "s3:*", Bool={"aws:SecureTransport": "false"}), deny(bucket, "s3:*", key=""))
    assert refused(s3.get_object, Bucket=bucket, Key="k")[1] == "AccessDenied"
    assert refused(s3.list_objects_v2, Bucket=bucket)[1] == "AccessDenied"
    assert refused(s3.delete_bucket, Bucket=bucket)[1] == "AccessDenied"
    elsewhere = {"Bucket": bucket, "Key": "copy", "CopySource": f"{bucket}/k"}
    assert refused(s3.copy_object, **elsewhere)[1] == "AccessDenied"
    assert "Deny" in s3.get_bucket_policy(Bucket=bucket)["Policy"]
    put_policy(s3, bucket, deny(bucket, "s3:DeleteObject", key="/k"))
    many = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "k"}, {"Key": "other"}]})
    assert [(each["Key"], each["Code"]) for each in many["Errors"]] == [("k", "AccessDenied")]
    assert [each["Key"] for each in many["Deleted"]] == ["other"]


def test_the_policy_of_a_copys_source_applies(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put_policy(s3, bucket, deny(bucket, "s3:GetObject"))
    target = f"target-{os.urandom(6).hex()}"
    s3.create_bucket(Bucket=target, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    assert refused(s3.copy_object, Bucket=target, Key="k", CopySource=f"{bucket}/k")[1] == "AccessDenied"
    s3.delete_bucket(Bucket=target)


def test_allow_adds_rights_to_the_role_that_it_names(s3: Any, job: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    put = {"Bucket": bucket, "Key": "of-job", "Body": b"x"}
    assert refused(job.put_object, **put)[1] == "AccessDenied"
    allow = {**deny(bucket), "Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:role/SageMakerRole"}}
    put_policy(s3, bucket, allow)
    job.put_object(**put)
    assert refused(job.delete_object, Bucket=bucket, Key="k")[1] == "AccessDenied"
    assert refused(job.delete_bucket_policy, Bucket=bucket)[1] == "AccessDenied"
    put_policy(s3, bucket, allow, deny(bucket, key="/of-job"))
    assert "of the bucket's policy denies it" in refused(job.put_object, **put)[2]


def test_policies_that_would_not_be_honored_are_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k")
    public = json.dumps({"Statement": {**deny(bucket), "Effect": "Allow", "Principal": "*"}})
    status, code, message = refused(s3.put_bucket_policy, Bucket=bucket, Policy=public)
    assert (status, code) == (403, "AccessDenied")
    assert "BlockPublicPolicy" in message
    other = json.dumps({"Statement": {**deny("elsewhere"), "Principal": "*"}})
    status, code, message = refused(s3.put_bucket_policy, Bucket=bucket, Policy=other)
    assert (status, code) == (400, "MalformedPolicy")
    assert f"allowed are arn:aws:s3:::{bucket}" in message
    twice = json.dumps({"Statement": deny(bucket)}).replace('"Effect"', '"Effect": "Allow", "Effect"')
    for text in (twice, "[" * 3000):
        assert refused(s3.put_bucket_policy, Bucket=bucket, Policy=text)[1] == "MalformedPolicy"
    assert refused(s3.put_bucket_policy, Bucket="no-such-bucket-here", Policy=other)[1] == "NoSuchBucket"
    assert refused(s3.get_bucket_policy, Bucket=bucket)[1] == "NoSuchBucketPolicy"


def test_the_rules_of_a_bucket_end_with_it(s3: Any, bucket: str) -> None:
    s3.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=default("AES256"))
    put_policy(s3, bucket, deny(bucket))
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    assert shown(s3.put_object(Bucket=bucket, Key="k", Body=b"x")) == {}
    assert refused(s3.get_bucket_policy, Bucket=bucket)[1] == "NoSuchBucketPolicy"


def test_no_write_reaches_a_bucket_that_was_deleted_after_its_rules_were_read(s3: Any) -> None:
    name, writes = f"gone-{os.urandom(6).hex()}", {"Key": "k"}
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket=name, **writes, Body=b"x")  # its rules are in memory from now on
    source = {"Bucket": f"{name}-source", "Key": "k"}
    s3.create_bucket(Bucket=source["Bucket"], CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(**source, Body=b"x")
    s3.delete_object(Bucket=name, **writes)
    s3.delete_bucket(Bucket=name)

    assert refused(s3.put_object, Bucket=name, **writes, Body=b"x")[:2] == (404, "NoSuchBucket")
    assert refused(s3.create_multipart_upload, Bucket=name, **writes)[:2] == (404, "NoSuchBucket")
    assert refused(s3.copy_object, Bucket=name, **writes, CopySource=source)[:2] == (404, "NoSuchBucket")

    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket=name, **writes, Body=b"again")
    assert s3.get_object(Bucket=name, **writes)["Body"].read() == b"again"
    for each in (name, source["Bucket"]):
        s3.delete_object(Bucket=each, Key="k")
        s3.delete_bucket(Bucket=each)
