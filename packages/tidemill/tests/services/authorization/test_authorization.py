"""Decisions on requests: which permissions are checked, what is refused, and batches that are allowed in part."""

import asyncio
from typing import Any

import pytest

from tidemill.core.job_scope import JobScope
from tidemill.core.roles import Roles
from tidemill.errors import AwsError
from tidemill.services.authorization import Authorization
from tidemill.wire.exchange import Caller, Context, Reply
from tidemill.wire.signing.credentials import Credential

ARN = "arn:aws:sts::000000000000:assumed-role/SageMakerRole/job-1"
JOB = Credential("ASIA", "s", arn=ARN, role="SageMakerRole", scope=JobScope(name="job-1", output="bkt/out/job-1"))
USER = Credential("AKIA", "s", unrestricted=True)


class Handler:
    """Records the requests that reach it."""

    def __init__(self, answer: Any = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self._answer = answer or {}

    async def __call__(self, request: dict[str, Any], context: Context) -> Any:
        self.seen.append(request)
        return self._answer


def ask(handler: Handler, service: str, operation: str, credential: Credential = JOB, **members: Any) -> Any:
    context = Context(
        request_id="r",
        service=service,
        operation=operation,
        caller=Caller(credential.access_key_id, credential.arn),
        region="us-west-2",
        headers={},
    )
    return asyncio.run(Authorization(Roles({})).handle(handler, members, context, credential))


@pytest.mark.parametrize(
    ("service", "operation", "members", "code", "status"),
    [
        ("s3", "DeleteBucket", {"Bucket": "bkt"}, "AccessDenied", 403),
        ("sagemaker", "ListModels", {}, "AccessDeniedException", 400),
        ("sagemaker-runtime", "InvokeEndpoint", {"EndpointName": "e"}, "AccessDeniedException", 403),
        ("logs", "DescribeLogGroups", {}, "AccessDeniedException", 400),
        ("iam", "GetRole", {"RoleName": "R"}, "AccessDenied", 403),
    ],
)
def test_a_refusal_has_the_code_and_status_of_its_protocol(
    service: str, operation: str, members: dict[str, Any], code: str, status: int
) -> None:
    handler = Handler()
    with pytest.raises(AwsError) as caught:
        ask(handler, service, operation, **members)
    assert (caught.value.code, caught.value.status, handler.seen) == (code, status, [])
    ask(handler, service, operation, USER, **members)
    assert handler.seen == [members]


def test_a_refusal_names_who_wants_to_do_what_to_which_resource_and_why_not() -> None:
    with pytest.raises(AwsError) as caught:
        ask(Handler(), "s3", "DeleteObject", Bucket="bkt", Key="out/job-10/model")
    assert caught.value.message == (
        f"User: {ARN} is not authorized to perform: s3:DeleteObject on resource: arn:aws:s3:::bkt/out/job-10/model: the"
        " key acts as the role 'SageMakerRole', and no statement of its policy allows it. The setting"
        " roles.SageMakerRole can give the role another policy"
    )


def test_a_copy_is_refused_for_its_source_and_for_its_destination() -> None:
    handler = Handler()
    own, other = {"Bucket": "bkt", "Key": "out/job-1/a"}, {"Bucket": "bkt", "Key": "out/job-2/a"}
    ask(handler, "s3", "CopyObject", **own, CopySource="any/key")
    with pytest.raises(AwsError, match="s3:PutObject on resource: arn:aws:s3:::bkt/out/job-2/a"):
        ask(handler, "s3", "CopyObject", **other, CopySource="bkt/out/job-1/a")
    assert len(handler.seen) == 1


def test_the_handler_of_a_batch_gets_only_the_allowed_entries() -> None:
    handler = Handler({"Deleted": [{"Key": "out/job-1/a"}], "Errors": [{"Key": "out/job-1/b", "Code": "Other"}]})
    keys = ["out/job-1/a", "out/job-2/a", "out/job-1/b", "out/job-10/a"]
    delete = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
    reply = ask(handler, "s3", "DeleteObjects", Bucket="bkt", Delete=delete)
    assert handler.seen == [
        {"Bucket": "bkt", "Delete": {"Objects": [{"Key": "out/job-1/a"}, {"Key": "out/job-1/b"}], "Quiet": True}}
    ]
    assert reply["Deleted"] == [{"Key": "out/job-1/a"}]
    assert [(error["Key"], error["Code"]) for error in reply["Errors"]] == [
        ("out/job-1/b", "Other"),
        ("out/job-2/a", "AccessDenied"),
        ("out/job-10/a", "AccessDenied"),
    ]


def test_a_batch_without_allowed_entries_does_not_reach_the_handler() -> None:
    handler = Handler()
    reply = ask(handler, "s3", "DeleteObjects", Bucket="bkt", Delete={"Objects": [{"Key": "a"}, {"Key": "b"}]})
    assert ([error["Key"] for error in reply["Errors"]], reply["Deleted"], handler.seen) == (["a", "b"], [], [])


def test_a_batch_keeps_the_head_of_its_reply() -> None:
    handler = Handler(Reply(members={"Deleted": []}, status=202, headers={"x": "y"}))
    delete = {"Objects": [{"Key": "out/job-1/a"}, {"Key": "b"}]}
    reply = ask(handler, "s3", "DeleteObjects", Bucket="bkt", Delete=delete)
    assert (reply.status, reply.headers, len(reply.members["Errors"])) == (202, {"x": "y"}, 1)


def test_a_restricted_key_without_a_scope_may_only_call_get_caller_identity() -> None:
    lost = Credential("ASIA", "s", arn=ARN)
    handler = Handler()
    with pytest.raises(AwsError, match="the job that the key was made for is not known here"):
        ask(handler, "s3", "GetObject", lost, Bucket="bkt", Key="k")
    reply = ask(handler, "s3", "DeleteObjects", lost, Bucket="bkt", Delete={"Objects": [{"Key": "k"}]})
    assert reply["Errors"][0]["Code"] == "AccessDenied"
    assert handler.seen == []
    ask(handler, "sts", "GetCallerIdentity", lost)
    assert len(handler.seen) == 1
