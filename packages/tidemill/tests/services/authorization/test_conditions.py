"""Conditions of policies for real requests: what each key's value is, and what a user with a policy may do."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.clock import SystemClock
from tidemill.core.conditions import Fact, Lack
from tidemill.core.facts import RequestSender
from tidemill.core.policy import Permission
from tidemill.services.authorization.facts import RequestFacts
from tidemill.services.authorization.needs import needs_of
from tidemill.wire.exchange import Caller, Context
from tidemill.wire.signing.credentials import Credential

SAGEMAKER = "arn:aws:sagemaker:us-west-2:000000000000:"
ROLE = "arn:aws:iam::000000000000:role/R"
TRAINING = {
    "TrainingJobName": "j",
    "RoleArn": ROLE,
    "HyperParameters": {"InstanceType": "ml.fake", "Subnets": "x"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "VolumeKmsKeyId": "k"},
    "OutputDataConfig": {"KmsKeyId": "arn:aws:kms:us-west-2:000000000000:key/o"},
    "VpcConfig": {"Subnets": ["s1", "s2"], "SecurityGroupIds": ["g"]},
    "Tags": [{"Key": "Team", "Value": "vision"}, {"Key": "stage", "Value": "dev"}],
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    "EnableNetworkIsolation": True,
}
GROUPS = {
    "TrainingJobName": "j",
    "ResourceConfig": {"InstanceGroups": [{"InstanceType": "ml.m5.large"}, {"InstanceType": "ml.c5.large"}]},
    "StoppingCondition": {},
}
TUNING = {
    "HyperParameterTuningJobName": "t",
    "HyperParameterTuningJobConfig": {"ResourceLimits": {"MaxRuntimeInSeconds": 5}},
    "TrainingJobDefinitions": [
        {"ResourceConfig": {"InstanceType": "a"}, "StoppingCondition": {"MaxRuntimeInSeconds": 60}},
        {"HyperParameterTuningResourceConfig": {"InstanceType": "b"}, "EnableNetworkIsolation": True},
    ],
}
PROCESSING = {"ProcessingJobName": "p", "ProcessingResources": {"ClusterConfig": {"InstanceType": "ml.m5.large"}}}
CONFIG = {
    "EndpointConfigName": "c",
    "KmsKeyId": "k",
    "ProductionVariants": [
        {"VariantName": "v", "ModelName": "m", "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 5}}
    ],
}
TRANSFORM = {"TransformJobName": "t", "ModelName": "m"}
TAGGING = {"Bucket": "b", "Key": "k", "Tagging": {"TagSet": [{"Key": "a", "Value": "b"}]}}
COPY = {"Bucket": "b", "Key": "k"}
TARGET = {"ResourceARN": "arn:aws:application-autoscaling:us-west-2:000000000000:scalable-target/x"}
LIST = {"Bucket": "b", "Prefix": "home/", "MaxKeys": 10}

FACTS: list[tuple[str, str, dict[str, Any], str, Fact]] = [
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:InstanceTypes", ("ml.m5.large",)),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:InstanceTypes", ("ml.m5.large", "ml.c5.large")),
    ("sagemaker", "CreateHyperParameterTuningJob", TUNING, "sagemaker:InstanceTypes", ("a", "b")),
    ("sagemaker", "CreateProcessingJob", PROCESSING, "sagemaker:InstanceTypes", ("ml.m5.large",)),
    ("sagemaker", "DescribeTrainingJob", {"TrainingJobName": "j"}, "sagemaker:InstanceTypes", None),
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:VpcSubnets", ("s1", "s2")),
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:VpcSecurityGroupIds", ("g",)),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:VpcSubnets", None),
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:NetworkIsolation", ("true",)),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:NetworkIsolation", ("false",)),
    ("sagemaker", "CreateProcessingJob", PROCESSING, "sagemaker:NetworkIsolation", ("false",)),
    ("sagemaker", "CreateHyperParameterTuningJob", TUNING, "sagemaker:NetworkIsolation", ("false", "true")),
    ("sagemaker", "CreateTransformJob", TRANSFORM, "sagemaker:NetworkIsolation", None),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:InterContainerTrafficEncryption", ("false",)),
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:MaxRuntimeInSeconds", ("60",)),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:MaxRuntimeInSeconds", Lack.UNDETERMINED),
    ("sagemaker", "CreateHyperParameterTuningJob", TUNING, "sagemaker:MaxRuntimeInSeconds", Lack.UNDETERMINED),
    ("sagemaker", "CreateProcessingJob", PROCESSING, "sagemaker:MaxRuntimeInSeconds", Lack.UNDETERMINED),
    ("sagemaker", "CreateEndpointConfig", CONFIG, "sagemaker:ModelArn", (f"{SAGEMAKER}model/m",)),
    ("sagemaker", "CreateModel", {"ModelName": "m"}, "sagemaker:ModelArn", None),
    ("sagemaker", "CreateEndpointConfig", CONFIG, "sagemaker:ServerlessMaxConcurrency", ("5",)),
    ("sagemaker", "CreateEndpointConfig", CONFIG, "sagemaker:ServerlessMemorySize", ("1024",)),
    ("sagemaker-runtime", "InvokeEndpoint", {"EndpointName": "e", "TargetModel": "a"}, "sagemaker:TargetModel", ("a",)),
    ("sagemaker", "CreateTrainingJob", TRAINING, "sagemaker:VolumeKmsKey", Lack.UNDETERMINED),
    ("sagemaker", "CreateTrainingJob", GROUPS, "sagemaker:OutputKmsKey", None),
    ("sagemaker", "CreateTrainingJob", TRAINING, "aws:RequestTag/team", ("vision",)),
    ("sagemaker", "CreateTrainingJob", TRAINING, "aws:RequestTag/Other", None),
    ("sagemaker", "CreateTrainingJob", TRAINING, "aws:TagKeys", ("Team", "stage")),
    ("sagemaker", "DeleteTags", {"ResourceArn": f"{SAGEMAKER}model/m", "TagKeys": ["a"]}, "aws:TagKeys", ("a",)),
    ("sagemaker", "CreateTrainingJob", GROUPS, "aws:TagKeys", None),
    ("sagemaker", "DescribeModel", {"ModelName": "tagged"}, "aws:ResourceTag/team", ("vision",)),
    ("sagemaker", "DescribeModel", {"ModelName": "tagged"}, "sagemaker:ResourceTag/TEAM", ("vision",)),
    ("sagemaker", "DescribeModel", {"ModelName": "other"}, "aws:ResourceTag/team", None),
    ("sagemaker", "DescribeModel", {"ModelName": "twice"}, "aws:ResourceTag/team", Lack.UNDETERMINED),
    (
        "sagemaker",
        "ListTags",
        {"ResourceArn": f"{SAGEMAKER}model/tagged".replace("us-west-2", "eu-west-1")},
        "aws:ResourceTag/team",
        ("vision",),
    ),
    ("kms", "DescribeKey", {"KeyId": "k"}, "aws:ResourceTag/team", Lack.UNDETERMINED),
    ("s3", "GetObject", {"Bucket": "b", "Key": "k"}, "aws:ResourceTag/team", None),
    ("s3", "PutObjectTagging", TAGGING, "aws:RequestTag/a", ("b",)),
    ("s3", "ListObjectsV2", LIST, "s3:prefix", ("home/",)),
    ("s3", "ListObjectsV2", {"Bucket": "b"}, "s3:prefix", None),
    ("s3", "ListObjectsV2", {"Bucket": "b", "Prefix": ""}, "s3:prefix", ("",)),
    ("s3", "ListObjectsV2", LIST, "s3:max-keys", ("10",)),
    ("s3", "CopyObject", {**COPY, "CopySource": "secret/x/y"}, "s3:x-amz-copy-source", ("secret/x/y",)),
    ("s3", "CopyObject", {**COPY, "CopySource": "/s%65cret/x%2Fy?versionId=a"}, "s3:x-amz-copy-source",
     ("secret/x/y",)),
    ("s3", "PutObject", COPY, "s3:x-amz-copy-source", None),
    ("application-autoscaling", "TagResource", {**TARGET, "Tags": {"TagSet": "", "Team": "vision"}},
     "aws:RequestTag/team", ("vision",)),
    ("application-autoscaling", "TagResource", {**TARGET, "Tags": {"TagSet": "x"}}, "aws:TagKeys", ("TagSet",)),
    ("s3", "PutObject", {"Bucket": "b", "Key": "k", "Tagging": "a=b&c="}, "aws:RequestTag/c", ("",)),
    ("s3", "PutObject", {"Bucket": "b", "Key": "k", "ServerSideEncryption": "aws:kms"},
     "s3:x-amz-server-side-encryption", ("aws:kms",)),
    ("s3", "PutObject", {"Bucket": "b", "Key": "k"}, "s3:x-amz-server-side-encryption", None),
    ("s3", "UploadPart", {"Bucket": "b", "Key": "k"}, "s3:x-amz-server-side-encryption", Lack.WAIVED),
    ("sagemaker", "DescribeModel", {"ModelName": "m"}, "s3:prefix", None),
    ("sts", "AssumeRole", {"RoleArn": ROLE, "RoleSessionName": "n"}, "sts:RoleSessionName", ("n",)),
    ("cloudwatch", "PutMetricData", {"Namespace": "Team/A"}, "cloudwatch:namespace", ("Team/A",)),
    ("sagemaker", "DescribeModel", {"ModelName": "m"}, "aws:SourceIp", ("127.0.0.1",)),
    ("sagemaker", "DescribeModel", {"ModelName": "m"}, "aws:username", ("ann",)),
]  # fmt: skip


@pytest.mark.parametrize(("service", "operation", "members", "key", "expected"), FACTS)
def test_a_key_has_the_value_that_the_request_gives_it(
    service: str, operation: str, members: dict[str, Any], key: str, expected: Fact
) -> None:
    tags = {
        ("model", "tagged"): {"Team": "vision"},
        ("model", "twice"): {"Team": "vision", "team": "audio"},
    }
    caller = Caller("AKIA", "arn:aws:iam::000000000000:user/ann")
    context = Context(
        request_id="r", service=service, operation=operation, caller=caller, region="us-west-2", headers={}
    )
    sender = RequestSender(arn=caller.arn, now_ms=0, region="us-west-2", address=("127.0.0.1",))
    facts = RequestFacts(members, context, sender, lambda kind, name: tags.get((kind, name), {}), None)
    permission = (needs_of(members, context) or ())[0]
    assert facts.on(permission)(key.casefold()) == expected


def test_a_role_is_passed_to_sagemaker_and_to_nothing_else() -> None:
    context = Context(
        request_id="r",
        service="sagemaker",
        operation="CreateTrainingJob",
        caller=Caller("k", "arn"),
        region="r",
        headers={},
    )
    facts = RequestFacts(TRAINING, context, RequestSender(arn="arn", now_ms=0, region="r"), None, None)
    assert facts.on(Permission("iam:PassRole", ROLE))("iam:passedtoservice") == ("sagemaker.amazonaws.com",)
    assert facts.on(Permission("sagemaker:CreateTrainingJob", "a"))("iam:passedtoservice") is None


@pytest.fixture
def user(iam: Any, clients: Callable[..., Any]) -> Callable[..., Callable[[str], Any]]:
    """Return a function that gives ann a policy and returns a function that returns her clients."""

    def give(*statements: dict[str, Any], keys: int = 1) -> Callable[[str], Any]:
        document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=document)
        if not keys:
            return clients
        key = iam.create_access_key(UserName="ann")["AccessKey"]
        pair = Credential(key["AccessKeyId"], key["SecretAccessKey"])
        return lambda service: clients(service, pair)

    iam.create_user(UserName="ann")
    return give


def allow(action: str | list[str], **members: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": "*", **members}


def denied(call: Callable[..., Any], **members: Any) -> bool:
    try:
        call(**members)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ("AccessDenied", "AccessDeniedException"):
            raise
        return True
    return False


def test_a_user_lists_and_reads_only_below_its_own_name(user, clients, stage) -> None:
    owner = clients("s3")
    for key in ("home/ann/a", "home/bob/b"):
        owner.put_object(Bucket="data", Key=key, Body=b"x")
    own = {"StringLike": {"s3:prefix": ["", "home/", "home/${aws:username}/*"]}}
    s3 = user(
        allow("s3:ListBucket", Condition=own),
        {"Effect": "Allow", "Action": "s3:*Object", "Resource": "arn:aws:s3:::data/home/${aws:username}/*"},
        {"Effect": "Deny", "NotAction": "s3:*", "Resource": "*"},
    )("s3")
    assert not denied(s3.list_objects_v2, Bucket="data", Prefix="home/ann/")
    assert not denied(s3.list_objects_v2, Bucket="data", Prefix="", Delimiter="/")
    assert denied(s3.list_objects_v2, Bucket="data", Prefix="home/bob/")
    assert denied(s3.list_objects_v2, Bucket="data")
    assert not denied(s3.get_object, Bucket="data", Key="home/ann/a")
    assert denied(s3.get_object, Bucket="data", Key="home/bob/b")
    for key in ("home/ann/a", "home/bob/b"):
        owner.delete_object(Bucket="data", Key=key)


def test_tags_decide_what_a_user_creates_and_sees(user, clients, stage) -> None:
    owner, container = (
        clients("sagemaker"),
        {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/m.tar.gz"},
    )
    for name, team in (("ours", "vision"), ("theirs", "audio")):
        tags = [{"Key": "Team", "Value": team}]
        owner.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=container, Tags=tags)
    sagemaker = user(
        allow(
            ["sagemaker:CreateModel", "sagemaker:AddTags"],
            Condition={"StringEquals": {"aws:RequestTag/Team": "vision"}},
        ),
        allow("iam:PassRole", Condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}),
        allow("sagemaker:DescribeModel", Condition={"StringEquals": {"aws:ResourceTag/Team": "vision"}}),
        allow("sagemaker:ListModels"),
    )("sagemaker")
    new: dict[str, Any] = {"ModelName": "new", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    assert denied(sagemaker.create_model, **new)
    assert denied(sagemaker.create_model, **new, Tags=[{"Key": "Team", "Value": "audio"}])
    assert not denied(sagemaker.create_model, **new, Tags=[{"Key": "Team", "Value": "vision"}])
    assert not denied(sagemaker.describe_model, ModelName="ours")
    assert denied(sagemaker.describe_model, ModelName="theirs")
    assert {each["ModelName"] for each in sagemaker.list_models()["Models"]} == {"ours", "new"}
    stage.hosting._region = "eu-west-1"  # as after a start with another region
    clients("sagemaker").create_model(
        ModelName="far", ExecutionRoleArn=ROLE, PrimaryContainer=container, Tags=[{"Key": "Team", "Value": "audio"}]
    )
    assert denied(sagemaker.describe_model, ModelName="far")
    secret = {**allow("*"), "Effect": "Deny", "Condition": {"StringEquals": {"aws:ResourceTag/Team": "audio"}}}
    user(allow("*"), secret, keys=0)
    assert denied(sagemaker.describe_model, ModelName="far"), "its tags are those of its own ARN"


def test_the_address_and_the_transport_of_a_request_decide(user, stage) -> None:
    here = allow("sagemaker:ListModels", Condition={"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}})
    elsewhere = {**allow("*"), "Effect": "Deny", "Condition": {"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8"]}}}
    insecure = {**allow("*"), "Effect": "Deny", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    sagemaker = user(here)("sagemaker")
    assert not denied(sagemaker.list_models)
    for statement in (elsewhere, insecure):
        user(here, statement, keys=0)
        assert denied(sagemaker.list_models)


def test_a_right_ends_at_its_time(user, stage) -> None:
    until = {"DateLessThan": {"aws:CurrentTime": "2023-11-14T22:14:00Z"}}
    sagemaker = user(allow("sagemaker:ListModels", Condition=until))("sagemaker")
    assert not denied(sagemaker.list_models)
    stage.clock.ms += 60_000
    assert denied(sagemaker.list_models)


def test_a_condition_of_a_session_and_of_a_role_hold_too(iam, sts, clients, stage) -> None:
    statement = allow("sagemaker:ListModels", Condition={"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/Team"}})
    stage.clock.ms = SystemClock().now_ms()  # the gateway compares with it when the session ends
    iam.create_role(RoleName="Team", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="Team", PolicyName="p", PolicyDocument=json.dumps({"Statement": statement}))

    def assumed(role: str, **members: Any) -> Any:
        keys = sts.assume_role(RoleArn=f"arn:aws:iam::000000000000:role/{role}", RoleSessionName="session", **members)
        found = keys["Credentials"]
        pair = Credential(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        return clients("sagemaker", pair)

    assert not denied(assumed("team").list_models)
    limit = {"Statement": allow("*", Condition={"StringEquals": {"aws:PrincipalType": "User"}})}
    assert denied(assumed("Team", Policy=json.dumps(limit)).list_models)


def test_a_user_stays_subject_to_its_own_policy_in_every_session(user, clients, stage) -> None:
    stage.clock.ms = SystemClock().now_ms()
    of_ann = {"StringEquals": {"aws:username": "ann"}}
    mine = user(
        allow("*"),
        {**allow("sagemaker:ListModels"), "Effect": "Deny", "Condition": of_ann},
        {**allow("s3:DeleteObject"), "Effect": "Deny", "Resource": "arn:aws:s3:::data/${aws:username}/*"},
    )
    clients("s3").put_bucket_policy(
        Bucket="data",
        Policy=json.dumps(
            {
                "Statement": {
                    "Effect": "Deny",
                    "Principal": {"AWS": "arn:aws:iam::000000000000:user/ann"},
                    "Action": "s3:GetObject",
                    "Resource": "arn:aws:s3:::data/*",
                }
            }
        ),
    )
    keys = mine("sts").assume_role(RoleArn=ROLE, RoleSessionName="session")["Credentials"]
    pair = Credential(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])
    assert denied(clients("sagemaker", pair).list_models)
    assert denied(clients("s3", pair).delete_object, Bucket="data", Key="ann/k")
    assert not denied(clients("s3", pair).delete_object, Bucket="data", Key="bob/k")
    assert denied(clients("s3", pair).get_object, Bucket="data", Key="k")
    clients("s3").delete_bucket_policy(Bucket="data")


def assumed(sts: Any, role: str, session: str = "session", **members: Any) -> Credential:
    found = sts.assume_role(RoleArn=f"arn:aws:iam::000000000000:role/{role}", RoleSessionName=session, **members)
    keys = found["Credentials"]
    return Credential(keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])


def of_bucket(effect: str, action: str, *principals: str) -> str:
    who = {"AWS": [f"arn:aws:iam::000000000000:{each}" for each in principals]}
    statement = {"Effect": effect, "Principal": who, "Action": action, "Resource": "arn:aws:s3:::data/*"}
    return json.dumps({"Statement": statement})


def test_what_a_bucket_allows_a_role_goes_beyond_its_policy_and_not_beyond_who_assumes_it(
    user, iam, sts, clients, stage
) -> None:
    stage.clock.ms = SystemClock().now_ms()
    owner, one = clients("s3"), {"Bucket": "data", "Key": "k"}
    mine = user(allow("sts:AssumeRole"))
    iam.create_role(RoleName="R", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(
        RoleName="R", PolicyName="p", PolicyDocument=json.dumps({"Statement": allow("sagemaker:List*")})
    )
    of_owner = clients("s3", assumed(sts, "R"))
    assert denied(of_owner.delete_object, **one)
    owner.put_bucket_policy(Bucket="data", Policy=of_bucket("Allow", "s3:DeleteObject", "role/R"))
    assert not denied(of_owner.delete_object, **one)
    of_ann = clients("s3", assumed(mine("sts"), "R"))
    assert denied(of_ann.delete_object, **one)
    assert denied(mine("s3").delete_object, **one)
    session = json.dumps({"Statement": allow("s3:ListBucket")})
    assert denied(clients("s3", assumed(sts, "R", Policy=session)).delete_object, **one)
    owner.put_bucket_policy(Bucket="data", Policy=of_bucket("Allow", "s3:DeleteObject", "role/R", "user/ann"))
    assert not denied(of_ann.delete_object, **one)
    assert not denied(mine("s3").delete_object, **one)
    owner.delete_bucket_policy(Bucket="data")


def test_a_session_within_a_session_stays_subject_to_what_limits_the_first(iam, sts, clients, stage) -> None:
    stage.clock.ms = SystemClock().now_ms()
    one = {"Bucket": "data", "Key": "k"}
    of_bob = {"StringLike": {"aws:userid": "*:bob"}}
    statements = [allow("sts:AssumeRole"), allow("s3:DeleteObject", Condition=of_bob)]
    iam.create_role(RoleName="Team", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="Team", PolicyName="p", PolicyDocument=json.dumps({"Statement": statements}))
    assert not denied(clients("s3", assumed(sts, "Team", "bob")).delete_object, **one)
    ann = assumed(sts, "Team", "ann")
    assert denied(clients("s3", ann).delete_object, **one)
    assert denied(clients("s3", assumed(clients("sts", ann), "Team", "bob")).delete_object, **one)
    contractor = assumed(sts, "Contractor")
    other = assumed(clients("sts", contractor), "Other")
    last = clients("s3", assumed(clients("sts", other), "Another"))
    assert not denied(last.delete_object, **one)
    clients("s3").put_bucket_policy(Bucket="data", Policy=of_bucket("Deny", "s3:DeleteObject", "role/Contractor"))
    assert denied(last.delete_object, **one)
    clients("s3").delete_bucket_policy(Bucket="data")


IAM = "arn:aws:iam::000000000000:role"
EXECUTION = f"{IAM}/service-role/AmazonSageMaker-ExecutionRole-1"


def test_a_policy_about_a_role_holds_however_the_request_writes_its_arn(user, iam, stage) -> None:
    container, sent = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/m.tar.gz"}, []

    def passed(arn: str) -> bool:
        sent.append(arn)
        new = {"ModelName": f"m-{len(sent)}", "ExecutionRoleArn": arn, "PrimaryContainer": container}
        return not denied(sagemaker.create_model, **new)

    deny = {"Effect": "Deny", "Action": ["iam:PassRole", "sts:AssumeRole"], "Resource": f"{IAM}/Admin"}
    mine = user(allow("*"), deny)
    sagemaker, sts = mine("sagemaker"), mine("sts")
    for arn in ("/Admin", "/admin", "/x/Admin", "Admin", "/Admin/"):
        assert not passed(f"{IAM}{arn}"), arn
        assert denied(sts.assume_role, RoleArn=f"{IAM}{arn}", RoleSessionName="session"), arn
    assert not passed("arn:aws:iam::111111111111:role/ADMIN")
    assert passed(f"{IAM}/Administrator")
    # A role that was given a policy needs a right to its own ARN.
    every = {**allow("iam:PassRole"), "Resource": [f"{IAM}/team-*", EXECUTION]}
    user(allow("sagemaker:*"), every, keys=0)
    for name in ("Limited", "team-b"):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument="{}")
        iam.put_role_policy(RoleName=name, PolicyName="p", PolicyDocument=json.dumps({"Statement": allow("s3:*")}))
    assert [passed(f"{IAM}/{each}") for each in ("team-a", "team-b", "Team-B", "team-a/Limited")] == [True] * 3 + [
        False
    ]
    # Others are the same under all ARNs, so a path that only the client knows of decides nothing else.
    assert passed(EXECUTION)
    only = {"Effect": "Deny", "Action": "iam:PassRole", "NotResource": EXECUTION}
    user(allow("*"), only, keys=0)
    assert passed(EXECUTION)
    assert not passed(f"{IAM}/service-role/Limited")
    user(allow("sagemaker:*"), {"Effect": "Allow", "Action": "iam:*", "NotResource": f"{IAM}/Admin"}, keys=0)
    assert passed(f"{IAM}/team-a")
    assert not passed(f"{IAM}/x/admin")


def test_a_policy_with_a_key_that_is_not_known_is_refused_when_it_is_put(iam, refusal, stage) -> None:
    statement = {**allow("*"), "Effect": "Deny", "Condition": {"StringNotEquals": {"aws:PrincipalTag/team": "a"}}}
    iam.create_user(UserName="ann")
    status, code, message = refusal(
        iam.put_user_policy, UserName="ann", PolicyName="p", PolicyDocument=json.dumps({"Statement": statement})
    )
    assert (status, code) == (400, "MalformedPolicyDocument")
    assert "aws:principaltag/team" in message
