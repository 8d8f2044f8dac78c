"""The policy of a role, the prefixes of a job, and the effect of the built-in policy on them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tidemill.core.job_scope import JobScope
from tidemill.core.names import role_name
from tidemill.core.policy import IamPolicy, Permission, Ruling
from tidemill.core.roles import BUILT_IN, Roles


def scope(output: str = "s3://bkt/out", *, model_dir: str | None = None, checkpoints: str | None = None) -> JobScope:
    request: dict[str, Any] = {"TrainingJobName": "job-1", "OutputDataConfig": {"S3OutputPath": output}}
    if model_dir is not None:
        request["HyperParameters"] = {"model_dir": model_dir}
    if checkpoints is not None:
        request["CheckpointConfig"] = {"S3Uri": checkpoints}
    return JobScope.of_request(request)


def may(action: str, resource: str, own: JobScope) -> bool:
    return Roles({}).rule("SageMakerRole", Permission(action, resource), own) is Ruling.ALLOWED


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("Limited", "Limited"),
        ("arn:aws:iam::000000000000:role/Limited", "Limited"),
        ("arn:aws:iam::000000000000:role/a/path/Limited", "Limited"),
        ("arn:aws:iam::000000000000:roleLimited", "Limited"),
        ("arn:aws:iam::000000000000:role/Limited/", "Limited"),
        ("roleless", "roleless"),
        ("service-role/Limited", "Limited"),
    ],
)
def test_a_role_is_known_by_its_name(role: str, name: str) -> None:
    assert role_name(role) == name


def test_a_role_without_a_policy_has_the_built_in_one() -> None:
    nothing = IamPolicy(())
    roles = Roles({"Limited": nothing})
    assert (roles.policy_of("Limited"), roles.policy_of("LIMITED")) == (nothing, nothing)
    assert (roles.policy_of("Limited2"), roles.policy_of("")) == (BUILT_IN, BUILT_IN)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("s3://bkt/out", "bkt/out/job-1"),
        ("s3://bkt/out/", "bkt/out/job-1"),
        ("s3://bkt", "bkt/job-1"),
        ("s3://bkt/", "bkt/job-1"),
        ("s3://bkt//out", "bkt//out/job-1"),
    ],
)
def test_the_own_output_is_where_the_service_stores_the_model(output: str, expected: str) -> None:
    assert scope(output).output == expected


@pytest.mark.parametrize(
    ("model_dir", "expected"),
    [
        ("s3://bkt/models/a", "bkt/models/a"),
        (json.dumps("s3://bkt/models/a"), "bkt/models/a"),
        ("s3://bkt/models/a/", "bkt/models/a"),
        ("s3://bkt/models/a//", "bkt/models/a/"),
        ("/opt/ml/model", None),
        ("s3://bkt", None),
        ("s3://bkt/", None),
        ("s3://B_not_a_bucket/x", None),
        ("s3:/b/x", None),
        ("7", None),
        ("null", None),
    ],
)
def test_a_model_dir_is_own_if_it_is_a_prefix_in_s3(model_dir: str, expected: str | None) -> None:
    assert scope(model_dir=model_dir).model_dir == expected
    assert scope(checkpoints=model_dir.strip('"')).checkpoints == expected


def test_places_of_files_that_are_uploaded_while_a_job_runs_are_its_own() -> None:
    request = {
        "TrainingJobName": "job-1",
        "TensorBoardOutputConfig": {"S3OutputPath": "s3://bkt/boards/"},
        "HyperParameters": {"sagemaker_s3_output": '"s3://bkt"'},
    }
    assert JobScope.of_request(request).tensorboard == "bkt/boards/job-1"
    assert JobScope.of_request(request).intermediate == "bkt/job-1"


def test_a_stored_scope_ignores_rights_of_a_newer_version() -> None:
    own = scope(model_dir="s3://bkt/m", checkpoints="s3://bkt/c")
    assert JobScope.from_document(json.loads(json.dumps(own.to_document()))) == own
    assert JobScope.from_document({"name": "job-1", "everything": "b"}) == JobScope(name="job-1")


OWN = [
    "arn:aws:s3:::bkt/out/job-1/output/model.tar.gz",
    "arn:aws:s3:::bkt/out/job-1/",
    "arn:aws:s3:::bkt/out/shared",
    "arn:aws:s3:::bkt/out/job-1//x",
    "arn:aws:s3:::bkt/models/m/x",
    "arn:aws:s3:::bkt/checkpoints/c/x",
    "arn:aws:s3:::bkt/boards/job-1/tensorboard-output/x",
    "arn:aws:s3:::bkt/parts/job-1/output/intermediate/x",
    # Keys are not paths: this is an object of its own, although it looks like a path to another one.
    "arn:aws:s3:::bkt/out/job-1/../job-10/output/model.tar.gz",
]
FOREIGN = [
    "arn:aws:s3:::bkt/out",
    "arn:aws:s3:::bkt/out2/job-1/x",
    "arn:aws:s3:::bkt/Out/job-1/x",
    "arn:aws:s3:::bkt//out/job-1/x",
    "arn:aws:s3:::bkt/./out/job-1/x",
    "arn:aws:s3:::bkt/other/../out/job-1/x",
    "arn:aws:s3:::bkt/out%2Fjob-1/x",
    "arn:aws:s3:::data/sagemaker/x",
    "arn:aws:s3:::data/s3:::sagemaker-1/x",
    "arn:aws:s3:::sagemaker",
    "arn:aws:s3:::Sagemaker/x",
    "arn:aws:s3:::bkt/job-1/x",
    "arn:aws:s3:::bkt2/out/job-1/x",
    "arn:aws:s3:::bkt/models/m2/x",
    "arn:aws:s3:::bkt/models/m",
    "arn:aws:s3:::bkt/checkpoints/c",
    "arn:aws:s3:::bkt/boards/x",
    "arn:aws:s3:::bkt/parts/job-10/x",
    "arn:aws:s3:::bkt",
    "arn:aws:s3:::bkt/",
]


@pytest.mark.parametrize("action", ["PutObject", "PutObjectTagging", "DeleteObject", "AbortMultipartUpload"])
def test_a_job_writes_below_its_own_prefixes_and_nowhere_else(action: str) -> None:
    own = replace(
        scope(model_dir="s3://bkt/models/m", checkpoints="s3://bkt/checkpoints/c"),
        tensorboard="bkt/boards/job-1",
        intermediate="bkt/parts/job-1",
    )
    assert [resource for resource in OWN if not may(f"s3:{action}", resource, own)] == []
    assert [resource for resource in FOREIGN if may(f"s3:{action}", resource, own)] == []


def test_a_job_reads_every_object_and_does_nothing_else_to_buckets() -> None:
    own = scope()
    for action in ("GetObject", "GetObjectTagging", "GetObjectVersion"):
        assert may(f"s3:{action}", "arn:aws:s3:::any/key", own)
    assert may("s3:ListBucket", "arn:aws:s3:::any", own)
    assert may("s3:GetBucketLocation", "arn:aws:s3:::any", own)
    for action in ("CreateBucket", "DeleteBucket", "ListBucketMultipartUploads"):
        assert not may(f"s3:{action}", "arn:aws:s3:::bkt", own)
    assert may("s3:ListAllMyBuckets", "arn:aws:s3:::*", own)


@pytest.mark.parametrize("bucket", ["sagemaker-us-west-2-000000000000", "my-sagemaker", "sagemaker"])
def test_a_job_writes_in_buckets_with_sagemaker_in_their_names(bucket: str) -> None:
    own = scope()
    for action in ("PutObject", "PutObjectTagging", "DeleteObject", "AbortMultipartUpload"):
        assert may(f"s3:{action}", f"arn:aws:s3:::{bucket}/my/artifact.txt", own)
    assert may("s3:CreateBucket", f"arn:aws:s3:::{bucket}", own)
    for action in ("DeleteBucket", "ListBucketMultipartUploads"):
        assert not may(f"s3:{action}", f"arn:aws:s3:::{bucket}", own)


def test_a_job_describes_itself_and_reads_its_own_log() -> None:
    own = scope()
    job = "arn:aws:sagemaker:us-west-2:000000000000:training-job/job-1"
    streams = "arn:aws:logs:us-west-2:000000000000:log-group:/aws/sagemaker/TrainingJobs:log-stream:"
    assert may("sagemaker:DescribeTrainingJob", job, own)
    assert may("sagemaker:ListTags", job, own)
    assert may("logs:GetLogEvents", f"{streams}job-1/algo-1-1", own)
    assert may("logs:DescribeLogStreams", f"{streams}job-1/", own)
    assert may("kms:DescribeKey", "arn:aws:kms:us-west-2:000000000000:key/k", own)
    assert may("kms:ListAliases", "*", own)
    assert not may("kms:CreateKey", "*", own)
    for other in (f"{job}0", job[:-1], f"{job}/x", job.replace("training-job", "model"), f"{job}:training-job/job-2"):
        assert not may("sagemaker:DescribeTrainingJob", other, own)
    for stream in ("", "job-1", "job-10/algo-1-1", "job", "JOB-1/algo-1-1"):
        assert not may("logs:DescribeLogStreams", f"{streams}{stream}", own)
    for action in ("AddTags", "StopTrainingJob", "CreateTrainingJob"):
        assert not may(f"sagemaker:{action}", job, own)


def test_an_endpoint_describes_itself_and_not_the_job_of_its_name() -> None:
    capture = {"DestinationS3Uri": "s3://bkt/captured"}
    asynchronous = {"OutputConfig": {"S3OutputPath": "s3://bkt/results/", "S3FailurePath": "s3://bkt/failed"}}
    own = JobScope.of_endpoint("job-1", capture=capture, asynchronous=asynchronous)
    arn = "arn:aws:sagemaker:us-west-2:000000000000"
    assert may("sagemaker:DescribeEndpoint", f"{arn}:endpoint/job-1", own)
    assert not may("sagemaker:DescribeTrainingJob", f"{arn}:training-job/job-1", own)
    groups = "arn:aws:logs:us-west-2:000000000000:log-group:/aws/sagemaker"
    assert may("logs:GetLogEvents", f"{groups}/Endpoints/job-1:log-stream:AllTraffic/i-1", own)
    for other in (
        "TrainingJobs:log-stream:job-1/algo-1",
        "Endpoints/job-10:log-stream:x",
        "Endpoints/job:log-stream:x",
    ):
        assert not may("logs:GetLogEvents", f"{groups}/{other}", own)
    for prefix in ("captured", "results", "failed"):
        assert may("s3:PutObject", f"arn:aws:s3:::bkt/{prefix}/x", own)
        assert not may("s3:PutObject", f"arn:aws:s3:::bkt/{prefix}2/x", own)
    assert JobScope.from_document(json.loads(json.dumps(own.to_document()))) == own


def test_a_job_named_like_a_pattern_owns_no_more() -> None:
    # No name or URI like this gets so far, and even then it would be compared literally.
    own = JobScope(name="*", output="bkt/*", model_dir="bkt/${job.name}")
    assert not may("s3:PutObject", "arn:aws:s3:::bkt/x/y", own)
    assert not may("sagemaker:DescribeTrainingJob", "arn:aws:sagemaker:r:a:training-job/x", own)


def test_a_processing_job_owns_each_of_its_outputs_and_nothing_beside_them() -> None:
    targets = ("s3://bkt/a/train", "s3://bkt/a/train/deep/", "s3://other/test", "s3://whole")
    outputs = [{"OutputName": uri, "S3Output": {"S3Uri": uri}} for uri in targets]
    own = JobScope.of_processing({"ProcessingJobName": "job-1", "ProcessingOutputConfig": {"Outputs": outputs}})
    assert JobScope.from_document(json.loads(json.dumps(own.to_document()))) == own
    assert own.publisher == "processing-job/job-1"
    for place in ("bkt/a/train/x", "bkt/a/train/deep/x", "other/test/x"):
        assert may("s3:PutObject", f"arn:aws:s3:::{place}", own)
        assert own.owns(*place.split("/", 1))
    for place in ("bkt/a/trained/x", "bkt/a/x", "other/x", "whole/x"):
        assert not may("s3:PutObject", f"arn:aws:s3:::{place}", own)
        assert not own.owns(*place.split("/", 1))
    assert may("sagemaker:DescribeProcessingJob", "arn:aws:sagemaker:us-west-2:0:processing-job/job-1", own)
    assert not may("sagemaker:DescribeProcessingJob", "arn:aws:sagemaker:us-west-2:0:processing-job/job-2", own)
