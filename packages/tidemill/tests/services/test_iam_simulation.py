"""SimulatePrincipalPolicy and SimulateCustomPolicy: they decide as requests are decided, and say by which statement."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.services.authorization.needs import NEEDS
from tidemill.services.iam.service import _OF_OWNER
from tidemill.wire.signing.credentials import Credential

ARN = "arn:aws:iam::000000000000:"
DATA = "arn:aws:s3:::data/*"


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(action: str | list[str], resource: str = "*", **members: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **members}


def deny(action: str, resource: str = "*", **members: Any) -> dict[str, Any]:
    return {**allow(action, resource, **members), "Effect": "Deny"}


def decisions(reply: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (each["EvalActionName"], each["EvalResourceName"]): each["EvalDecision"] for each in reply["EvaluationResults"]
    }


def test_a_role_is_simulated_with_its_own_policies_those_of_the_settings_or_the_built_in_one(iam):
    def put(role: str) -> str:
        members = {"ActionNames": ["s3:PutObject"], "ResourceArns": ["arn:aws:s3:::sagemaker-us-west-2-000000000000/*"]}
        (result,) = iam.simulate_principal_policy(PolicySourceArn=f"{ARN}role/{role}", **members)["EvaluationResults"]
        return result["EvalDecision"], [each["SourcePolicyId"] for each in result["MatchedStatements"]]

    assert put("service-role/SageMakerRole") == ("allowed", ["built-in"])
    assert put("reader") == ("implicitDeny", [])  # a role of the settings
    elsewhere = {"ActionNames": ["ecr:GetAuthorizationToken", "ec2:DescribeVpcs", "iam:CreateRole"]}
    reply = iam.simulate_principal_policy(PolicySourceArn=f"{ARN}role/SageMakerRole", **elsewhere)
    assert list(decisions(reply).values()) == ["allowed", "allowed", "implicitDeny"], "as AWS's SDK v3 asks"
    iam.create_role(RoleName="Team", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="Team", PolicyName="all", PolicyDocument=policy(allow("s3:*")))
    assert put("team") == ("allowed", ["all"])
    iam.put_role_policy(RoleName="Team", PolicyName="less", PolicyDocument=policy(deny("s3:Put*")))
    decided, matched = put("Team")
    assert (decided, sorted(matched)) == ("explicitDeny", ["all", "less"])


def test_a_user_is_simulated_as_its_requests_are_decided(iam, clients, refusal):
    iam.create_user(UserName="ann")
    source = f"{ARN}user/ann"
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    mine = clients("sagemaker", Credential(key["AccessKeyId"], key["SecretAccessKey"]))

    def agrees(expected: str) -> None:
        reply = iam.simulate_principal_policy(PolicySourceArn=source, ActionNames=["sagemaker:ListModels"])
        assert list(decisions(reply).values()) == [expected]
        try:
            mine.list_models()
            allowed = True
        except ClientError:
            allowed = False
        assert allowed is (expected == "allowed")

    agrees("allowed")
    of_ann = {"StringEquals": {"aws:username": "ann"}}
    for document, expected in (
        (policy(allow("sagemaker:List*")), "allowed"),
        (policy(allow("sagemaker:Describe*")), "implicitDeny"),
        (policy(allow("*"), deny("sagemaker:*", Condition=of_ann)), "explicitDeny"),
        (policy(allow("*", Condition={"StringNotEquals": {"aws:username": "ann"}})), "implicitDeny"),
    ):
        iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=document)
        agrees(expected)
    assert refusal(iam.simulate_principal_policy, PolicySourceArn=f"{ARN}user/x", ActionNames=["s3:GetObject"])[1] == (
        "NoSuchEntity"
    )
    assert refusal(iam.simulate_principal_policy, PolicySourceArn=f"{ARN}group/x", ActionNames=["s3:GetObject"])[1] == (
        "InvalidInput"
    )


def test_what_is_for_the_owner_alone_is_allowed_to_nobody_else(iam, clients):
    iam.create_user(UserName="ann")
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    mine = clients("iam", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    names = {"UserName": "ann", "RoleName": "R", "PolicyName": "p", "PolicyDocument": "{}", "AccessKeyId": "AKIA" * 4}
    names |= {"AssumeRolePolicyDocument": "{}", "PolicyArn": "arn:aws:iam::aws:policy/Full"}
    refused = set()
    operations = {mine.meta.method_to_api_mapping[method]: method for method in mine.meta.method_to_api_mapping}
    for operation in sorted(NEEDS["iam"]):
        shape = mine.meta.service_model.operation_model(operation).input_shape
        members = {name: names[name] for name in shape.members if name in names} if shape else {}
        if operation.startswith("Simulate"):
            continue
        try:
            getattr(mine, operations[operation])(**members)
        except ClientError as error:
            if "only the owner" in error.response["Error"]["Message"]:
                refused.add(operation)
    assert refused == _OF_OWNER
    actions = [f"iam:{name}" for name in sorted(_OF_OWNER)]
    reply = iam.simulate_principal_policy(PolicySourceArn=f"{ARN}user/ann", ActionNames=actions)
    assert set(decisions(reply).values()) == {"implicitDeny"}


def test_context_entries_are_the_request_and_missing_ones_are_named(iam):
    statement = allow("s3:ListBucket", Condition={"StringLike": {"s3:prefix": "home/*"}})

    def result(*entries: tuple[str, list[str]]) -> tuple[str, list[str]]:
        given = [
            {"ContextKeyName": name, "ContextKeyValues": values, "ContextKeyType": "string"} for name, values in entries
        ]
        members = {"ActionNames": ["s3:ListBucket"], "ContextEntries": given}
        (found,) = iam.simulate_custom_policy(PolicyInputList=[policy(statement)], **members)["EvaluationResults"]
        return found["EvalDecision"], found["MissingContextValues"]

    assert result() == ("implicitDeny", ["s3:prefix"])
    assert result(("S3:PREFIX", ["home/ann"])) == ("allowed", [])
    assert result(("s3:prefix", ["other"])) == ("implicitDeny", [])


def test_a_role_is_the_one_of_its_name_as_in_requests(iam):
    iam.create_role(RoleName="Limited", AssumeRolePolicyDocument="{}")
    iam.put_role_policy(RoleName="Limited", PolicyName="p", PolicyDocument=policy(allow("s3:*")))
    roles = f"{ARN}role/"
    reply = iam.simulate_custom_policy(
        PolicyInputList=[policy(allow("iam:PassRole", f"{roles}team-*"), deny("iam:PassRole", f"{roles}team-Admin"))],
        ActionNames=["iam:PassRole"],
        ResourceArns=[f"{roles}{name}" for name in ("team-a", "team-a/Other", "team-a/Limited", "team-a/team-admin")],
    )
    assert list(decisions(reply).values()) == ["allowed", "allowed", "implicitDeny", "explicitDeny"]


def test_statements_are_named_with_their_place_and_a_boundary_bounds(iam):
    text = '{\n  "Version": "2012-10-17",\n  "Statement": [\n    %s,\n    %s\n  ]\n}' % (  # noqa: UP031 - braces
        json.dumps(deny("s3:Delete*")),
        json.dumps(allow("s3:*", DATA)),
    )
    reply = iam.simulate_custom_policy(
        PolicyInputList=[policy(), text],
        PermissionsBoundaryPolicyInputList=[policy(allow("s3:Get*"))],
        ActionNames=["s3:GetObject", "s3:PutObject", "s3:DeleteObject"],
        ResourceArns=["arn:aws:s3:::data/k", "arn:aws:s3:::other/k"],
        CallerArn=f"{ARN}user/ann",
    )
    assert list(decisions(reply).values()) == [
        *("allowed", "implicitDeny"),
        *("implicitDeny", "implicitDeny"),
        *("explicitDeny", "explicitDeny"),
    ]
    get, _, put, *_ = reply["EvaluationResults"]
    assert get["MatchedStatements"] == [
        {
            "SourcePolicyId": "PolicyInputList.2",
            "SourcePolicyType": "none",
            "StartPosition": {"Line": 5, "Column": 5},
            "EndPosition": {"Line": 5, "Column": 5 + len(json.dumps(allow("s3:*", DATA)))},
        }
    ]
    assert get["PermissionsBoundaryDecisionDetail"] == {"AllowedByPermissionsBoundary": True}
    assert put["PermissionsBoundaryDecisionDetail"] == {"AllowedByPermissionsBoundary": False}
    assert get["ResourceSpecificResults"][0]["EvalResourceDecision"] == "allowed"


def test_results_come_in_pages_and_mistakes_are_refused(iam, refusal: Callable[..., Any]):
    actions = ["s3:GetObject", "ecr:GetAuthorizationToken", "s3:PutObject"]
    given = {"PolicyInputList": [policy(allow("s3:*"))], "ActionNames": actions}
    pages = list(iam.get_paginator("simulate_custom_policy").paginate(**given, PaginationConfig={"PageSize": 2}))
    assert [len(page["EvaluationResults"]) for page in pages] == [2, 1]
    found = {name: value for page in pages for (name, _), value in decisions(page).items()}
    assert found == dict(zip(actions, ("allowed", "implicitDeny", "allowed"), strict=True))
    for members, named in (
        ({"ActionNames": ["GetObject"]}, "SERVICE:NAME"),
        ({"PolicyInputList": ["{"]}, "PolicyInputList.1"),
        ({"PolicyInputList": [policy(deny("s3:Nothing"))]}, "fits no action"),
        ({"PolicyInputList": ['{"Statement": [], "Statement": []}']}, "occurs twice"),
        ({"Marker": "later"}, "Marker"),
        ({"Marker": "9" * 320}, "Marker"),
    ):
        status, code, message = refusal(iam.simulate_custom_policy, **{**given, **members})
        assert (status, code) == (400, "InvalidInput")
        assert named in message


@pytest.mark.parametrize("statement", [allow("iam:Simulate*"), allow("s3:*")])
def test_a_user_simulates_as_far_as_its_policy_allows(iam, clients, statement):
    iam.create_user(UserName="ann")
    iam.put_user_policy(UserName="ann", PolicyName="p", PolicyDocument=policy(statement))
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    mine = clients("iam", Credential(key["AccessKeyId"], key["SecretAccessKey"]))
    call = {"PolicySourceArn": f"{ARN}user/ann", "ActionNames": ["s3:GetObject"]}
    if "s3:*" in statement["Action"]:
        with pytest.raises(ClientError, match="AccessDenied"):
            mine.simulate_principal_policy(**call)
    else:
        assert mine.simulate_principal_policy(**call)["EvaluationResults"][0]["EvalDecision"] == "implicitDeny"
