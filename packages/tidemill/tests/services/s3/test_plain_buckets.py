"""Settings, versions and attributes of a plain bucket by boto3, as a new bucket on AWS answers."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

OWNER = {"DisplayName": "tidemill", "ID": "000000000000"}


def members(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "ResponseMetadata"}


ANSWERS: dict[str, dict[str, Any]] = {
    "get_bucket_versioning": {},
    "get_bucket_logging": {},
    "get_bucket_notification_configuration": {},
    "get_bucket_accelerate_configuration": {},
    "get_bucket_request_payment": {"Payer": "BucketOwner"},
    "get_bucket_ownership_controls": {"OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}},
    "get_bucket_acl": {
        "Owner": OWNER,
        "Grants": [{"Grantee": {"ID": "000000000000", "Type": "CanonicalUser"}, "Permission": "FULL_CONTROL"}],
    },
    "get_bucket_encryption": {
        "ServerSideEncryptionConfiguration": {
            "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}, "BucketKeyEnabled": False}]
        }
    },
    "get_public_access_block": {
        "PublicAccessBlockConfiguration": {
            "BlockPublicAcls": True,
            "IgnorePublicAcls": True,
            "BlockPublicPolicy": True,
            "RestrictPublicBuckets": True,
        }
    },
}
ABSENT = {
    "get_bucket_tagging": "NoSuchTagSet",
    "get_bucket_policy": "NoSuchBucketPolicy",
    "get_bucket_policy_status": "NoSuchBucketPolicy",
    "get_bucket_cors": "NoSuchCORSConfiguration",
    "get_bucket_lifecycle_configuration": "NoSuchLifecycleConfiguration",
    "get_bucket_replication": "ReplicationConfigurationNotFoundError",
    "get_bucket_website": "NoSuchWebsiteConfiguration",
    "get_object_lock_configuration": "ObjectLockConfigurationNotFoundError",
}


def error_of(call: Any, **arguments: Any) -> tuple[int, str]:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    response = refused.value.response
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"]


@pytest.mark.parametrize("name", [*ANSWERS, *ABSENT])
def test_a_setting_of_a_bucket_is_that_of_a_new_bucket(s3: Any, bucket: str, name: str) -> None:
    call = getattr(s3, name)
    if name in ANSWERS:
        assert members(call(Bucket=bucket)) == ANSWERS[name]
    else:
        assert error_of(call, Bucket=bucket) == (404, ABSENT[name])
    assert error_of(call, Bucket="no-such-bucket-here") == (404, "NoSuchBucket")


def test_an_object_has_the_access_control_list_of_its_owner(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="a/b", Body=b"x")
    assert members(s3.get_object_acl(Bucket=bucket, Key="a/b")) == ANSWERS["get_bucket_acl"]
    assert error_of(s3.get_object_acl, Bucket=bucket, Key="absent") == (404, "NoSuchKey")


def test_the_versions_of_objects_are_listed_by_pages(s3: Any, bucket: str) -> None:
    keys = ["a b", "c/d", "c/e", "f", "ü"]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode(), StorageClass="STANDARD_IA")
    pages = list(s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2}))
    assert [len(page["Versions"]) for page in pages] == [2, 2, 1]
    versions = [entry for page in pages for entry in page["Versions"]]
    assert [entry["Key"] for entry in versions] == keys
    assert {(entry["VersionId"], entry["IsLatest"], entry["StorageClass"]) for entry in versions} == {
        ("null", True, "STANDARD_IA")
    }
    assert versions[0]["Owner"] == OWNER
    folders = s3.list_object_versions(Bucket=bucket, Delimiter="/", KeyMarker="a b", VersionIdMarker="null")
    assert [entry["Key"] for entry in folders["Versions"]] == ["f", "ü"]
    assert folders["CommonPrefixes"] == [{"Prefix": "c/"}]
    assert error_of(s3.list_object_versions, Bucket=bucket, VersionIdMarker="null") == (400, "InvalidArgument")


def test_attributes_of_an_object_are_those_that_were_requested(s3: Any, bucket: str) -> None:
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"abc", ChecksumAlgorithm="SHA256")
    whole = {"Bucket": bucket, "Key": "k"}
    found = s3.get_object_attributes(ObjectAttributes=["ETag", "Checksum", "ObjectSize", "StorageClass"], **whole)
    assert found["Checksum"] == {"ChecksumSHA256": put["ChecksumSHA256"], "ChecksumType": "FULL_OBJECT"}
    assert (found["ETag"], found["ObjectSize"], found["StorageClass"]) == (put["ETag"].strip('"'), 3, "STANDARD")
    assert found["LastModified"] == s3.head_object(**whole)["LastModified"]
    size = members(s3.get_object_attributes(ObjectAttributes=["ObjectSize", "ObjectParts"], **whole))
    assert size.keys() == {"ObjectSize", "LastModified"}
    assert error_of(s3.get_object_attributes, Bucket=bucket, Key="no", ObjectAttributes=["ETag"]) == (404, "NoSuchKey")


def test_attributes_of_a_multipart_object_name_its_parts(s3: Any, bucket: str) -> None:
    at = {"Bucket": bucket, "Key": "k"}
    at["UploadId"] = s3.create_multipart_upload(**at)["UploadId"]
    bodies = [b"x" * 5 * 1024 * 1024, b"y"]
    etags = [s3.upload_part(PartNumber=number, Body=body, **at)["ETag"] for number, body in enumerate(bodies, 1)]
    parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **at)
    asked = {"Bucket": bucket, "Key": "k", "ObjectAttributes": ["ObjectParts"]}
    found = s3.get_object_attributes(MaxParts=1, **asked)["ObjectParts"]
    assert (found["TotalPartsCount"], found["IsTruncated"], found["NextPartNumberMarker"]) == (2, True, 1)
    assert found["Parts"] == [{"PartNumber": 1, "Size": len(bodies[0])}]
    rest = s3.get_object_attributes(PartNumberMarker=1, **asked)["ObjectParts"]
    assert (rest["IsTruncated"], rest["Parts"]) == (False, [{"PartNumber": 2, "Size": 1}])
