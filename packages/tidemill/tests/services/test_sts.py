"""STS: who calls, and temporary keys with at most the caller's rights."""

import json
import time

import pytest

from tidemill.wire.signing.credentials import Credential

ROLE = "arn:aws:iam::000000000000:role/{}"
ALLOW_PUT = {"Effect": "Allow", "Action": ["s3:PutObject", "s3:CreateBucket"], "Resource": "*"}


@pytest.fixture(autouse=True)
def _keys_are_made_now(stage) -> None:
    stage.clock.ms = time.time_ns() // 1_000_000


def key_of(reply) -> Credential:
    keys = reply["Credentials"]
    return Credential(keys["AccessKeyId"], keys["SecretAccessKey"], session_token=keys["SessionToken"])


def test_the_user_is_an_assumed_role_of_the_account(sts):
    reply = sts.get_caller_identity()
    assert reply["Account"] == "000000000000"
    assert reply["UserId"] == "AKIATIDEMILLTESTS000"
    assert reply["Arn"] == "arn:aws:sts::000000000000:assumed-role/SageMakerRole/user"


def test_keys_without_rights_may_call_get_caller_identity(restricted):
    reply = restricted("sts").get_caller_identity()
    assert reply["UserId"] == "ASIATIDEMILLTESTS000"
    assert reply["Arn"].endswith("assumed-role/SageMakerRole/SageMaker")


def test_other_operations_are_unknown(sts, refusal):
    status, code, message = refusal(sts.get_federation_token, Name="ann")
    assert (status, code) == (400, "UnknownOperationException")
    assert "GetFederationToken" in message


def test_session_keys_do_what_their_caller_may_except_manage_users(sts, clients, refusal):
    key = key_of(sts.get_session_token())
    assert clients("sagemaker", key).list_models()["Models"] == []
    assert clients("sts", key).get_caller_identity()["Arn"] == sts.get_caller_identity()["Arn"]
    assert refusal(clients("iam", key).list_users)[:2] == (403, "AccessDenied")
    assert refusal(clients("sts", key).get_session_token)[:2] == (403, "AccessDenied")
    wrong = Credential(key.access_key_id, key.secret_access_key, session_token="x")
    assert refusal(clients("sagemaker", wrong).list_models)[0] == 400


def test_the_policy_of_an_assumed_role_limits_the_caller(sts, clients, refusal):
    reply = sts.assume_role(RoleArn=ROLE.format("Reader"), RoleSessionName="look")
    assert reply["AssumedRoleUser"]["Arn"] == "arn:aws:sts::000000000000:assumed-role/Reader/look"
    reader = key_of(reply)
    assert clients("sts", reader).get_caller_identity()["Arn"] == reply["AssumedRoleUser"]["Arn"]
    s3 = clients("s3", reader)
    assert "data" in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    status, code, message = refusal(s3.put_object, Bucket="data", Key="k", Body=b"")
    assert (status, code) == (403, "AccessDenied")
    assert "the policy of the role 'Reader' does not allow it" in message
    assert refusal(clients("sagemaker", reader).list_models)[1] == "AccessDeniedException"
    # A second session within the first has no more rights than that.
    refused = refusal(clients("sts", reader).assume_role, RoleArn=ROLE.format("Other"), RoleSessionName="more")
    assert refused[:2] == (403, "AccessDenied")


def test_a_role_without_a_policy_gives_the_rights_of_the_caller(sts, clients):
    key = key_of(sts.assume_role(RoleArn=ROLE.format("Team"), RoleSessionName="train"))
    assert clients("sagemaker", key).list_training_jobs()["TrainingJobSummaries"] == []


def test_the_policy_of_a_session_limits_it_and_a_deny_of_the_role_stays(sts, clients, refusal):
    policy = json.dumps({"Version": "2012-10-17", "Statement": [ALLOW_PUT]})
    key = key_of(sts.assume_role(RoleArn=ROLE.format("Team"), RoleSessionName="put", Policy=policy))
    s3 = clients("s3", key)
    s3.create_bucket(Bucket="put-by-session", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket="put-by-session", Key="k", Body=b"1")
    status, _, message = refusal(s3.get_object, Bucket="put-by-session", Key="k")
    assert status == 403
    assert "the policy of the session does not allow it" in message
    both = key_of(sts.assume_role(RoleArn=ROLE.format("Reader"), RoleSessionName="put", Policy=policy))
    assert refusal(clients("s3", both).put_object, Bucket="put-by-session", Key="k", Body=b"2")[0] == 403
    assert refusal(clients("s3", both).get_object, Bucket="put-by-session", Key="k")[0] == 403


@pytest.mark.parametrize(
    "policy",
    [
        *("{", "[]", "[" * 3000, '{"Statement": [], "Statement": []}'),
        json.dumps({"Statement": {**ALLOW_PUT, "Condition": {"Null": {"aws:Nothing": True}}}}),
    ],
)
def test_a_policy_that_cannot_be_honored_is_refused(sts, refusal, policy):
    refused = refusal(sts.assume_role, RoleArn=ROLE.format("Team"), RoleSessionName="put", Policy=policy)
    assert refused[:2] == (400, "MalformedPolicyDocument")


def test_a_session_ends_by_time(sts, clients, refusal, stage):
    stage.clock.ms -= 900_000
    key = key_of(sts.assume_role(RoleArn=ROLE.format("Team"), RoleSessionName="short", DurationSeconds=900))
    stage.clock.ms += 900_000
    assert refusal(clients("sagemaker", key).list_models)[1] == "ExpiredToken"
    # Its record is removed when a session is opened later than any session lasts.
    stage.clock.ms += 130_000_000
    sts.get_session_token()
    assert refusal(clients("sagemaker", key).list_models)[1] == "UnrecognizedClientException"


def test_a_session_ends_with_the_key_of_its_caller(sts, iam, clients, refusal, stage):
    user = iam.create_access_key(UserName="ann")["AccessKey"]
    ann = Credential(user["AccessKeyId"], user["SecretAccessKey"])
    first = clients("sts", ann).get_session_token(DurationSeconds=900)
    assert int(first["Credentials"]["Expiration"].timestamp() * 1000) == stage.clock.ms + 900_000
    session = key_of(first)
    assert clients("sts", session).get_caller_identity()["Arn"].endswith(":user/ann")
    longer = key_of(clients("sts", session).assume_role(RoleArn=ROLE.format("Team"), RoleSessionName="long"))
    iam.delete_access_key(UserName="ann", AccessKeyId=ann.access_key_id)
    for key in (session, longer):
        assert refusal(clients("sagemaker", key).list_models)[1] == "UnrecognizedClientException"
