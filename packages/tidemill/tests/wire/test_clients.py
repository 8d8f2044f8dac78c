"""Real boto3 clients and toy handlers: each protocol in both directions."""

from collections.abc import Callable
from typing import Any

import botocore.exceptions
import pytest
import toys
import urllib3

JOB = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingImage": "tidemill/tensorflow:2.21", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}

Client = Callable[..., Any]


def test_a_training_job_is_created_and_stray_output_members_are_dropped(client: Client, toy: toys.Toys) -> None:
    reply = client("sagemaker").create_training_job(**JOB, HyperParameters={"lr": '"0.1"', "ü": "漢字"})
    assert reply["TrainingJobArn"] == "arn:job/digits"
    assert "Stray" not in reply
    name, request, context = toy.seen[-1]
    assert name == "CreateTrainingJob"
    assert request["HyperParameters"] == {"lr": '"0.1"', "ü": "漢字"}
    assert (context.service, context.operation, context.region) == ("sagemaker", "CreateTrainingJob", "us-west-2")
    assert context.caller.access_key_id == toys.KEY
    assert reply["ResponseMetadata"]["RequestId"] == context.request_id


def test_times_come_back_as_times(client: Client) -> None:
    reply = client("sagemaker").describe_training_job(TrainingJobName="digits")
    assert reply["CreationTime"] == toys.MOMENT
    assert "FailureReason" not in reply


def test_a_time_in_a_request_reaches_the_handler_as_a_time(client: Client, toy: toys.Toys) -> None:
    client("sagemaker").list_training_jobs(CreationTimeAfter=toys.MOMENT)
    assert abs((toy.seen[-1][1]["CreationTimeAfter"] - toys.MOMENT).total_seconds()) < 1


def test_a_refusal_of_a_handler_keeps_its_code(client: Client) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client("sagemaker").create_training_job(**{**JOB, "TrainingJobName": "taken"})
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    assert "must be unique" in caught.value.response["Error"]["Message"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


def test_an_unexpected_exception_shows_the_request_id_and_nothing_else(client: Client) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client("sagemaker").create_training_job(**{**JOB, "TrainingJobName": "boom"})
    error = caught.value.response
    assert error["Error"]["Code"] == "InternalFailure"
    assert error["ResponseMetadata"]["RequestId"] in error["Error"]["Message"]
    assert "secret inside" not in str(error)


def test_an_operation_without_a_handler_is_unknown(client: Client) -> None:
    for call in (client("sagemaker").list_pipelines, client("logs").describe_log_groups, client("iam").list_roles):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            call()
        assert caught.value.response["Error"]["Code"] == "UnknownOperationException"
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400


@pytest.mark.parametrize("service", ["cloudwatch", "ecr", "kms", "events"])
def test_a_service_without_handlers_answers_in_its_protocol(client: Client, service: str) -> None:
    call = {
        "cloudwatch": "list_metrics",
        "ecr": "describe_repositories",
        "kms": "list_keys",
        "events": "list_rules",
    }[service]
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        getattr(client(service), call)()
    assert caught.value.response["Error"]["Code"] == "UnknownOperationException"


@pytest.mark.parametrize(
    ("service", "call"),
    [
        ("lambda", "list_functions"),
        ("dynamodb", "list_tables"),
        ("sns", "list_topics"),
        ("route53", "list_hosted_zones"),
        ("efs", "describe_file_systems"),
    ],
)
def test_a_service_that_does_not_exist_here_is_named(client: Client, service: str, call: str) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        getattr(client(service), call)()
    error = caught.value.response["Error"]
    assert error["Code"] == "UnknownOperationException"
    scope = {"dynamodb": "DynamoDB_", "efs": "elasticfilesystem"}.get(service, service)
    assert error["Message"].startswith("This service does not implement the ")
    assert f"'{scope}" in error["Message"]


def test_log_streams_are_described_and_an_absent_group_is_named_so(client: Client) -> None:
    logs = client("logs")
    reply = logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix="digits/")
    assert reply["logStreams"][0]["logStreamName"] == "digits/algo-1"
    with pytest.raises(logs.exceptions.ResourceNotFoundException):
        logs.describe_log_streams(logGroupName="/aws/sagemaker/TrainingJobs")
    assert logs.get_log_events(logGroupName="g", logStreamName="s")["events"][0]["message"] == "ü <b>"


def test_an_endpoint_is_invoked_with_its_headers(client: Client, toy: toys.Toys) -> None:
    runtime = client("sagemaker-runtime")
    reply = runtime.invoke_endpoint(
        EndpointName="e1",
        Body=b"\x00abc\xff",
        ContentType="application/x-npy",
        Accept="application/json",
        CustomAttributes="tfs-method=classify",
    )
    assert reply["Body"].read() == b"\xffcba\x00"
    assert reply["ContentType"] == "application/json"
    assert reply["InvokedProductionVariant"] == "AllTraffic"
    assert reply["CustomAttributes"] == "tfs-method=classify"
    assert toy.seen[-1][1]["ContentType"] == "application/x-npy"


def test_a_model_error_carries_its_members(client: Client) -> None:
    runtime = client("sagemaker-runtime")
    with pytest.raises(runtime.exceptions.ModelError) as caught:
        runtime.invoke_endpoint(EndpointName="e1", Body=b"x", TargetVariant="broken")
    error = caught.value.response
    assert error["ResponseMetadata"]["HTTPStatusCode"] == 424
    assert (error["OriginalStatusCode"], error["OriginalMessage"], error["LogStreamArn"]) == (500, "boom", "arn:log")


def test_a_streaming_invocation_returns_its_parts(client: Client) -> None:
    reply = client("sagemaker-runtime").invoke_endpoint_with_response_stream(EndpointName="e1", Body=b"x")
    assert [event["PayloadPart"]["Bytes"] for event in reply["Body"]] == [b"one", b"two"]


def test_the_caller_is_identified_over_the_query_protocol(client: Client) -> None:
    reply = client("sts").get_caller_identity()
    assert reply["Arn"] == "arn:aws:sts::000000000000:assumed-role/R&D/user"


def test_roles_and_simulated_policies_over_the_query_protocol(client: Client, toy: toys.Toys) -> None:
    iam = client("iam")
    assert iam.get_role(RoleName="SageMakerRole")["Role"]["CreateDate"] == toys.MOMENT
    actions = ["s3:GetObject", "sagemaker:CreateTrainingJob"]
    reply = iam.simulate_principal_policy(PolicySourceArn="arn:aws:iam::000000000000:role/x", ActionNames=actions)
    assert [result["EvalActionName"] for result in reply["EvaluationResults"]] == actions
    assert reply["IsTruncated"] is False
    assert toy.seen[-1][1]["ActionNames"] == actions
    with pytest.raises(iam.exceptions.NoSuchEntityException):
        iam.get_role(RoleName="absent")


KEYS = [
    "plain.txt",
    "a%2Fb",
    "../../etc/passwd",
    "a//b",
    "/lead",
    "ü/漢字",
    "%25",
    "#",
    "a+b c",
    "q?x=1&y",
    "(a)*'!~",
    "folder/",
    "\U0001f600",
    "a=b;c:d@e$f,g",
    "endpoints/x/invocations",
]


@pytest.mark.parametrize("key", KEYS)
def test_an_object_with_an_awkward_key_goes_there_and_back(client: Client, toy: toys.Toys, key: str) -> None:
    s3 = client("s3")
    s3.put_object(Bucket="bucket", Key=key, Body=key.encode(), Metadata={"who": "me"}, ContentType="text/x")
    assert toy.seen[-1][1]["Key"] == key
    reply = s3.get_object(Bucket="bucket", Key=key)
    assert reply["Body"].read() == key.encode()
    assert (reply["Metadata"], reply["ContentType"]) == ({"who": "me"}, "text/x")
    assert s3.head_object(Bucket="bucket", Key=key)["ContentLength"] == len(key.encode())
    assert key in [entry["Key"] for entry in s3.list_objects_v2(Bucket="bucket")["Contents"]]


@pytest.mark.parametrize("algorithm", ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"])
def test_a_checksum_reaches_the_handler_from_header_and_trailer(client: Client, algorithm: str) -> None:
    s3 = client("s3")
    data = b"0123456789" * 20_000

    plain = s3.put_object(Bucket="bucket", Key="sum", Body=data, ChecksumAlgorithm=algorithm)
    member = f"Checksum{algorithm}"
    assert plain[member]
    unsigned = client("s3", s3={"payload_signing_enabled": False})
    trailed = unsigned.put_object(Bucket="bucket", Key="sum2", Body=data, ChecksumAlgorithm=algorithm)
    assert trailed[member] == plain[member]
    reply = s3.get_object(Bucket="bucket", Key="sum2")
    assert reply["Body"].read() == data
    assert reply[member] == plain[member]


def test_a_large_object_streams_both_ways_and_in_ranges(client: Client, tmp_path: Any) -> None:
    s3 = client("s3")
    source = tmp_path / "big"
    source.write_bytes(bytes(range(256)) * (20 * 4096))
    s3.upload_file(str(source), "bucket", "big")
    s3.download_file("bucket", "big", str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    part = s3.get_object(Bucket="bucket", Key="big", Range="bytes=1000-1999999")
    assert part["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert part["Body"].read() == source.read_bytes()[1000:2_000_000]


def test_the_other_s3_replies_are_read_by_boto3(client: Client, toy: toys.Toys) -> None:
    s3 = client("s3")
    assert s3.list_buckets()["Buckets"] == [{"Name": "b<1>", "CreationDate": toys.MOMENT}]
    assert s3.get_bucket_location(Bucket="bucket")["LocationConstraint"] == "us-west-2"
    s3.create_bucket(Bucket="new", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    assert toy.seen[-1][1]["CreateBucketConfiguration"] == {"LocationConstraint": "us-west-2"}
    objects = [{"Key": "a&b"}, {"Key": " c "}]
    assert s3.delete_objects(Bucket="bucket", Delete={"Objects": objects})["Deleted"] == objects
    copied = s3.copy_object(Bucket="bucket", Key="to", CopySource={"Bucket": "bucket", "Key": "from x"})
    assert copied["CopyObjectResult"]["ETag"] == '"copied"'
    assert s3.delete_object(Bucket="bucket", Key="x")["ResponseMetadata"]["HTTPStatusCode"] == 204


def test_a_missing_object_is_404_with_and_without_a_body(client: Client) -> None:
    s3 = client("s3")
    with pytest.raises(s3.exceptions.NoSuchKey):
        s3.get_object(Bucket="bucket", Key="absent")
    for call in (lambda: s3.head_object(Bucket="bucket", Key="absent"), lambda: s3.head_bucket(Bucket="absent")):
        with pytest.raises(botocore.exceptions.ClientError) as caught:
            call()
        assert caught.value.response["Error"]["Code"] == "404"


def test_an_upload_that_is_refused_before_its_body_is_read_gets_the_reason(client: Client, tmp_path: Any) -> None:
    s3 = client("s3")
    for body in (b"small", b"x" * 30_000_000):
        with pytest.raises(s3.exceptions.NoSuchBucket):
            s3.put_object(Bucket="absent", Key="k", Body=body)


def test_an_s3_operation_without_a_handler_is_not_implemented(client: Client) -> None:
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        client("s3").get_bucket_policy(Bucket="bucket")
    assert caught.value.response["Error"]["Code"] == "NotImplemented"


@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_presigned_urls_of_both_forms_work_for_get_and_put(client: Client, version: str) -> None:
    s3 = client("s3", signature_version=version)
    with urllib3.PoolManager() as http:
        url = s3.generate_presigned_url("put_object", Params={"Bucket": "bucket", "Key": f"ü {version}"})
        assert http.request("PUT", url, body=b"by url").status == 200
        params = {"Bucket": "bucket", "Key": f"ü {version}", "ResponseContentDisposition": "attachment; x=1"}
        reply = http.request("GET", s3.generate_presigned_url("get_object", Params=params))
        assert (reply.status, reply.data) == (200, b"by url")
        assert reply.headers["content-disposition"] == "attachment; x=1"
        assert http.request("GET", s3.generate_presigned_url("get_object", Params=params) + "x").status in (400, 403)
        assert http.request("DELETE", url).status in (400, 403)


def test_a_header_cannot_be_forged_by_a_query_parameter(client: Client) -> None:
    s3 = client("s3")
    s3.put_object(Bucket="bucket", Key="plain.txt", Body=b"x")
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        s3.get_object(Bucket="bucket", Key="plain.txt", ResponseContentDisposition="x\r\nset-cookie: y=1")
    assert caught.value.response["Error"]["Code"] == "InvalidArgument"
