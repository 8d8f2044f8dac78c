"""The same checks by boto3, with its default settings, on tidemill's service and on moto's; tidemill must pass all.

moto is the reference: a check that moto passes describes S3's behavior, and the few that it fails are listed.
"""

import io
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

PART = 5 * 1024 * 1024
Check = Callable[[Any, str], None]
CHECKS: dict[str, Check] = {}
MOTO_FAILS = {
    "an_aborted_upload_is_gone",
    "an_overlong_key_is_refused",
    "listings_with_folders_are_paged",
    "many_objects_are_deleted_at_once",
    "wrong_parts_are_refused",
}
"""Checks that moto is known to fail, although AWS documents the behavior. Any other failure is one of tidemill's."""


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def code_of(call: Callable[..., Any], **arguments: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return raised.value.response["Error"]["Code"]


def keys_of(pages: Iterable[Any]) -> list[str]:
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def put(s3: Any, bucket: str, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())


@check
def a_bucket_is_listed_with_its_creation_date(s3: Any, bucket: str) -> None:
    found = {entry["Name"]: entry["CreationDate"] for entry in s3.list_buckets()["Buckets"]}
    assert abs(found[bucket] - datetime.now(UTC)) < timedelta(minutes=5)


@check
def a_bucket_that_exists_has_a_head(s3: Any, bucket: str) -> None:
    assert s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPStatusCode"] == 200


@check
def a_bucket_that_is_missing_has_none(s3: Any, bucket: str) -> None:
    assert code_of(s3.head_bucket, Bucket=f"{bucket}-missing") == "404"


@check
def creating_a_bucket_again_says_that_it_is_yours(s3: Any, bucket: str) -> None:
    assert (
        code_of(s3.create_bucket, Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        == "BucketAlreadyOwnedByYou"
    )


@check
def a_bucket_knows_its_location(s3: Any, bucket: str) -> None:
    assert s3.get_bucket_location(Bucket=bucket)["LocationConstraint"] == "us-west-2"


@check
def a_bucket_with_objects_is_not_deleted(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a")
    assert code_of(s3.delete_bucket, Bucket=bucket) == "BucketNotEmpty"
    s3.delete_object(Bucket=bucket, Key="a")
    s3.delete_bucket(Bucket=bucket)
    assert code_of(s3.head_bucket, Bucket=bucket) == "404"


@check
def an_object_is_read_back(s3: Any, bucket: str) -> None:
    data = os.urandom(100_000)
    s3.put_object(Bucket=bucket, Key="data", Body=data)
    got = s3.get_object(Bucket=bucket, Key="data")
    assert got["Body"].read() == data
    assert got["ContentLength"] == len(data)
    assert got["AcceptRanges"] == "bytes"


@check
def an_empty_object_is_an_object(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="empty", Body=b"")
    assert s3.get_object(Bucket=bucket, Key="empty")["Body"].read() == b""
    assert s3.head_object(Bucket=bucket, Key="empty")["ContentLength"] == 0


@check
def an_etag_is_the_quoted_md5(s3: Any, bucket: str) -> None:
    expected = '"5d41402abc4b2a76b9719d911017c592"'
    assert s3.put_object(Bucket=bucket, Key="k", Body=b"hello")["ETag"] == expected
    assert s3.head_object(Bucket=bucket, Key="k")["ETag"] == expected


@check
def an_unseekable_body_is_stored(s3: Any, bucket: str) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.left = 300_000

        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            length = min(self.left, size if size >= 0 else self.left)
            self.left -= length
            return b"x" * length

    s3.upload_fileobj(Pipe(), bucket, "piped")
    assert s3.get_object(Bucket=bucket, Key="piped")["Body"].read() == b"x" * 300_000


@check
def user_metadata_comes_back(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="m", Body=b"", Metadata={"step": "12", "Run-Name": "a b"})
    assert s3.head_object(Bucket=bucket, Key="m")["Metadata"] == {"step": "12", "run-name": "a b"}


@check
def content_headers_come_back(s3: Any, bucket: str) -> None:
    headers = {
        "ContentType": "text/csv",
        "CacheControl": "no-cache",
        "ContentDisposition": "attachment",
        "ContentEncoding": "gzip",
        "ContentLanguage": "de",
    }
    s3.put_object(Bucket=bucket, Key="h", Body=b"1", Expires=datetime(2030, 1, 2, tzinfo=UTC), **headers)
    head = s3.head_object(Bucket=bucket, Key="h")
    assert {name: head[name] for name in headers} == headers
    assert head["ExpiresString"] == "Wed, 02 Jan 2030 00:00:00 GMT"


@check
def the_default_content_type_is_binary(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="t", Body=b"1")
    assert s3.head_object(Bucket=bucket, Key="t")["ContentType"] == "binary/octet-stream"


@check
def a_reader_overrides_headers(s3: Any, bucket: str) -> None:
    put(s3, bucket, "o")
    got = s3.get_object(Bucket=bucket, Key="o", ResponseContentType="text/x", ResponseCacheControl="private")
    assert (got["ContentType"], got["CacheControl"]) == ("text/x", "private")


@check
def a_missing_object_is_no_such_key(s3: Any, bucket: str) -> None:
    assert code_of(s3.get_object, Bucket=bucket, Key="missing") == "NoSuchKey"
    assert code_of(s3.head_object, Bucket=bucket, Key="missing") == "404"


@check
def an_object_in_a_missing_bucket_is_no_such_bucket(s3: Any, bucket: str) -> None:
    assert code_of(s3.get_object, Bucket=f"{bucket}-missing", Key="k") == "NoSuchBucket"
    assert code_of(s3.put_object, Bucket=f"{bucket}-missing", Key="k", Body=b"x") == "NoSuchBucket"
    assert code_of(s3.list_objects_v2, Bucket=f"{bucket}-missing") == "NoSuchBucket"


@check
def a_range_is_a_part_of_the_object(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="r", Body=b"0123456789")
    got = s3.get_object(Bucket=bucket, Key="r", Range="bytes=2-4")
    assert got["Body"].read() == b"234"
    assert got["ContentRange"] == "bytes 2-4/10"
    assert got["ResponseMetadata"]["HTTPStatusCode"] == 206


@check
def an_open_range_goes_to_the_end(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="r", Body=b"0123456789")
    assert s3.get_object(Bucket=bucket, Key="r", Range="bytes=7-")["Body"].read() == b"789"
    assert s3.get_object(Bucket=bucket, Key="r", Range="bytes=7-99")["Body"].read() == b"789"


@check
def a_suffix_range_counts_from_the_end(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="r", Body=b"0123456789")
    got = s3.get_object(Bucket=bucket, Key="r", Range="bytes=-3")
    assert (got["Body"].read(), got["ContentRange"]) == (b"789", "bytes 7-9/10")


@check
def a_range_past_the_end_is_refused(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="r", Body=b"0123456789")
    assert code_of(s3.get_object, Bucket=bucket, Key="r", Range="bytes=10-") == "InvalidRange"


@check
def a_large_object_is_downloaded_by_ranges(s3: Any, bucket: str) -> None:
    data = os.urandom(12 * 1024 * 1024)
    s3.put_object(Bucket=bucket, Key="big", Body=data)
    sink = io.BytesIO()
    s3.download_fileobj(bucket, "big", sink)
    assert sink.getvalue() == data


@check
def a_checksum_that_was_sent_comes_back(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="c", Body=b"hello", ChecksumAlgorithm="SHA256")
    head = s3.head_object(Bucket=bucket, Key="c", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="


@check
def if_match_guards_a_read(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    assert s3.get_object(Bucket=bucket, Key="k", IfMatch=etag)["Body"].read() == b"1"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfMatch='"0"') == "PreconditionFailed"


@check
def if_none_match_spares_a_read(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfNoneMatch=etag) == "304"
    assert code_of(s3.head_object, Bucket=bucket, Key="k", IfNoneMatch=etag) == "304"


@check
def times_guard_a_read(s3: Any, bucket: str) -> None:
    put(s3, bucket, "k")
    later, earlier = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(hours=1)
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfModifiedSince=later) == "304"
    assert code_of(s3.get_object, Bucket=bucket, Key="k", IfUnmodifiedSince=earlier) == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="k", IfModifiedSince=earlier, IfUnmodifiedSince=later)["Body"].read()


@check
def if_none_match_guards_a_put(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="once", Body=b"1", IfNoneMatch="*")
    assert code_of(s3.put_object, Bucket=bucket, Key="once", Body=b"2", IfNoneMatch="*") == "PreconditionFailed"
    assert s3.get_object(Bucket=bucket, Key="once")["Body"].read() == b"1"


@check
def if_match_guards_a_put(s3: Any, bucket: str) -> None:
    etag = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["ETag"]
    s3.put_object(Bucket=bucket, Key="k", Body=b"2", IfMatch=etag)
    assert code_of(s3.put_object, Bucket=bucket, Key="k", Body=b"3", IfMatch=etag) == "PreconditionFailed"


@check
def a_copy_has_the_bytes_and_the_metadata(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="dir/a b", Body=b"copied", Metadata={"x": "1"}, ContentType="text/plain")
    result = s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": "dir/a b"})
    got = s3.get_object(Bucket=bucket, Key="copy")
    assert (got["Body"].read(), got["Metadata"], got["ContentType"]) == (b"copied", {"x": "1"}, "text/plain")
    assert result["CopyObjectResult"]["ETag"] == got["ETag"]


@check
def a_copy_can_replace_the_metadata(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"1", Metadata={"x": "1"})
    source = {"Bucket": bucket, "Key": "k"}
    s3.copy_object(Bucket=bucket, Key="k", CopySource=source, Metadata={"y": "2"}, MetadataDirective="REPLACE")
    assert s3.head_object(Bucket=bucket, Key="k")["Metadata"] == {"y": "2"}
    assert code_of(s3.copy_object, Bucket=bucket, Key="k", CopySource=source) == "InvalidRequest"


@check
def a_copy_of_a_missing_object_is_no_such_key(s3: Any, bucket: str) -> None:
    assert code_of(s3.copy_object, Bucket=bucket, Key="c", CopySource=f"{bucket}/missing") == "NoSuchKey"


@check
def a_delete_is_silent_about_missing_keys(s3: Any, bucket: str) -> None:
    put(s3, bucket, "k")
    for _ in range(2):
        assert s3.delete_object(Bucket=bucket, Key="k")["ResponseMetadata"]["HTTPStatusCode"] == 204
    assert code_of(s3.get_object, Bucket=bucket, Key="k") == "NoSuchKey"


@check
def many_objects_are_deleted_at_once(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a", "b", "c d&<>")
    wanted = [{"Key": key} for key in ("a", "c d&<>", "missing")]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": wanted})["Deleted"]
    assert sorted(entry["Key"] for entry in deleted) == ["a", "c d&<>", "missing"]
    assert keys_of([s3.list_objects_v2(Bucket=bucket)]) == ["b"]
    assert "Deleted" not in s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "b"}], "Quiet": True})


@check
def a_listing_is_in_byte_order(s3: Any, bucket: str) -> None:
    keys = ["b", "a", "B", "a/b", "a-b", "ä", "~"]
    put(s3, bucket, *keys)
    assert keys_of([s3.list_objects_v2(Bucket=bucket)]) == sorted(keys, key=str.encode)


@check
def a_delimiter_makes_common_prefixes(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a/1", "a/2", "b/c/3", "d")
    top = s3.list_objects_v2(Bucket=bucket, Delimiter="/")
    assert [entry["Prefix"] for entry in top["CommonPrefixes"]] == ["a/", "b/"]
    assert keys_of([top]) == ["d"]
    assert top["KeyCount"] == 3
    assert keys_of([s3.list_objects_v2(Bucket=bucket, Delimiter="/", Prefix="a/")]) == ["a/1", "a/2"]


@check
def listings_of_version_2_are_paged(s3: Any, bucket: str) -> None:
    keys = [f"k{index:02}" for index in range(7)]
    put(s3, bucket, *keys)
    pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, PaginationConfig={"PageSize": 3}))
    assert [page["KeyCount"] for page in pages] == [3, 3, 1]
    assert keys_of(pages) == keys
    assert keys_of([s3.list_objects_v2(Bucket=bucket, StartAfter="k03")]) == keys[4:]


@check
def listings_of_version_1_are_paged(s3: Any, bucket: str) -> None:
    keys = [f"k{index:02}" for index in range(7)]
    put(s3, bucket, *keys)
    pages = list(s3.get_paginator("list_objects").paginate(Bucket=bucket, PaginationConfig={"PageSize": 3}))
    assert len(pages) == 3
    assert keys_of(pages) == keys


@check
def listings_with_folders_are_paged(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a/1", "a/2", "b", "c/1", "c/2", "d")
    for operation in ("list_objects", "list_objects_v2"):
        paginator = s3.get_paginator(operation)
        pages = list(paginator.paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 1}))
        prefixes = [entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", [])]
        assert (keys_of(pages), prefixes) == (["b", "d"], ["a/", "c/"])


@check
def awkward_keys_survive_put_list_and_get(s3: Any, bucket: str) -> None:
    keys = ["a b+c", "a%2Fb", "a//b", "/lead", "ü/漢字", "%25", "#", "😀", "q?x=1&y", "..", "a/../b", "<&>'\""]
    put(s3, bucket, *keys)
    assert sorted(keys_of([s3.list_objects_v2(Bucket=bucket)])) == sorted(keys)
    for key in keys:
        assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == key.encode()


@check
def a_key_and_a_key_below_it_both_exist(s3: Any, bucket: str) -> None:
    put(s3, bucket, "a", "a/b", "a/")
    assert keys_of([s3.list_objects_v2(Bucket=bucket)]) == ["a", "a/", "a/b"]
    assert s3.get_object(Bucket=bucket, Key="a")["Body"].read() == b"a"


@check
def folder_markers_are_objects(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="dir/", Body=b"")
    assert s3.head_object(Bucket=bucket, Key="dir/")["ContentLength"] == 0
    assert keys_of([s3.list_objects_v2(Bucket=bucket, Prefix="dir/", Delimiter="/")]) == ["dir/"]


@check
def an_overlong_key_is_refused(s3: Any, bucket: str) -> None:
    put(s3, bucket, "k" * 1024)
    assert code_of(s3.put_object, Bucket=bucket, Key="k" * 1025, Body=b"") == "KeyTooLongError"


@check
def parts_become_an_object(s3: Any, bucket: str) -> None:
    upload = s3.create_multipart_upload(Bucket=bucket, Key="mp", Metadata={"m": "1"}, ContentType="text/x")["UploadId"]
    bodies = {1: b"1" * PART, 2: b"2" * 10}
    parts = [
        {
            "PartNumber": number,
            "ETag": s3.upload_part(Bucket=bucket, Key="mp", UploadId=upload, PartNumber=number, Body=body)["ETag"],
        }
        for number, body in bodies.items()
    ]
    assert code_of(s3.head_object, Bucket=bucket, Key="mp") == "404"
    done = s3.complete_multipart_upload(Bucket=bucket, Key="mp", UploadId=upload, MultipartUpload={"Parts": parts})
    got = s3.get_object(Bucket=bucket, Key="mp")
    assert got["Body"].read() == b"1" * PART + b"2" * 10
    assert done["ETag"] == got["ETag"]
    assert done["ETag"].endswith('-2"')
    assert (got["Metadata"], got["ContentType"]) == ({"m": "1"}, "text/x")


@check
def a_transfer_of_many_parts_round_trips(s3: Any, bucket: str) -> None:
    data = os.urandom(PART * 2 + 17)
    config = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART)
    s3.upload_fileobj(io.BytesIO(data), bucket, "t", Config=config)
    sink = io.BytesIO()
    s3.download_fileobj(bucket, "t", sink, Config=config)
    assert sink.getvalue() == data


@check
def wrong_parts_are_refused(s3: Any, bucket: str) -> None:
    upload = {
        "Bucket": bucket,
        "Key": "mp",
        "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="mp")["UploadId"],
    }
    one, two = (
        {"PartNumber": number, "ETag": s3.upload_part(PartNumber=number, Body=b"small", **upload)["ETag"]}
        for number in (1, 2)
    )
    complete = s3.complete_multipart_upload
    assert code_of(complete, MultipartUpload={"Parts": [two, one]}, **upload) == "InvalidPartOrder"
    assert code_of(complete, MultipartUpload={"Parts": [{**one, "PartNumber": 9}]}, **upload) == "InvalidPart"
    assert code_of(complete, MultipartUpload={"Parts": [{**one, "ETag": '"0"'}]}, **upload) == "InvalidPart"
    assert code_of(complete, MultipartUpload={"Parts": [one, two]}, **upload) == "EntityTooSmall"


@check
def an_aborted_upload_is_gone(s3: Any, bucket: str) -> None:
    upload = {
        "Bucket": bucket,
        "Key": "mp",
        "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="mp")["UploadId"],
    }
    s3.upload_part(PartNumber=1, Body=b"x", **upload)
    s3.abort_multipart_upload(**upload)
    assert code_of(s3.upload_part, PartNumber=2, Body=b"x", **upload) == "NoSuchUpload"
    assert code_of(s3.list_parts, **upload) == "NoSuchUpload"


@check
def parts_and_uploads_are_listed(s3: Any, bucket: str) -> None:
    upload = {
        "Bucket": bucket,
        "Key": "mp",
        "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="mp")["UploadId"],
    }
    for number in (3, 1, 2):
        s3.upload_part(PartNumber=number, Body=b"x" * number, **upload)
    assert [(part["PartNumber"], part["Size"]) for part in s3.list_parts(**upload)["Parts"]] == [(1, 1), (2, 2), (3, 3)]
    first = s3.list_parts(MaxParts=2, **upload)
    assert (first["IsTruncated"], first["NextPartNumberMarker"]) == (True, 2)
    uploads = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    assert [(entry["Key"], entry["UploadId"]) for entry in uploads] == [("mp", upload["UploadId"])]


@check
def a_part_can_be_copied_from_an_object(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="source", Body=b"0123456789")
    upload = {
        "Bucket": bucket,
        "Key": "mp",
        "UploadId": s3.create_multipart_upload(Bucket=bucket, Key="mp")["UploadId"],
    }
    copied = s3.upload_part_copy(
        PartNumber=1, CopySource={"Bucket": bucket, "Key": "source"}, CopySourceRange="bytes=2-5", **upload
    )
    part = {"PartNumber": 1, "ETag": copied["CopyPartResult"]["ETag"]}
    s3.complete_multipart_upload(MultipartUpload={"Parts": [part]}, **upload)
    assert s3.get_object(Bucket=bucket, Key="mp")["Body"].read() == b"2345"


@check
def tags_are_put_got_and_deleted(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="k", Body=b"", Tagging="a=1&b=x%20y")
    assert s3.get_object(Bucket=bucket, Key="k")["TagCount"] == 2
    tags = s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"]
    assert {tag["Key"]: tag["Value"] for tag in tags} == {"a": "1", "b": "x y"}
    s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "c", "Value": "3"}]})
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == [{"Key": "c", "Value": "3"}]
    s3.delete_object_tagging(Bucket=bucket, Key="k")
    assert s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"] == []


@check
def presigned_urls_of_both_forms_work(s3: Any, bucket: str) -> None:
    put(s3, bucket, "p q")
    credentials = s3._request_signer._credentials
    for version in (None, "s3v4"):
        client = boto3.client(
            "s3",
            endpoint_url=s3.meta.endpoint_url,
            region_name="us-west-2",
            aws_access_key_id=credentials.access_key,
            aws_secret_access_key=credentials.secret_key,
            config=Config(signature_version=version),
        )
        url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "p q"})
        with urllib.request.urlopen(url) as reply:
            assert reply.read() == b"p q"


@pytest.mark.parametrize("name", CHECKS)
def test_our_service(name: str, s3: Any, bucket: str) -> None:
    CHECKS[name](s3, bucket)


def test_the_oracle_agrees_with_the_checks(moto: Any) -> None:
    client = moto.client()
    failed: dict[str, str] = {}
    for index, (name, run) in enumerate(CHECKS.items()):
        bucket = f"check-{index}"
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
        try:
            run(client, bucket)
        except (AssertionError, pytest.fail.Exception, ClientError, urllib.error.URLError) as error:
            failed[name] = f"{type(error).__name__}: {str(error)[:200]}"
    print(f"moto passes {len(CHECKS) - len(failed)} of {len(CHECKS)}; fails {failed}")
    assert failed.keys() <= MOTO_FAILS, failed
