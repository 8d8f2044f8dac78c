"""GetRole: any well-formed name is a role that SageMaker may assume. Access keys of further users."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tidemill.core.clock import SystemClock
from tidemill.wire.signing.credentials import Credential

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
CONTAINER = {"Image": "x/tensorflow-inference:2.19.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
# The pattern in IAM's model of botocore.
ROLE_ID = re.compile(r"\w{16,128}")


@pytest.mark.parametrize("name", ["SageMakerRole", "r", "a-role_with+all=of,the.characters@once", "x" * 64])
def test_any_name_is_a_role_that_sagemaker_may_assume(iam, name):
    role = iam.get_role(RoleName=name)["Role"]
    assert role["RoleName"] == name
    assert role["Arn"] == f"arn:aws:iam::000000000000:role/{name}"
    assert role["Path"] == "/"
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Action"] == "sts:AssumeRole"
    assert ROLE_ID.fullmatch(role["RoleId"]), role["RoleId"]


def test_a_role_looks_the_same_each_time(iam):
    assert iam.get_role(RoleName="digits")["Role"] == iam.get_role(RoleName="digits")["Role"]


@pytest.mark.parametrize("name", ["a/b", "x" * 65, "two words", "semi;colon"])
def test_a_name_that_no_role_can_have_is_refused(iam, refusal, name):
    status, code, message = refusal(iam.get_role, RoleName=name)
    assert (status, code) == (400, "ValidationError")
    assert "roleName" in message


def test_keys_without_the_right_to_read_roles_are_refused(restricted, refusal):
    status, code, message = refusal(restricted("iam").get_role, RoleName="digits")
    assert (status, code) == (403, "AccessDenied")
    assert "iam:GetRole" in message


def test_other_operations_are_unknown(iam, refusal):
    assert refusal(iam.create_group, GroupName="g")[:2] == (400, "UnknownOperationException")


def test_a_user_signs_with_a_key_until_the_owner_deletes_it(iam, clients, refusal):
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    assert (key["UserName"], key["Status"]) == ("ann", "Active")
    ann = Credential(key["AccessKeyId"], key["SecretAccessKey"])
    assert clients("sts", ann).get_caller_identity()["Arn"] == "arn:aws:iam::000000000000:user/ann"
    assert clients("sagemaker", ann).list_models()["Models"] == []
    iam.delete_access_key(UserName="ann", AccessKeyId=key["AccessKeyId"])
    assert refusal(clients("sagemaker", ann).list_models)[1] == "UnrecognizedClientException"
    assert iam.list_users()["Users"] == []


def test_a_user_has_at_most_two_keys_and_the_lists_show_them(iam, refusal):
    first, second = (iam.create_access_key(UserName="ann")["AccessKey"]["AccessKeyId"] for _ in range(2))
    status, code, message = refusal(iam.create_access_key, UserName="ann")
    assert (status, code) == (409, "LimitExceeded")
    assert first in message
    assert second in message
    iam.create_access_key(UserName="bob")
    listed = iam.list_access_keys(UserName="ann")["AccessKeyMetadata"]
    assert [each["AccessKeyId"] for each in listed] == [first, second]
    assert not any("SecretAccessKey" in each for each in listed)
    pages = iam.get_paginator("list_users").paginate(PaginationConfig={"PageSize": 1})
    assert [user["UserName"] for page in pages for user in page["Users"]] == ["ann", "bob"]
    assert iam.list_access_keys(UserName="nobody")["AccessKeyMetadata"] == []


def test_parallel_calls_make_no_third_key(iam):
    def attempt(_: int) -> bool:
        try:
            iam.create_access_key(UserName="ann")
        except ClientError as error:
            assert error.response["Error"]["Code"] == "LimitExceeded"
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 2


def test_a_user_manages_no_keys(iam, clients, refusal):
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = clients("iam", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    calls = [
        (ann.create_access_key, {"UserName": "bob"}),
        (ann.list_access_keys, {"UserName": "ann"}),
        (ann.delete_access_key, {"UserName": "ann", "AccessKeyId": key["AccessKeyId"]}),
        (ann.list_users, {}),
    ]
    for call, members in calls:
        status, code, message = refusal(call, **members)
        assert (status, code) == (403, "AccessDenied")
        assert "only the owner of the service manages access keys" in message


def test_a_session_whose_arn_reads_like_that_of_a_user_is_none(iam, sts, clients, refusal, stage):
    stage.clock.ms = SystemClock().now_ms()
    iam.create_user(UserName="ann")
    role = "arn:aws:iam::000000000000:role/x:user"
    found = sts.assume_role(RoleArn=role, RoleSessionName="ann")
    assert found["AssumedRoleUser"]["Arn"].endswith(":assumed-role/x:user/ann")
    keys = found["Credentials"]
    session = clients("iam", Credential(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"]))
    assert refusal(session.get_user)[:2] == (403, "AccessDenied")
    assert refusal(session.get_user, UserName="ann")[:2] == (403, "AccessDenied")


def test_a_key_of_another_user_and_a_missing_name_are_refused(iam, refusal):
    key = iam.create_access_key(UserName="ann")["AccessKey"]["AccessKeyId"]
    assert refusal(iam.delete_access_key, UserName="bob", AccessKeyId=key)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.delete_access_key, UserName="ann", AccessKeyId="A" * 20)[:2] == (404, "NoSuchEntity")
    assert "UserName is missing" in refusal(iam.create_access_key)[2]


def allow(action: str, resource: str) -> str:
    return json.dumps({"Statement": {"Effect": "Allow", "Action": action, "Resource": resource}})


def test_a_policy_limits_all_keys_of_a_user_and_lists_show_what_it_allows(iam, clients, refusal, sagemaker):
    for name in ("ann-digits", "bob-digits"):
        sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    earlier = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = Credential(earlier["AccessKeyId"], earlier["SecretAccessKey"])
    models = clients("sagemaker", ann)
    assert len(models.list_models()["Models"]) == 2
    iam.put_user_policy(
        UserName="ann", PolicyName="own", PolicyDocument=allow("sagemaker:*", "arn:aws:sagemaker:*:*:model/ann-*")
    )
    status, code, message = refusal(models.list_models)
    assert (status, code) == (400, "AccessDeniedException")
    assert "the policy of the user 'ann' does not allow it" in message
    iam.put_user_policy(UserName="ann", PolicyName="lists", PolicyDocument=allow("sagemaker:List*", "*"))
    assert [model["ModelName"] for model in models.list_models()["Models"]] == ["ann-digits"]
    assert models.describe_model(ModelName="ann-digits")["ModelName"] == "ann-digits"
    assert refusal(models.describe_model, ModelName="bob-digits")[1] == "AccessDeniedException"
    assert refusal(clients("s3", ann).list_buckets)[:2] == (403, "AccessDenied")
    assert iam.list_user_policies(UserName="ann")["PolicyNames"] == ["lists", "own"]
    held = iam.get_user_policy(UserName="ann", PolicyName="lists")["PolicyDocument"]
    assert held == json.loads(allow("sagemaker:List*", "*"))
    # The policy stays with the user when its last key is revoked.
    iam.delete_access_key(UserName="ann", AccessKeyId=ann.access_key_id)
    later = iam.create_access_key(UserName="ann")["AccessKey"]
    again = clients("s3", Credential(later["AccessKeyId"], later["SecretAccessKey"]))
    assert refusal(again.list_buckets)[0] == 403
    for name in ("own", "lists"):
        iam.delete_user_policy(UserName="ann", PolicyName=name)
    assert again.list_buckets()["Buckets"]


def test_a_user_is_created_and_deleted_by_name(iam, clients, refusal):
    created = iam.create_user(UserName="ann")["User"]
    assert created["Arn"] == "arn:aws:iam::000000000000:user/ann"
    assert refusal(iam.create_user, UserName="ann")[:2] == (409, "EntityAlreadyExists")
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    own = clients("iam", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    assert own.get_user()["User"] == created == own.get_user(UserName="ann")["User"]
    assert refusal(own.get_user, UserName="bob")[:2] == (403, "AccessDenied")
    assert refusal(own.put_user_policy, UserName="ann", PolicyName="p", PolicyDocument=allow("s3:*", "*"))[0] == 403
    status, code, message = refusal(iam.delete_user, UserName="ann")
    assert (status, code) == (409, "DeleteConflict")
    assert key["AccessKeyId"] in message
    iam.delete_access_key(UserName="ann", AccessKeyId=key["AccessKeyId"])
    assert [user["UserName"] for user in iam.list_users()["Users"]] == ["ann"]
    iam.delete_user(UserName="ann")
    assert refusal(iam.get_user, UserName="ann")[:2] == (404, "NoSuchEntity")
    assert refusal(iam.put_user_policy, UserName="ann", PolicyName="p", PolicyDocument=allow("s3:*", "*"))[0] == 404


NOTHING = allow("s3:Nothing", "*").replace("Allow", "Deny")


@pytest.mark.parametrize(
    "text", ["{", "[" * 3000, '{"Statement": [], "Statement": []}', '"s3:*"', NOTHING, allow("s3:*", "bucket")]
)
def test_a_policy_that_would_have_no_effect_is_refused(iam, refusal, text):
    iam.create_user(UserName="ann")
    refused = refusal(iam.put_user_policy, UserName="ann", PolicyName="p", PolicyDocument=text)
    assert refused[:2] == (400, "MalformedPolicyDocument")
    assert iam.list_user_policies(UserName="ann")["PolicyNames"] == []
