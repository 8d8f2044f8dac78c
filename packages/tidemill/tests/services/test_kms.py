"""KMS by boto3: keys that were created, and keys that other requests named."""

import json
from typing import Any

ARN = "arn:aws:kms:us-west-2:000000000000:"
JOB: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://data/out", "KmsKeyId": "alias/team"},
    "ResourceConfig": {
        "InstanceType": "local",
        "InstanceCount": 1,
        "VolumeSizeInGB": 30,
        "VolumeKmsKeyId": "arn:aws:kms:eu-west-1:111122223333:key/their-key",
    },
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}


def test_a_created_key_is_found_by_id_arn_and_alias(kms: Any, refusal: Any) -> None:
    assert refusal(kms.describe_key, KeyId="alias/mine")[:2] == (400, "NotFoundException")
    made = kms.create_key(Description="of the tests", Policy=json.dumps({"Statement": []}))["KeyMetadata"]
    kms.create_alias(AliasName="alias/mine", TargetKeyId=made["KeyId"])
    for name in (made["KeyId"], made["Arn"], "alias/mine", f"{ARN}alias/mine"):
        found = kms.describe_key(KeyId=name)["KeyMetadata"]
        assert (found["Arn"], found["Description"]) == (made["Arn"], "of the tests")
        assert (found["Enabled"], found["KeyState"], found["KeyManager"]) == (True, "Enabled", "CUSTOMER")
    assert made["Arn"] == f"{ARN}key/{made['KeyId']}"


def test_aliases_are_unique_well_formed_and_of_a_key(kms: Any, refusal: Any) -> None:
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    kms.create_alias(AliasName="alias/once", TargetKeyId=key)
    taken = refusal(kms.create_alias, AliasName="alias/once", TargetKeyId=key)
    assert taken[1] == "AlreadyExistsException"
    for name in ("mine", "alias/", "alias/aws/mine"):
        assert refusal(kms.create_alias, AliasName=name, TargetKeyId=key)[1] == "InvalidAliasNameException"
    assert refusal(kms.create_alias, AliasName="alias/two", TargetKeyId="absent")[1] == "NotFoundException"
    assert refusal(kms.create_key, KeySpec="RSA_2048")[1] == "ValidationException"


def test_keys_and_aliases_are_listed_by_pages(kms: Any) -> None:
    keys = [kms.create_key()["KeyMetadata"]["KeyId"] for _ in range(5)]
    for number, key in enumerate(keys):
        kms.create_alias(AliasName=f"alias/number-{number}", TargetKeyId=key)
    pages = list(kms.get_paginator("list_keys").paginate(PaginationConfig={"PageSize": 2}))
    assert [len(page["Keys"]) for page in pages] == [2, 2, 1]
    assert {each["KeyId"] for page in pages for each in page["Keys"]} == set(keys)
    aliases = kms.get_paginator("list_aliases").paginate(PaginationConfig={"PageSize": 2}).build_full_result()
    assert {each["AliasName"]: each["TargetKeyId"] for each in aliases["Aliases"]} == {
        f"alias/number-{number}": key for number, key in enumerate(keys)
    }
    (of_one,) = kms.list_aliases(KeyId=keys[3])["Aliases"]
    assert of_one["AliasName"] == "alias/number-3"


def test_keys_that_a_job_names_are_shown_and_described(sagemaker: Any, kms: Any) -> None:
    sagemaker.create_training_job(TrainingJobName="sealed", **JOB)
    job = sagemaker.describe_training_job(TrainingJobName="sealed")
    assert job["OutputDataConfig"] == JOB["OutputDataConfig"]
    assert job["ResourceConfig"] == JOB["ResourceConfig"]
    theirs = kms.describe_key(KeyId="arn:aws:kms:eu-west-1:111122223333:key/their-key")["KeyMetadata"]
    assert theirs["KeyId"] == "their-key"
    (alias,) = kms.list_aliases()["Aliases"]
    assert alias["AliasName"] == "alias/team"
    assert kms.describe_key(KeyId="alias/team")["KeyMetadata"]["KeyId"] == alias["TargetKeyId"]
    assert {key["KeyId"] for key in kms.list_keys()["Keys"]} == {"their-key", alias["TargetKeyId"]}


def test_the_keys_of_aws_exist(kms: Any) -> None:
    first, again = (kms.describe_key(KeyId="alias/aws/s3")["KeyMetadata"] for _ in range(2))
    assert first["KeyManager"] == "AWS"
    assert first["Arn"] == again["Arn"]


def test_a_setting_refuses_requests_to_encrypt_a_job(sagemaker: Any, stage: Any, door: Any, refusal: Any) -> None:
    door.gateway = stage.gateway(refuses_encryption=True)
    status, code, message = refusal(sagemaker.create_training_job, TrainingJobName="sealed", **JOB)
    assert (status, code) == (400, "ValidationException")
    assert "Value 'alias/team' at 'outputDataConfig.kmsKeyId' is not allowed: tidemill encrypts nothing" in message
    plain = {**JOB, "OutputDataConfig": {"S3OutputPath": "s3://data/out"}, "ResourceConfig": {**JOB["ResourceConfig"]}}
    del plain["ResourceConfig"]["VolumeKmsKeyId"]
    sagemaker.create_training_job(TrainingJobName="plain", **plain)


def test_the_policy_of_a_key_is_recorded(kms: Any, refusal: Any) -> None:
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    first = kms.get_key_policy(KeyId=key, PolicyName="default")
    assert first["PolicyName"] == "default"
    assert json.loads(first["Policy"])["Statement"][0]["Principal"] == {"AWS": "arn:aws:iam::000000000000:root"}
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy='{"Statement": []}')
    assert kms.get_key_policy(KeyId=key)["Policy"] == '{"Statement": []}'
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["Enabled"] is True
    malformed = refusal(kms.put_key_policy, KeyId=key, Policy="no JSON")
    assert malformed[:2] == (400, "MalformedPolicyDocumentException")
    assert refusal(kms.get_key_policy, KeyId="absent")[1] == "NotFoundException"


def test_with_that_setting_s3_claims_no_encryption(clients: Any, stage: Any, door: Any, refusal: Any) -> None:
    s3, place = clients("s3"), {"Bucket": "data", "Key": "plain"}
    door.gateway = stage.gateway(refuses_encryption=True)
    for asked in ({"ServerSideEncryption": "AES256"}, {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"}):
        status, code, message = refusal(s3.put_object, Body=b"x", **place, **asked)
        assert (status, code) == (400, "InvalidRequest")
        assert "tidemill encrypts nothing" in message
    try:
        # AWS's SDK v2 sends this with every source archive.
        replies = s3.put_object(Body=b"x", ServerSideEncryption="aws:kms", **place), s3.head_object(**place)
    finally:
        s3.delete_object(**place)
    assert not [reply for reply in replies if "ServerSideEncryption" in reply or "SSEKMSKeyId" in reply]
    absent = refusal(s3.get_bucket_encryption, Bucket="data")
    assert absent[:2] == (404, "ServerSideEncryptionConfigurationNotFoundError")


def test_that_setting_refuses_a_default_encryption_of_a_bucket(
    clients: Any, stage: Any, door: Any, refusal: Any
) -> None:
    s3, rule = clients("s3"), {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    door.gateway = stage.gateway(refuses_encryption=True)
    wanted = {"Bucket": "data", "ServerSideEncryptionConfiguration": {"Rules": [rule]}}
    status, code, message = refusal(s3.put_bucket_encryption, **wanted)
    assert (status, code) == (400, "InvalidRequest")
    assert "tidemill encrypts nothing" in message
    # What was set under another setting is not claimed either.
    door.gateway = stage.gateway()
    s3.put_bucket_encryption(**wanted)
    door.gateway = stage.gateway(refuses_encryption=True)
    try:
        assert "ServerSideEncryption" not in s3.put_object(Bucket="data", Key="plain", Body=b"x")
    finally:
        s3.delete_object(Bucket="data", Key="plain")
    assert refusal(s3.get_bucket_encryption, Bucket="data")[:2] == (
        404,
        "ServerSideEncryptionConfigurationNotFoundError",
    )


def test_a_key_whose_deletion_is_scheduled_stores_nothing_until_it_is_enabled_again(
    clients: Any, stage: Any, kms: Any, refusal: Any
) -> None:
    key = kms.create_key()["KeyMetadata"]["KeyId"]
    s3, put = clients("s3"), {"Bucket": "data", "Key": "sealed", "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key}
    assert refusal(kms.schedule_key_deletion, KeyId=key, PendingWindowInDays=6)[1] == "ValidationException"
    scheduled = kms.schedule_key_deletion(KeyId=key, PendingWindowInDays=7)
    assert (scheduled["KeyState"], scheduled["PendingWindowInDays"]) == ("PendingDeletion", 7)
    found = kms.describe_key(KeyId=key)["KeyMetadata"]
    assert (found["KeyState"], found["Enabled"]) == ("PendingDeletion", False)
    assert found["DeletionDate"] == scheduled["DeletionDate"]
    assert (found["DeletionDate"] - found["CreationDate"]).days == 7
    assert refusal(kms.schedule_key_deletion, KeyId=key)[1] == "KMSInvalidStateException"
    assert refusal(kms.enable_key, KeyId=key)[1] == "KMSInvalidStateException"
    assert refusal(s3.put_object, Body=b"x", **put)[:2] == (400, "KMS.KMSInvalidStateException")
    assert kms.cancel_key_deletion(KeyId=key)["KeyId"] == found["Arn"]
    found = kms.describe_key(KeyId=key)["KeyMetadata"]
    assert (found["KeyState"], "DeletionDate" in found) == ("Disabled", False)
    assert refusal(s3.put_object, Body=b"x", **put)[:2] == (400, "KMS.DisabledException")
    assert refusal(kms.cancel_key_deletion, KeyId=key)[1] == "KMSInvalidStateException"
    kms.enable_key(KeyId=key)
    s3.put_object(Body=b"x", **put)
    s3.delete_object(Bucket="data", Key="sealed")
    kms.disable_key(KeyId=key)
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "Disabled"
    of_aws = kms.describe_key(KeyId="alias/aws/s3")["KeyMetadata"]["Arn"]
    assert refusal(kms.schedule_key_deletion, KeyId=of_aws)[1] == "KMSInvalidStateException"
    # A policy about a key would not hold for its aliases.
    kms.create_alias(AliasName="alias/sealed", TargetKeyId=key)
    for name in ("alias/sealed", f"{ARN}alias/sealed"):
        for change in (kms.schedule_key_deletion, kms.enable_key, kms.disable_key):
            assert refusal(change, KeyId=name)[1] == "NotFoundException"
        assert refusal(kms.put_key_policy, KeyId=name, Policy="{}")[1] == "NotFoundException"
    assert kms.describe_key(KeyId=key)["KeyMetadata"]["KeyState"] == "Disabled"
    assert refusal(kms.schedule_key_deletion, KeyId="absent")[1] == "NotFoundException"
