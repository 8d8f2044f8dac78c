"""Training jobs and tags by boto3: the description of a job in each state, and refusals."""

import io
import tarfile
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.training import FinalMetric, SecondaryStatus, TrainingJob

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
ARN = "arn:aws:sagemaker:us-west-2:000000000000:training-job"
REQUEST: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": ROLE,
    "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "HyperParameters": {"epochs": "2"},
    "Environment": {"NAME": "value"},
}
NOT_FOUND = "Requested resource not found"


@pytest.fixture
def create(sagemaker: Any) -> Any:
    """Return a function that creates a training job by name, with changes of the request."""
    return lambda name="digits", **changes: sagemaker.create_training_job(
        **{**REQUEST, "TrainingJobName": name, **changes}
    )


def entered(status: SecondaryStatus, at_ms: int) -> Any:
    return lambda job: job.enter(status, at_ms=at_ms, message=f"now {status}")


def test_a_new_job_is_described_and_handed_to_its_driver(sagemaker, create, stage):
    assert create()["TrainingJobArn"] == f"{ARN}/digits"
    assert stage.woken == ["digits"]
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    for member in ("AlgorithmSpecification", "RoleArn", "ResourceConfig", "HyperParameters", "Environment"):
        assert found[member] == REQUEST[member]
    assert found["TrainingJobArn"] == f"{ARN}/digits"
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("InProgress", "Starting")
    assert found["OutputDataConfig"] == {"KmsKeyId": "", "S3OutputPath": "s3://data/out"}
    assert found["ModelArtifacts"] == {"S3ModelArtifacts": ""}
    assert found["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert found["EnableNetworkIsolation"] is False
    (transition,) = found["SecondaryStatusTransitions"]
    assert (transition["Status"], transition["StatusMessage"]) == ("Starting", "Starting the training job")
    assert "EndTime" not in transition
    assert not {"TrainingStartTime", "TrainingEndTime", "FailureReason", "FinalMetricDataList"} & set(found)


def test_a_completed_job_shows_its_times_its_model_and_its_metrics(sagemaker, create, stage):
    create()
    began_ms = stage.clock.ms
    stage.change_job("digits", entered(SecondaryStatus.TRAINING, began_ms + 5_000))
    running = sagemaker.describe_training_job(TrainingJobName="digits")
    assert running["TrainingStartTime"] - running["CreationTime"] == timedelta(seconds=5)
    assert "TrainingEndTime" not in running

    def complete(job: TrainingJob) -> TrainingJob:
        ended = job.enter(SecondaryStatus.COMPLETED, at_ms=began_ms + 65_400, message="done")
        metrics = (FinalMetric("loss", 0.25, began_ms + 60_000),)
        return replace(ended, model_artifacts="s3://data/out/model.tar.gz", final_metrics=metrics)

    stage.change_job("digits", complete)
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Completed", "Completed")
    assert found["ModelArtifacts"] == {"S3ModelArtifacts": "s3://data/out/model.tar.gz"}
    assert found["TrainingEndTime"] - found["TrainingStartTime"] == timedelta(seconds=60.4)
    assert (found["TrainingTimeInSeconds"], found["BillableTimeInSeconds"]) == (60, 60)
    (metric,) = found["FinalMetricDataList"]
    assert (metric["MetricName"], metric["Value"]) == ("loss", 0.25)
    starts = [transition["StartTime"] for transition in found["SecondaryStatusTransitions"]]
    ends = [transition["EndTime"] for transition in found["SecondaryStatusTransitions"]]
    assert ends[:-1] == starts[1:]
    (summary,) = sagemaker.list_training_jobs()["TrainingJobSummaries"]
    assert summary["TrainingEndTime"] == found["TrainingEndTime"]


def test_a_failed_job_shows_its_reason_and_no_training_time_if_it_never_trained(sagemaker, create, stage):
    create()

    def fail(job: TrainingJob) -> TrainingJob:
        ended = job.enter(SecondaryStatus.FAILED, at_ms=stage.clock.ms + 1, message="failed")
        return replace(ended, failure_reason="ClientError: no such data")

    stage.change_job("digits", fail)
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    assert (found["TrainingJobStatus"], found["FailureReason"]) == ("Failed", "ClientError: no such data")
    assert not {"TrainingStartTime", "TrainingEndTime", "TrainingTimeInSeconds"} & set(found)


def test_a_job_without_a_limit_shows_the_default_of_a_day(sagemaker, create):
    create(StoppingCondition={})
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    assert found["StoppingCondition"] == {"MaxRuntimeInSeconds": 86400}


def test_a_taken_name_is_in_use(create, stage, refusal):
    create()
    status, code, message = refusal(create)
    assert (status, code) == (400, "ResourceInUse")
    assert "'digits'" in message
    assert stage.woken == ["digits"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"OutputDataConfig": {"S3OutputPath": "s3://missing/out"}}, "'missing' does not exist"),
        ({"OutputDataConfig": {"S3OutputPath": "https://data/out"}}, "s3OutputPath"),
        ({"TrainingJobName": "two words"}, "trainingJobName"),
        ({"TrainingJobName": "x" * 64}, "trainingJobName"),
        ({"Tags": [{"Key": "k", "Value": "1"}, {"Key": "k", "Value": "2"}]}, "'k' at 'tags'"),
        ({"ResourceConfig": {"InstanceCount": 1, "VolumeSizeInGB": 1}}, "resourceConfig.instanceType"),
    ],
)
def test_a_job_that_cannot_run_is_refused_and_not_kept(sagemaker, create, stage, refusal, changes, named):
    status, code, message = refusal(create, **{"name": "digits", **changes})
    assert (status, code) == (400, "ValidationException")
    assert named in message
    assert sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    assert stage.woken == []


def test_a_stop_is_asked_for_once_and_not_of_a_job_that_has_ended(sagemaker, create, stage, refusal):
    create()
    for _ in range(2):
        sagemaker.stop_training_job(TrainingJobName="digits")
        found = sagemaker.describe_training_job(TrainingJobName="digits")
        assert (found["TrainingJobStatus"], found["SecondaryStatus"]) == ("Stopping", "Stopping")
        assert len(found["SecondaryStatusTransitions"]) == 2
    assert stage.woken == ["digits"] * 3
    stage.change_job("digits", entered(SecondaryStatus.STOPPED, stage.clock.ms))
    status, code, message = refusal(sagemaker.stop_training_job, TrainingJobName="digits")
    assert (status, code) == (400, "ValidationException")
    assert "is in status Stopped" in message


def test_a_job_that_is_not_there_is_not_found(sagemaker, refusal):
    for call in (sagemaker.describe_training_job, sagemaker.stop_training_job):
        status, code, message = refusal(call, TrainingJobName="none")
        assert (status, code) == (400, "ValidationException")
        assert message.startswith(NOT_FOUND)


@pytest.mark.parametrize(
    "members",
    [
        {"WarmPoolStatusEquals": "Available"},
        {"TrainingPlanArnEquals": "arn:aws:sagemaker:us-west-2:000000000000:training-plan/plan"},
    ],
)
def test_filters_that_no_job_passes_find_none(sagemaker, create, members):
    create()
    assert sagemaker.list_training_jobs(**members)["TrainingJobSummaries"] == []


# Tags


def tags_of(sagemaker: Any) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in sagemaker.list_tags(ResourceArn=f"{ARN}/digits")["Tags"]}


def test_tags_are_given_at_creation_added_replaced_and_removed(sagemaker, create):
    create(Tags=[{"Key": "team", "Value": "vision"}, {"Key": "empty", "Value": ""}])
    assert tags_of(sagemaker) == {"team": "vision", "empty": ""}
    added = sagemaker.add_tags(ResourceArn=f"{ARN}/digits", Tags=[{"Key": "team", "Value": "speech"}])
    assert {tag["Key"]: tag["Value"] for tag in added["Tags"]} == {"team": "speech", "empty": ""}
    sagemaker.delete_tags(ResourceArn=f"{ARN}/digits", TagKeys=["empty", "unknown"])
    assert tags_of(sagemaker) == {"team": "speech"}


def test_a_resource_has_at_most_fifty_tags(sagemaker, create, refusal):
    create(Tags=[{"Key": f"k{number}", "Value": "v"} for number in range(50)])
    more = {"ResourceArn": f"{ARN}/digits", "Tags": [{"Key": "one", "Value": "more"}]}
    status, code, message = refusal(sagemaker.add_tags, **more)
    assert (status, code) == (400, "ValidationException")
    assert "at most 50" in message
    assert len(tags_of(sagemaker)) == 50


@pytest.mark.parametrize(
    ("arn", "message"),
    [
        (f"{ARN}/none", NOT_FOUND),
        ("arn:aws:sagemaker:us-west-2:000000000000:model/none", "Could not find model"),
        ("arn:aws:sagemaker:us-west-2:000000000000:endpoint-config/none", "Could not find endpoint configuration"),
        ("arn:aws:sagemaker:us-west-2:000000000000:endpoint/none", "Could not find endpoint"),
        ("arn:aws:sagemaker:us-west-2:000000000000:notebook-instance/n", "kinds with tags are artifact"),
    ],
)
def test_tags_of_a_missing_resource_are_refused(sagemaker, refusal, arn, message):
    for call, members in (
        (sagemaker.list_tags, {}),
        (sagemaker.add_tags, {"Tags": [{"Key": "k", "Value": "v"}]}),
        (sagemaker.delete_tags, {"TagKeys": ["k"]}),
    ):
        found = refusal(call, ResourceArn=arn, **members)
        assert found[:2] == (400, "ValidationException")
        assert message in found[2]


def test_keys_without_any_right_are_refused(restricted, create, refusal):
    create()
    found = refusal(restricted("sagemaker").describe_training_job, TrainingJobName="digits")
    assert found[:2] == (400, "AccessDeniedException")
    assert "sagemaker:DescribeTrainingJob" in found[2]


def test_operations_that_there_are_not_are_unknown(sagemaker, refusal):
    status, code, message = refusal(sagemaker.describe_notebook_instance, NotebookInstanceName="n")
    assert (status, code) == (400, "UnknownOperationException")
    assert "DescribeNotebookInstance" in message


RULES = [{"RuleConfigurationName": "Loss", "RuleEvaluatorImage": "image", "RuleParameters": {"patience": "3"}}]


def test_rules_are_shown_as_not_evaluated(sagemaker, create):
    create(DebugRuleConfigurations=RULES, ProfilerRuleConfigurations=[{**RULES[0], "RuleConfigurationName": "Slow"}])
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    assert found["DebugRuleConfigurations"] == RULES
    for member, name in (("DebugRuleEvaluationStatuses", "Loss"), ("ProfilerRuleEvaluationStatuses", "Slow")):
        (status,) = found[member]
        assert (status["RuleConfigurationName"], status["RuleEvaluationStatus"]) == (name, "Stopped")
        assert "not evaluated" in status["StatusDetails"]


def test_an_ended_job_is_deleted_and_its_name_is_free(sagemaker, create, stage, refusal):
    arn = create(Tags=[{"Key": "team", "Value": "a"}])["TrainingJobArn"]
    status, code, message = refusal(sagemaker.delete_training_job, TrainingJobName="digits")
    assert (status, code) == (400, "ResourceInUse")
    assert "it is in status InProgress" in message
    stage.change_job("digits", entered(SecondaryStatus.STOPPING, stage.clock.ms))
    assert refusal(sagemaker.delete_training_job, TrainingJobName="digits")[1] == "ResourceInUse"
    stage.change_job("digits", entered(SecondaryStatus.STOPPED, stage.clock.ms))
    sagemaker.delete_training_job(TrainingJobName="digits")
    assert NOT_FOUND in refusal(sagemaker.describe_training_job, TrainingJobName="digits")[2]
    assert sagemaker.list_training_jobs()["TrainingJobSummaries"] == []
    status, code, message = refusal(sagemaker.delete_training_job, TrainingJobName="digits")
    assert (status, code, NOT_FOUND in message) == (400, "ResourceNotFound", True)
    assert create()["TrainingJobArn"] == arn
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == []


def test_an_update_changes_what_is_recorded_of_the_profiler_and_the_warm_pool(sagemaker, create, stage, refusal):
    create(ProfilerConfig={"S3OutputPath": "s3://data/profile", "ProfilingIntervalInMilliseconds": 500})
    update = {"TrainingJobName": "digits", "ProfilerRuleConfigurations": RULES}
    reply = sagemaker.update_training_job(ProfilerConfig={"DisableProfiler": True}, **update)
    assert reply["TrainingJobArn"] == f"{ARN}/digits"
    found = sagemaker.describe_training_job(TrainingJobName="digits")
    assert found["ProfilerConfig"] == {
        "S3OutputPath": "s3://data/profile",
        "ProfilingIntervalInMilliseconds": 500,
        "DisableProfiler": True,
    }
    assert found["ProfilerRuleConfigurations"] == RULES
    stage.change_job("digits", entered(SecondaryStatus.COMPLETED, stage.clock.ms))
    assert "it is in status Completed" in refusal(sagemaker.update_training_job, **update)[2]
    sagemaker.update_training_job(TrainingJobName="digits", ResourceConfig={"KeepAlivePeriodInSeconds": 60})
    resources = sagemaker.describe_training_job(TrainingJobName="digits")["ResourceConfig"]
    assert resources == {**REQUEST["ResourceConfig"], "KeepAlivePeriodInSeconds": 60}
    remote = {"RemoteDebugConfig": {"EnableRemoteDebug": True}}
    assert "no remote shell" in refusal(sagemaker.update_training_job, TrainingJobName="digits", **remote)[2]
    absent = refusal(sagemaker.update_training_job, TrainingJobName="absent")
    assert (absent[1], NOT_FOUND in absent[2]) == ("ResourceNotFound", True)


def with_image(uri: str) -> dict[str, Any]:
    return {"AlgorithmSpecification": {"TrainingImage": uri, "TrainingInputMode": "File"}}


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("763104351884.dkr.ecr.us-west-2.amazonaws.com/mxnet-training:1.9.0-cpu-py38", "an image of MXNet"),
        ("tensorflow-training:9.9-cpu-py3", "there is no TensorFlow 9.9 here; the newest is 2.21"),
    ],
)
def test_an_image_that_cannot_run_is_refused_for_jobs_and_models(sagemaker, create, uri, text):
    for call in (
        lambda: create(**with_image(uri)),
        lambda: sagemaker.create_model(
            ModelName="m", ExecutionRoleArn=ROLE, PrimaryContainer={"Image": uri, "ModelDataUrl": "s3://data/m.tar.gz"}
        ),
    ):
        with pytest.raises(ClientError, match=text):
            call()


def test_a_script_of_legacy_mode_is_refused_unless_the_image_asks_for_a_python(create, door, objects):
    source = b"def model_fn(f, l, m, p):\n    pass\n\ndef train_input_fn(d, p):\n    pass\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("train.py")
        member.size = len(source)
        tar.addfile(member, io.BytesIO(source))
    door.run(objects.put_bytes("data", "code/sourcedir.tar.gz", packed.getvalue()))
    code = {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"s3://data/code/sourcedir.tar.gz"'}
    with pytest.raises(ClientError, match=r"train.py is a script of legacy mode.*script mode"):
        create(HyperParameters=code, **with_image("tensorflow-training:1.12.0-cpu"))
    assert create(HyperParameters=code, **with_image("tensorflow-training:1.12.0-cpu-py3"))


def test_drivers_of_sdk_v3_for_torchrun_are_refused_and_others_run(create, door, objects):
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/team/sm_drivers"}}
    sent = {"InputDataConfig": [{"ChannelName": "sm_drivers", "DataSource": source}]}
    calls = "$SM_PYTHON_CMD /opt/ml/input/data/sm_drivers/distributed_drivers/{}_driver.py\n"
    for kind in ("mpi", "torchrun"):
        main = calls.format(kind).encode()
        door.run(objects.put_bytes("data", "team/sm_drivers/sm_train.sh", main))
        if kind == "mpi":
            assert create(**sent)
    with pytest.raises(ClientError, match=r"inputDataConfig\.1\..*distributed=Torchrun\(\): torchrun.*use MPI"):
        create(**sent)


@pytest.mark.parametrize("kind", ["torchrun", "mpirun"])
def test_a_remote_function_of_several_processes_is_refused(create, kind):
    main = "/opt/ml/input/data/sagemaker_remote_function_bootstrap/job_driver.sh"
    specification = with_image("tensorflow-training:2.21.0-cpu-py311")["AlgorithmSpecification"]
    command = {"ContainerEntrypoint": ["/bin/bash", main], "ContainerArguments": ["--region", "us-west-2"]}
    assert create(AlgorithmSpecification=specification | command)
    command["ContainerArguments"] += ["--distribution", kind]
    with pytest.raises(ClientError, match=rf"algorithmSpecification\.containerArguments.*use_{kind}: "):
        create(AlgorithmSpecification=specification | command)
