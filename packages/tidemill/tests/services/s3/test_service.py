"""Behavior of tidemill's own S3: refusals, checksums, parts, damage; by boto3 over a real socket."""

import base64
import hashlib
import zlib
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.handlers import validate_bucket_name

from tidemill.errors import AwsError
from tidemill.wire.operations import operation

REGION = "us-west-2"
PART = 5 * 1024 * 1024


def refused(call: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return raised.value.response


def code_of(call: Callable[..., Any], **arguments: Any) -> str:
    return refused(call, **arguments)["Error"]["Code"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"ServerSideEncryption": "AES256", "SSEKMSKeyId": "key"}, "InvalidArgument"),
        ({"SSEKMSKeyId": "key"}, "InvalidArgument"),
        ({"ServerSideEncryption": "aws:fsx"}, "InvalidArgument"),
        ({"SSECustomerAlgorithm": "AES256", "SSECustomerKey": "k" * 32}, "InvalidRequest"),
        ({"ACL": "public-read"}, "AccessControlListNotSupported"),
        ({"GrantRead": "id=1"}, "AccessControlListNotSupported"),
        ({"StorageClass": "OUTPOSTS"}, "InvalidStorageClass"),
        ({"ObjectLockMode": "GOVERNANCE", "ContentMD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, "InvalidRequest"),
        ({"ObjectLockLegalHoldStatus": "ON", "ContentMD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}, "InvalidRequest"),
        ({"WebsiteRedirectLocation": "/other"}, "InvalidRequest"),
        ({"WriteOffsetBytes": 0}, "InvalidRequest"),
        ({"ExpectedBucketOwner": "111111111111"}, "AccessDenied"),
        ({"Metadata": {"m": "x" * 2048}}, "MetadataTooLarge"),
        ({"Tagging": "&".join(f"t{index}=1" for index in range(11))}, "InvalidTag"),
        ({"Tagging": "a=1&a=2"}, "InvalidTag"),
        ({"IfNoneMatch": '"etag"'}, "InvalidArgument"),
        ({"ContentMD5": "AAAAAAAAAAAAAAAAAAAAAA=="}, "BadDigest"),
        ({"ChecksumCRC32": "AAAAAA=="}, "BadDigest"),
    ],
)
def test_requests_that_cannot_be_honored_are_refused(
    s3: Any, bucket: str, arguments: dict[str, Any], code: str
) -> None:
    assert code_of(s3.put_object, Bucket=bucket, Key="k", Body=b"x", **arguments) == code
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket)


def test_harmless_arguments_are_accepted(s3: Any, bucket: str) -> None:
    s3.put_object(
        Bucket=bucket, Key="k", Body=b"x", ACL="private", StorageClass="STANDARD", ExpectedBucketOwner="000000000000"
    )


def test_headers_as_pyarrow_and_s3fs_write_them_are_understood(s3: Any, bucket: str) -> None:
    # s3fs 0.4 sends an empty ACL with creates; pyarrow requests checksums in lower case.
    s3.create_bucket(Bucket=f"{bucket}-2", ACL="", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    upload = {"Bucket": bucket, "Key": "k"}
    upload["UploadId"] = s3.create_multipart_upload(ACL="", StorageClass="", ChecksumAlgorithm="crc32", **upload)[
        "UploadId"
    ]
    part = s3.upload_part(PartNumber=1, Body=b"hello", ChecksumAlgorithm="CRC32", **upload)
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}]
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    read = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="enabled")
    assert read["Body"].read() == b"hello"
    assert read["ChecksumCRC32"].endswith("-1")
    s3.copy_object(Bucket=bucket, Key="c", CopySource=f"{bucket}/k", MetadataDirective="replace", Metadata={"a": "1"})
    assert s3.head_object(Bucket=bucket, Key="c")["Metadata"] == {"a": "1"}


@pytest.mark.parametrize("condition", [{"IfMatch": ""}, {"ExpectedBucketOwner": ""}])
def test_an_empty_condition_is_not_left_out(s3: Any, bucket: str, condition: dict[str, str]) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"old")
    assert code_of(s3.put_object, Bucket=bucket, Key="k", Body=b"new", **condition) in (
        "PreconditionFailed",
        "AccessDenied",
    )
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"old"


KEY_ARN = "arn:aws:kms:us-west-2:000000000000:key/"
STORAGE = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled", "StorageClass", "SSEKMSEncryptionContext")


def storage_of(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in STORAGE if name in reply}


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({}, {}),
        ({"ServerSideEncryption": "AES256"}, {"ServerSideEncryption": "AES256"}),
        (
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "1234abcd", "BucketKeyEnabled": True},
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": f"{KEY_ARN}1234abcd", "BucketKeyEnabled": True},
        ),
        (
            {"ServerSideEncryption": "aws:kms:dsse", "SSEKMSKeyId": "arn:aws:kms:eu-west-1:111122223333:key/k"},
            {"ServerSideEncryption": "aws:kms:dsse", "SSEKMSKeyId": "arn:aws:kms:eu-west-1:111122223333:key/k"},
        ),
        ({"StorageClass": "STANDARD_IA"}, {"StorageClass": "STANDARD_IA"}),
        ({"StorageClass": "STANDARD"}, {}),
    ],
)
def test_encryption_and_storage_class_are_shown_as_requested(
    s3: Any, bucket: str, asked: dict[str, Any], shown: dict[str, Any]
) -> None:
    of_write = {name: value for name, value in shown.items() if name != "StorageClass"}
    put = {"Bucket": bucket, "Key": "put"}
    assert storage_of(s3.put_object(Body=b"x", **put, **asked)) == of_write
    s3.put_object(Bucket=bucket, Key="source", Body=b"y", StorageClass="GLACIER", ServerSideEncryption="AES256")
    copy = {"Bucket": bucket, "Key": "copy"}
    assert storage_of(s3.copy_object(CopySource=f"{bucket}/source", **copy, **asked)) == of_write
    upload = {"Bucket": bucket, "Key": "upload"}
    begun = s3.create_multipart_upload(**upload, **asked)
    assert storage_of(begun) == of_write
    at = {**upload, "UploadId": begun["UploadId"]}
    part = s3.upload_part(PartNumber=1, Body=b"z", **at)
    assert storage_of(part) == of_write
    assert storage_of(s3.list_parts(**at)) == {"StorageClass": shown.get("StorageClass", "STANDARD")}
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    assert storage_of(s3.complete_multipart_upload(MultipartUpload=parts, **at)) == of_write
    for place in (put, copy, upload):
        assert storage_of(s3.head_object(**place)) == shown
        assert storage_of(s3.get_object(**place)) == shown
    listed = {entry["Key"]: entry["StorageClass"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]}
    wanted = shown.get("StorageClass", "STANDARD")
    assert listed == {"copy": wanted, "put": wanted, "source": "GLACIER", "upload": wanted}


def test_a_kms_key_without_a_name_is_that_of_s3(s3: Any, bucket: str) -> None:
    replies = [s3.put_object(Bucket=bucket, Key=key, Body=b"x", ServerSideEncryption="aws:kms") for key in "ab"]
    (key,) = {reply["SSEKMSKeyId"] for reply in replies}
    assert key.startswith(KEY_ARN)


def test_an_object_copied_onto_itself_gets_another_storage_class(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x", Metadata={"a": "1"}, ServerSideEncryption="AES256")
    s3.copy_object(Bucket=bucket, Key="k", CopySource=f"{bucket}/k", StorageClass="ONEZONE_IA")
    found = s3.head_object(Bucket=bucket, Key="k")
    assert (storage_of(found), found["Metadata"]) == ({"StorageClass": "ONEZONE_IA"}, {"a": "1"})


def test_a_refusal_names_the_member_and_keeps_secrets(s3: Any, bucket: str) -> None:
    key = "s" * 32
    error = refused(s3.put_object, Bucket=bucket, Key="k", Body=b"", SSECustomerAlgorithm="AES256", SSECustomerKey=key)
    assert "at 'SSECustomerAlgorithm' is not allowed: objects are stored in plain form" in error["Error"]["Message"]
    with pytest.raises(AwsError, match=r"Value '\*\*\*' at 'SSECustomerKey'"):
        operation("s3", "PutObject", "rest-xml").refuse({"SSECustomerKey": key})


@pytest.mark.parametrize("condition", [{"IfMatchSize": 7}, {"IfMatchLastModifiedTime": 0}])
def test_a_condition_that_would_be_ignored_deletes_nothing(s3: Any, bucket: str, condition: dict[str, Any]) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"x")
    assert code_of(s3.delete_object, Bucket=bucket, Key="k", **condition) == "InvalidRequest"
    entry = {"Key": "k", **{name.removeprefix("IfMatch"): value for name, value in condition.items()}}
    assert code_of(s3.delete_objects, Bucket=bucket, Delete={"Objects": [entry]}) == "InvalidRequest"
    assert s3.head_object(Bucket=bucket, Key="k")["ContentLength"] == 1


def test_buckets_are_listed_by_their_region(s3: Any, bucket: str) -> None:
    assert bucket in [entry["Name"] for entry in s3.list_buckets(BucketRegion=REGION)["Buckets"]]
    assert s3.list_buckets(BucketRegion="eu-west-1").get("Buckets", []) == []


def test_a_bucket_that_is_asked_to_be_something_else_is_refused(server: Any) -> None:
    s3 = server.client()
    for arguments in (
        {"ObjectOwnership": "ObjectWriter"},
        {"ObjectLockEnabledForBucket": True},
        {"CreateBucketConfiguration": {"Tags": [{"Key": "a", "Value": "b"}]}},
        {"GrantWrite": "id=1"},
    ):
        assert code_of(s3.create_bucket, Bucket="asked-for-more", **arguments) in (
            "InvalidRequest",
            "AccessControlListNotSupported",
        )
    s3.create_bucket(
        Bucket="asked-for-no-more", ObjectOwnership="BucketOwnerEnforced", ObjectLockEnabledForBucket=False
    )


def test_an_algorithm_without_a_checksum_is_refused(server: Any, bucket: str) -> None:
    s3 = server.client(request_checksum_calculation="when_required")

    def name_an_algorithm(request: Any, **_: Any) -> None:
        request.headers["x-amz-sdk-checksum-algorithm"] = "CRC32"

    s3.meta.events.register("before-sign.s3.PutObject", name_an_algorithm)
    error = refused(s3.put_object, Bucket=bucket, Key="k", Body=b"x")["Error"]
    assert error["Code"] == "InvalidRequest"
    assert "send x-amz-checksum-crc32" in error["Message"]


def test_an_upload_is_not_completed_as_another_type(s3: Any, bucket: str) -> None:
    upload = {"Bucket": bucket, "Key": "mp"}
    upload["UploadId"] = s3.create_multipart_upload(ChecksumAlgorithm="CRC32", **upload)["UploadId"]
    part = s3.upload_part(PartNumber=1, Body=b"1", ChecksumAlgorithm="CRC32", **upload)
    parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumCRC32": part["ChecksumCRC32"]}]
    complete = s3.complete_multipart_upload
    assert code_of(complete, MultipartUpload={"Parts": parts}, ChecksumType="FULL_OBJECT", **upload) == "InvalidRequest"
    assert complete(MultipartUpload={"Parts": parts}, ChecksumType="COMPOSITE", **upload)["ChecksumType"] == "COMPOSITE"


def test_operations_without_a_counterpart_are_unknown(s3: Any, bucket: str) -> None:
    assert code_of(s3.put_bucket_cors, Bucket=bucket, CORSConfiguration={"CORSRules": []}) == "NotImplemented"
    assert code_of(s3.put_bucket_acl, Bucket=bucket, ACL="private") == "NotImplemented"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", VersionId="v1") == "NoSuchVersion"


def test_a_wrong_secret_is_refused(server: Any, bucket: str) -> None:
    other = boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-west-2",
        aws_access_key_id="AKIATIDEMILLTESTS000",
        aws_secret_access_key="wrong",
    )
    assert code_of(other.put_object, Bucket=bucket, Key="k", Body=b"x") == "SignatureDoesNotMatch"


@pytest.mark.parametrize("name", ["A_b", "ab", "endpoints"])
def test_a_bad_bucket_name_is_refused(server: Any, name: str) -> None:
    client = server.client()
    # boto3 itself would refuse some of them.
    client.meta.events.unregister("before-parameter-build.s3", validate_bucket_name)
    assert code_of(client.create_bucket, Bucket=name) == "InvalidBucketName"


@pytest.mark.parametrize("key", ["a\0b", "a\x1bb"])
def test_a_key_that_cannot_be_listed_is_refused(s3: Any, bucket: str, key: str) -> None:
    assert code_of(s3.put_object, Bucket=bucket, Key=key, Body=b"") == "InvalidArgument"


def test_keys_with_line_ends_and_markup_are_listed_with_and_without_encoding(s3: Any, bucket: str) -> None:
    keys = sorted(["a\nb", "a\r\nb", "<&>", "tab\there"])
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    assert [entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket)["Contents"]] == keys
    encoded = s3.list_objects(Bucket=bucket, EncodingType="url")["Contents"]
    assert [entry["Key"] for entry in encoded] == ["%3C%26%3E", "a%0Ab", "a%0D%0Ab", "tab%09here"]


def test_a_checksum_of_the_whole_is_not_sent_with_a_part(s3: Any, bucket: str) -> None:
    expected = base64.b64encode(zlib.crc32(b"0123456789").to_bytes(4, "big")).decode()
    s3.put_object(Bucket=bucket, Key="k", Body=b"0123456789")
    whole = s3.get_object(Bucket=bucket, Key="k", ChecksumMode="ENABLED")
    assert (whole["ChecksumCRC32"], whole["ChecksumType"]) == (expected, "FULL_OBJECT")
    for read in (s3.get_object, s3.head_object):
        assert "ChecksumCRC32" not in read(Bucket=bucket, Key="k", Range="bytes=0-3", ChecksumMode="ENABLED")
        assert "ChecksumCRC32" not in read(Bucket=bucket, Key="k", PartNumber=1, ChecksumMode="ENABLED")


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [("CRC32", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT"), ("SHA256", "COMPOSITE")],
)
def test_an_upload_has_the_checksum_that_was_asked_for(s3: Any, bucket: str, algorithm: str, kind: str) -> None:
    upload = {"Bucket": bucket, "Key": "mp"}
    begun = s3.create_multipart_upload(ChecksumAlgorithm=algorithm, ChecksumType=kind, **upload)
    assert (begun["ChecksumAlgorithm"], begun["ChecksumType"]) == (algorithm, kind)
    upload["UploadId"] = begun["UploadId"]
    member = f"Checksum{algorithm}"
    bodies = [b"1" * PART, b"2" * 7]
    parts = []
    for number, body in enumerate(bodies, 1):
        sent = s3.upload_part(PartNumber=number, Body=body, ChecksumAlgorithm=algorithm, **upload)
        parts.append({"PartNumber": number, "ETag": sent["ETag"], member: sent[member]})
    listed = s3.list_parts(**upload)["Parts"]
    assert [part[member] for part in listed] == [part[member] for part in parts]
    wrong = [{**parts[0], member: parts[1][member]}, parts[1]]
    assert code_of(s3.complete_multipart_upload, MultipartUpload={"Parts": wrong}, **upload) == "InvalidPart"
    done = s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, ChecksumType=kind, **upload)
    assert done["ChecksumType"] == kind
    head = s3.head_object(Bucket=bucket, Key="mp", ChecksumMode="ENABLED")
    assert head[member] == done[member]
    raw = [base64.b64decode(part[member]) for part in parts]
    if (algorithm, kind) == ("CRC32", "COMPOSITE"):
        assert done[member] == base64.b64encode(zlib.crc32(b"".join(raw)).to_bytes(4, "big")).decode() + "-2"
    if (algorithm, kind) == ("CRC32", "FULL_OBJECT"):
        assert done[member] == base64.b64encode(zlib.crc32(b"".join(bodies)).to_bytes(4, "big")).decode()
    if algorithm == "SHA256":
        assert done[member] == base64.b64encode(hashlib.sha256(b"".join(raw)).digest()).decode() + "-2"
    # boto3 verifies the body with a checksum of the whole object.
    assert s3.get_object(Bucket=bucket, Key="mp", ChecksumMode="ENABLED")["Body"].read() == b"".join(bodies)
    second = s3.get_object(Bucket=bucket, Key="mp", PartNumber=2)
    assert (second["Body"].read(), second["PartsCount"]) == (bodies[1], 2)
    assert refused(s3.get_object, Bucket=bucket, Key="mp", PartNumber=3)["ResponseMetadata"]["HTTPStatusCode"] == 416


def test_a_part_uploaded_again_replaces_the_first(s3: Any, server: Any, bucket: str) -> None:
    upload = {"Bucket": bucket, "Key": "mp"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    first = s3.upload_part(PartNumber=1, Body=b"first", **upload)["ETag"]
    second = s3.upload_part(PartNumber=1, Body=b"second", **upload)["ETag"]
    complete = s3.complete_multipart_upload
    assert code_of(complete, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": first}]}, **upload) == "InvalidPart"
    complete(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": second}]}, **upload)
    assert s3.get_object(Bucket=bucket, Key="mp")["Body"].read() == b"second"
    assert code_of(s3.abort_multipart_upload, **upload) == "NoSuchUpload"


def test_an_upload_does_not_break_a_condition(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="mp", Body=b"present")
    upload = {"Bucket": bucket, "Key": "mp"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    parts = [{"PartNumber": 1, "ETag": s3.upload_part(PartNumber=1, Body=b"late", **upload)["ETag"]}]
    complete = s3.complete_multipart_upload
    assert code_of(complete, MultipartUpload={"Parts": parts}, IfNoneMatch="*", **upload) == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="mp")["Body"].read() == b"present"


def test_uploads_are_listed_by_pages_and_folders(s3: Any, bucket: str) -> None:
    for key in ("a/1", "a/2", "b", "b", "c/1"):
        s3.create_multipart_upload(Bucket=bucket, Key=key)
    pages = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    assert [entry["Key"] for page in pages for entry in page["Uploads"]] == ["a/1", "a/2", "b", "b", "c/1"]
    folders = s3.list_multipart_uploads(Bucket=bucket, Delimiter="/")
    assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == ["a/", "c/"]
    assert [entry["Key"] for entry in folders["Uploads"]] == ["b", "b"]
    assert code_of(s3.delete_bucket, Bucket=bucket) == "BucketNotEmpty"


def test_conditions_of_copies_and_deletes_hold(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    source = {"Bucket": bucket, "Key": "k"}
    copy, delete = s3.copy_object, s3.delete_object
    assert code_of(copy, Bucket=bucket, Key="c", CopySource=source, CopySourceIfMatch='"0"') == "PreconditionFailed"
    assert code_of(copy, Bucket=bucket, Key="c", CopySource=source, CopySourceIfNoneMatch=etag) == "PreconditionFailed"
    assert code_of(delete, Bucket=bucket, Key="k", IfMatch='"0"') == "PreconditionFailed"
    delete(Bucket=bucket, Key="k", IfMatch=etag)
    assert code_of(copy, Bucket=bucket, Key="c", CopySource=f"{bucket}/k?versionId=v") == "NoSuchVersion"


def test_a_copy_gets_the_checksum_that_is_asked_for(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"hello")
    result = s3.copy_object(Bucket=bucket, Key="c", CopySource=f"{bucket}/k", ChecksumAlgorithm="SHA256")
    expected = base64.b64encode(hashlib.sha256(b"hello").digest()).decode()
    assert result["CopyObjectResult"]["ChecksumSHA256"] == expected
    assert s3.head_object(Bucket=bucket, Key="c", ChecksumMode="ENABLED")["ChecksumSHA256"] == expected


def test_an_unknown_token_and_an_unknown_encoding_are_refused(s3: Any, bucket: str) -> None:
    assert code_of(s3.list_objects_v2, Bucket=bucket, ContinuationToken="no!") == "InvalidArgument"
    assert code_of(s3.list_objects_v2, Bucket=bucket, EncodingType="rot13") == "InvalidArgument"
    empty = s3.list_objects_v2(Bucket=bucket, MaxKeys=0)
    assert (empty["KeyCount"], empty["IsTruncated"]) == (0, False)


@pytest.mark.parametrize("size_bytes", [1000, 9 * 1024 * 1024])
def test_damage_on_the_disk_is_an_internal_error_and_never_wrong_bytes(
    server: Any, s3: Any, bucket: str, size_bytes: int
) -> None:
    data = base64.b64encode(bucket.encode()) * (size_bytes // len(base64.b64encode(bucket.encode())) + 1)
    s3.put_object(Bucket=bucket, Key="k", Body=data)
    path = server.content_file(data)
    path.chmod(0o600)
    # A large object is checked by its length before it is sent, a small one by its digest.
    path.write_bytes(b"?" + data[1:] if size_bytes == 1000 else data[:-1])
    for _ in range(2):
        response = refused(s3.get_object, Bucket=bucket, Key="k")
        assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == ("InternalError", 500)
    assert (server.root / "objects/quarantine" / path.name).exists()
    s3.put_object(Bucket=bucket, Key="k", Body=b"mended")
    assert s3.get_object(Bucket=bucket, Key="k")["Body"].read() == b"mended"


def test_a_presigned_url_accepts_a_put(s3: Any, bucket: str) -> None:
    url = urlsplit(s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "by url"}))
    with closing(HTTPConnection(url.netloc)) as connection:
        connection.request("PUT", f"{url.path}?{url.query}", body=b"by url")
        assert connection.getresponse().status == 200
    assert s3.get_object(Bucket=bucket, Key="by url")["Body"].read() == b"by url"


def test_a_file_is_uploaded_and_downloaded_unchanged(s3: Any, bucket: str, tmp_path: Path) -> None:
    data = bytes(range(256)) * 70_000
    (tmp_path / "up").write_bytes(data)
    s3.upload_file(str(tmp_path / "up"), bucket, "file")
    s3.download_file(bucket, "file", str(tmp_path / "down"))
    assert (tmp_path / "down").read_bytes() == data


@pytest.mark.parametrize("size_bytes", [10, 3 << 20])
@pytest.mark.parametrize("operation", ["put", "archive", "part"])
def test_bytes_other_than_the_signed_ones_are_refused_by_every_operation_that_stores_them(
    server: Any, bucket: str, operation: str, size_bytes: int
) -> None:
    s3 = server.client(request_checksum_calculation="when_required")  # only the SHA-256 of the signature is compared
    upload = s3.create_multipart_upload(Bucket=bucket, Key="k")["UploadId"]
    before = set(server.content_files())
    place = {"Bucket": bucket, "Key": "k", "Body": bytes(size_bytes)}

    def change(request: Any, **_: Any) -> None:
        request.body = b"1" * size_bytes

    s3.meta.events.register("before-send.s3", change)
    with pytest.raises(ClientError, match="XAmzContentSHA256Mismatch"):
        if operation == "part":
            s3.upload_part(UploadId=upload, PartNumber=1, **place)
        else:
            kind = "application/vnd.tidemill.files+tar" if operation == "archive" else "text/plain"
            s3.put_object(ContentType=kind, **place)
    # What earlier tests deleted may go meanwhile.
    assert (server.temporaries(), set(server.content_files()) - before) == ([], set())
