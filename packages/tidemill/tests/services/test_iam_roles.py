"""Roles that the owner creates: what setup scripts do, and policies that limit whoever acts as the role."""

import json
import time

import pytest

from tidemill.wire.signing.credentials import Credential

TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:*"}]}
FULL = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
READ = json.dumps({"Statement": {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}})
MODELS = json.dumps({"Statement": {"Effect": "Allow", "Action": "sagemaker:ListModels", "Resource": "*"}})


@pytest.fixture(autouse=True)
def _keys_are_made_now(stage):
    stage.clock.ms = time.time_ns() // 1_000_000


def create(iam, name="Team"):
    return iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST), Description="of the team")["Role"]


def session(sts, clients, service, role):
    keys = sts.assume_role(RoleArn=f"arn:aws:iam::000000000000:role/{role}", RoleSessionName="s1")["Credentials"]
    key = Credential(keys["AccessKeyId"], keys["SecretAccessKey"], session_token=keys["SessionToken"])
    return clients(service, key)


def test_a_role_is_created_with_policies_shown_and_deleted(iam, refusal):
    role = create(iam)
    assert (role["RoleName"], role["Arn"]) == ("Team", "arn:aws:iam::000000000000:role/Team")
    assert iam.get_role(RoleName="Team")["Role"] == role
    assert role["AssumeRolePolicyDocument"] == TRUST
    assert role["Description"] == "of the team"
    assert refusal(iam.create_role, RoleName="team", AssumeRolePolicyDocument="{}")[:2] == (409, "EntityAlreadyExists")
    for _ in range(2):
        iam.attach_role_policy(RoleName="Team", PolicyArn=FULL)
    iam.put_role_policy(RoleName="Team", PolicyName="read", PolicyDocument=READ)
    attached = iam.list_attached_role_policies(RoleName="Team")["AttachedPolicies"]
    assert attached == [{"PolicyName": "AmazonSageMakerFullAccess", "PolicyArn": FULL}]
    assert iam.list_role_policies(RoleName="Team")["PolicyNames"] == ["read"]
    assert iam.get_role_policy(RoleName="Team", PolicyName="read")["PolicyDocument"] == json.loads(READ)
    create(iam, "Another")
    assert [each["RoleName"] for each in iam.list_roles()["Roles"]] == ["Another", "Team"]
    first = iam.list_roles(MaxItems=1)
    assert [each["RoleName"] for each in iam.list_roles(Marker=first["Marker"])["Roles"]] == ["Team"]
    status, code, message = refusal(iam.delete_role, RoleName="Team")
    assert (status, code) == (409, "DeleteConflict")
    assert "read" in message
    iam.detach_role_policy(RoleName="Team", PolicyArn=FULL)
    iam.delete_role_policy(RoleName="Team", PolicyName="read")
    iam.delete_role(RoleName="Team")
    assert [each["RoleName"] for each in iam.list_roles()["Roles"]] == ["Another"]
    assert iam.get_role(RoleName="Team")["Role"]["RoleName"] == "Team"  # any name is a role


def test_inline_policies_limit_who_acts_as_the_role_and_the_settings_win(iam, sts, clients, refusal):
    for name in ("Team", "Reader"):  # the settings name Reader
        create(iam, name)
    s3 = session(sts, clients, "s3", "Team")
    assert "data" in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    iam.attach_role_policy(RoleName="Team", PolicyArn=FULL)
    s3.list_buckets()
    for name in ("Team", "Reader"):
        iam.put_role_policy(RoleName=name, PolicyName="models", PolicyDocument=MODELS)
    assert refusal(s3.list_buckets)[:2] == (403, "AccessDenied")
    assert session(sts, clients, "sagemaker", "team").list_models()["Models"] == []
    assert refusal(session(sts, clients, "sagemaker", "Reader").list_models)[1] == "AccessDeniedException"
    iam.put_role_policy(RoleName="Team", PolicyName="read", PolicyDocument=READ)
    s3.list_buckets()
    for name in ("models", "read"):
        iam.delete_role_policy(RoleName="Team", PolicyName=name)
    s3.list_buckets()


def test_only_the_owner_changes_roles(iam, clients, refusal):
    create(iam)
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = clients("iam", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    assert ann.get_role(RoleName="Team")["Role"]["Description"] == "of the team"
    assert [each["RoleName"] for each in ann.list_roles()["Roles"]] == ["Team"]
    for call, members in [
        (ann.create_role, {"AssumeRolePolicyDocument": "{}"}),
        (ann.delete_role, {}),
        (ann.attach_role_policy, {"PolicyArn": FULL}),
        (ann.detach_role_policy, {"PolicyArn": FULL}),
        (ann.put_role_policy, {"PolicyName": "read", "PolicyDocument": READ}),
        (ann.delete_role_policy, {"PolicyName": "read"}),
    ]:
        status, code, message = refusal(call, RoleName="Team", **members)
        assert (status, code) == (403, "AccessDenied"), call
        assert "only the owner of the service" in message


def test_what_does_not_exist_or_has_no_effect_is_refused(iam, refusal):
    create(iam)
    gone = {"PolicyName": "read"}
    assert refusal(iam.put_role_policy, RoleName="none", **gone, PolicyDocument=READ)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.get_role_policy, RoleName="Team", **gone)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.delete_role_policy, RoleName="Team", **gone)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.detach_role_policy, RoleName="Team", PolicyArn=FULL)[:2] == (404, "NoSuchEntity")
    assert refusal(iam.list_role_policies, RoleName="none")[:2] == (404, "NoSuchEntity")
    own = "arn:aws:iam::000000000000:policy/own"
    assert refusal(iam.attach_role_policy, RoleName="Team", PolicyArn=own)[:2] == (404, "NoSuchEntity")
    for text in (
        "{",
        READ.replace("{", '{"Statement": [], ', 1),
        "[" * 3000,
        json.dumps({"Statement": {"Effect": "Deny", "Action": "ecr:*", "Resource": "*"}}),
    ):
        refused = refusal(iam.put_role_policy, RoleName="Team", **gone, PolicyDocument=text)
        assert refused[:2] == (400, "MalformedPolicyDocument")
    refused = refusal(iam.create_role, RoleName="Other", AssumeRolePolicyDocument="[]")
    assert refused[:2] == (400, "MalformedPolicyDocument")
