"""GetRole: any well-formed name is a role that SageMaker may assume. Access keys of further users."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from tidemill.wire.signing.credentials import Credential

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
    assert refusal(iam.create_role, RoleName="r", AssumeRolePolicyDocument="{}")[:2] == (
        400,
        "UnknownOperationException",
    )


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


def test_a_key_of_another_user_and_a_missing_name_are_refused(iam, refusal):
    key = iam.create_access_key(UserName="ann")["AccessKey"]["AccessKeyId"]
    assert refusal(iam.delete_access_key, UserName="bob", AccessKeyId=key)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.delete_access_key, UserName="ann", AccessKeyId="A" * 20)[:2] == (404, "NoSuchEntity")
    assert "UserName is missing" in refusal(iam.create_access_key)[2]
