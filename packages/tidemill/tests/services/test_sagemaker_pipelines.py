"""Pipelines by boto3, with their driver; the tests end the jobs that it creates."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from polling import poll
from tidemill.core.hosting import EndpointStatus
from tidemill.core.policy_document import read_policy
from tidemill.core.roles import Roles
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.errors import ServiceUnavailable
from tidemill.wire.signing.credentials import Credential

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
ARN = "arn:aws:sagemaker:us-west-2:000000000000"
TOKEN = "0123456789abcdef0123456789abcdef"
TRAINING: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": ROLE,
    "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
MODEL_DATA = {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}
CACHED = {"CacheConfig": {"Enabled": True, "ExpireAfter": "PT1H"}}


def train(name: str = "Train", arguments: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    return {"Name": name, "Type": "Training", "Arguments": {**TRAINING, **(arguments or {})}, **members}


def model(name: str = "Model", **members: Any) -> dict[str, Any]:
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": MODEL_DATA}
    arguments = {"ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    return {"Name": name, "Type": "Model", "Arguments": arguments, **members}


def definition(*steps: dict[str, Any], **members: Any) -> str:
    return json.dumps({"Version": "2020-12-01", "Metadata": {}, "Steps": list(steps), **members})


class Pipeline:
    """The pipeline ``p`` of one test, and the jobs of its executions."""

    def __init__(self, sagemaker: Any, stage: Any) -> None:
        self.sagemaker = sagemaker
        self._stage = stage

    def create(self, *steps: dict[str, Any], parallel: int | None = None, **members: Any) -> str:
        parallelism = {} if parallel is None else {"ParallelismConfiguration": {"MaxParallelExecutionSteps": parallel}}
        created = self.sagemaker.create_pipeline(
            PipelineName="p", PipelineDefinition=definition(*steps, **members), RoleArn=ROLE, **parallelism
        )
        return str(created["PipelineArn"])

    def start(self, **members: Any) -> str:
        started = self.sagemaker.start_pipeline_execution(PipelineName="p", **members)
        return str(started["PipelineExecutionArn"])

    def describe(self, arn: str) -> dict[str, Any]:
        return self.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)

    def steps(self, arn: str) -> dict[str, dict[str, Any]]:
        found = self.sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn, SortOrder="Ascending")
        return {each["StepName"]: each for each in found["PipelineExecutionSteps"]}

    def statuses(self, arn: str) -> dict[str, str]:
        return {name: each["StepStatus"] for name, each in self.steps(arn).items()}

    def wait(self, arn: str, status: str) -> dict[str, Any]:
        self.wait_until(lambda: self.describe(arn)["PipelineExecutionStatus"] == status, lambda: self.describe(arn))
        return self.describe(arn)

    def wait_for_steps(self, arn: str, **statuses: str) -> None:
        self.wait_until(lambda: self.statuses(arn) == statuses, lambda: self.statuses(arn))

    def job(self, arn: str, step: str) -> str:
        """Return the name of the training job of a step, once it is created."""
        self.wait_until(lambda: "Metadata" in self.steps(arn).get(step, {}), lambda: self.steps(arn))
        return str(self.steps(arn)[step]["Metadata"]["TrainingJob"]["Arn"].partition("/")[2])

    def end(self, arn: str, step: str, status: SecondaryStatus = SecondaryStatus.COMPLETED, reason: str = "") -> None:
        """End the training job of a step, as its driver would."""

        def ended(job: TrainingJob) -> TrainingJob:
            at_ms = self._stage.clock.ms
            end = replace(job.enter(status, at_ms=at_ms, message=""), failure_reason=reason, ended_ms=at_ms)
            return replace(end, model_artifacts=f"s3://data/out/{job.name}/output/model.tar.gz")

        self._stage.change_job(self.job(arn, step), ended)

    def wait_until(self, condition: Callable[[], object], state: Callable[[], object]) -> None:
        poll(condition, state)


@pytest.fixture
def pipeline(sagemaker: Any, stage: Any, door: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipeline]:
    # The tests end jobs without their drivers, which would report it.
    monkeypatch.setattr("tidemill.control.pipelines.driver._LOOK_S", 0.05)
    door.run(stage.pipeline_driver.start(stage.step_requests))
    yield Pipeline(sagemaker, stage)


def test_a_pipeline_is_created_once_updated_by_versions_listed_tagged_and_deleted(sagemaker: Any, stage: Any) -> None:
    first, second = definition(train()), definition(train("Again"))
    members = {"PipelineName": "p", "RoleArn": ROLE, "PipelineDescription": "about", "ClientRequestToken": TOKEN}
    tags = [{"Key": "team", "Value": "tides"}]
    for _ in range(2):  # the second has the same token
        created = sagemaker.create_pipeline(**members, PipelineDefinition=first, Tags=tags)
        assert created["PipelineArn"] == f"{ARN}:pipeline/p"
    with pytest.raises(ClientError) as caught:
        sagemaker.create_pipeline(**{**members, "ClientRequestToken": TOKEN[::-1]}, PipelineDefinition=first)
    # AWS's SDK looks for both in upsert.
    assert caught.value.response["Error"]["Code"] == "ValidationException"
    assert "already exists" in caught.value.response["Error"]["Message"]
    assert sagemaker.list_tags(ResourceArn=created["PipelineArn"])["Tags"] == tags
    assert sagemaker.update_pipeline(PipelineName="p", PipelineDefinition=first)["PipelineVersionId"] == 1
    assert sagemaker.update_pipeline(PipelineName="p", PipelineDefinition=second)["PipelineVersionId"] == 2
    found = sagemaker.describe_pipeline(PipelineName=created["PipelineArn"])
    assert (found["PipelineDefinition"], found["PipelineDescription"], found["RoleArn"]) == (second, "about", ROLE)
    assert sagemaker.describe_pipeline(PipelineName="p", PipelineVersionId=1)["PipelineDefinition"] == first
    versions = sagemaker.list_pipeline_versions(PipelineName="p", SortOrder="Ascending")["PipelineVersionSummaries"]
    assert [each["PipelineVersionId"] for each in versions] == [1, 2]
    sagemaker.create_pipeline(PipelineName="other-p", PipelineDefinition=first, RoleArn=ROLE)
    [listed] = sagemaker.list_pipelines(PipelineNamePrefix="p")["PipelineSummaries"]
    assert (listed["PipelineName"], listed["PipelineDescription"]) == ("p", "about")
    assert sagemaker.delete_pipeline(PipelineName="p")["PipelineArn"] == created["PipelineArn"]
    for call in (sagemaker.describe_pipeline, sagemaker.list_pipeline_versions, sagemaker.delete_pipeline):
        with pytest.raises(sagemaker.exceptions.ResourceNotFound, match="Pipeline 'p' does not exist"):
            call(PipelineName="p")


def test_a_definition_is_read_from_s3_and_refused_like_one_in_the_request(
    sagemaker: Any, clients: Callable[..., Any]
) -> None:
    place = {"Bucket": "data", "ObjectKey": "definition.json"}
    members = {"PipelineName": "p", "RoleArn": ROLE, "PipelineDefinitionS3Location": place}
    clients("s3").put_object(Bucket="data", Key="definition.json", Body=definition(train()).encode())
    sagemaker.create_pipeline(**members)
    assert sagemaker.describe_pipeline(PipelineName="p")["PipelineDefinition"] == definition(train())
    clients("s3").put_object(Bucket="data", Key="definition.json", Body=definition(train(kind="x")).encode())
    for changes, reason in (
        ({}, "members here are Name, Type, Arguments"),
        ({"PipelineDefinitionS3Location": {**place, "ObjectKey": "none"}}, "there is no such object"),
        ({"PipelineDefinition": definition(train())}, "are given; give one of them"),
    ):
        with pytest.raises(ClientError, match=reason):
            sagemaker.update_pipeline(**{**members, **changes})
    with pytest.raises(ClientError, match="Neither PipelineDefinition nor"):
        sagemaker.create_pipeline(PipelineName="q", RoleArn=ROLE)


def test_steps_get_parameters_properties_and_tags_and_end_with_their_jobs(pipeline: Pipeline, sagemaker: Any) -> None:
    environment = {"TRIAL": {"Get": "Execution.PipelineExecutionId"}, "OWN": {"Get": "Execution.TrainingJobName"}}
    # A number becomes a text where SageMaker has texts; AWS's SDK v2 joins it, v3 does not.
    number = {"Get": "Parameters.Epochs"}
    epochs = {"epochs": {"Std:Join": {"On": "", "Values": [number]}}, "steps": number}
    pipeline.create(
        model(),
        train(arguments={"HyperParameters": epochs, "Environment": environment}, DisplayName="the training"),
        Parameters=[{"Name": "Epochs", "Type": "Integer", "DefaultValue": 3}],
        PipelineExperimentConfig={"ExperimentName": {"Get": "Execution.PipelineName"}, "TrialName": "t"},
        MlflowConfig=None,
    )
    parameters = [{"Name": "Epochs", "Value": "7"}]
    arn = pipeline.start(PipelineParameters=parameters, PipelineExecutionDisplayName="x", ClientRequestToken=TOKEN)
    assert pipeline.start(ClientRequestToken=TOKEN) == arn
    name, execution_id = pipeline.job(arn, "Train"), arn.rpartition("/")[2]
    assert name.startswith(f"pipelines-{execution_id}-Train-")
    job = sagemaker.describe_training_job(TrainingJobName=name)
    assert job["HyperParameters"] == {"epochs": "7", "steps": "7"}
    assert job["Environment"] == {"TRIAL": execution_id, "OWN": name}
    assert job["ExperimentConfig"] == {"ExperimentName": "p", "TrialName": "t"}
    assert sagemaker.describe_trial(TrialName="t")["ExperimentName"] == "p"
    tags = {each["Key"]: each["Value"] for each in sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]}
    assert tags["sagemaker:pipeline-execution-arn"] == arn
    with pytest.raises(sagemaker.exceptions.ConflictException, match="is Executing; stop it"):
        sagemaker.delete_pipeline(PipelineName="p")
    pipeline.end(arn, "Train")
    found = pipeline.wait(arn, "Succeeded")
    assert found["PipelineExperimentConfig"] == {"ExperimentName": "p", "TrialName": "t"}
    steps = pipeline.steps(arn)
    first = sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn, MaxResults=1)
    assert [each["StepName"] for each in first["PipelineExecutionSteps"]] == ["Model"]
    rest = {"PipelineExecutionArn": arn, "NextToken": first["NextToken"]}
    assert [each["StepName"] for each in sagemaker.list_pipeline_execution_steps(**rest)["PipelineExecutionSteps"]] == [
        "Train"
    ]
    with pytest.raises(ClientError, match="not the token of an earlier page of the same list"):
        sagemaker.list_pipeline_execution_steps(**rest, SortOrder="Ascending")
    assert steps["Train"]["StepDisplayName"] == "the training"
    created = steps["Model"]["Metadata"]["Model"]["Arn"].rpartition("/")[2]
    container = sagemaker.describe_model(ModelName=created)["PrimaryContainer"]
    assert container["ModelDataUrl"] == f"s3://data/out/{name}/output/model.tar.gz"
    listed = sagemaker.list_pipeline_parameters_for_execution(PipelineExecutionArn=arn)["PipelineParameters"]
    assert listed == parameters
    [summary] = sagemaker.list_pipeline_executions(PipelineName="p")["PipelineExecutionSummaries"]
    assert (summary["PipelineExecutionArn"], summary["PipelineExecutionDisplayName"]) == (arn, "x")
    text = sagemaker.describe_pipeline_definition_for_execution(PipelineExecutionArn=arn)["PipelineDefinition"]
    assert text == sagemaker.describe_pipeline(PipelineName="p")["PipelineDefinition"]
    sagemaker.delete_pipeline(PipelineName="p")
    with pytest.raises(sagemaker.exceptions.ResourceNotFound):
        pipeline.describe(arn)
    assert sagemaker.describe_model(ModelName=created)


def test_only_the_branch_of_the_outcome_runs_and_nothing_that_needs_the_other(pipeline: Pipeline) -> None:
    enough = {"Type": "GreaterThan", "LeftValue": {"Get": "Parameters.Accuracy"}, "RightValue": 0.9}
    message = {"Std:Join": {"On": " ", "Values": ["accuracy is", {"Get": "Parameters.Accuracy"}]}}
    branches = {
        "IfSteps": [train("Good")],
        "ElseSteps": [{"Name": "Bad", "Type": "Fail", "Arguments": {"ErrorMessage": message}}],
    }
    pipeline.create(
        {"Name": "Check", "Type": "Condition", "Arguments": {"Conditions": [enough], **branches}},
        train("After", DependsOn=["Good"]),
        Parameters=[{"Name": "Accuracy", "Type": "Float", "DefaultValue": 0.5}],
    )
    failed = pipeline.wait(pipeline.start(), "Failed")
    assert failed["FailureReason"] == "The step 'Bad' failed: accuracy is 0.5"
    arn = failed["PipelineExecutionArn"]
    assert pipeline.statuses(arn) == {"Check": "Succeeded", "Bad": "Failed"}
    steps = pipeline.steps(arn)
    assert steps["Check"]["Metadata"] == {"Condition": {"Outcome": "False"}}
    assert steps["Bad"]["Metadata"] == {"Fail": {"ErrorMessage": "accuracy is 0.5"}}
    arn = pipeline.start(PipelineParameters=[{"Name": "Accuracy", "Value": "0.95"}])
    for name in ("Good", "After"):
        pipeline.end(arn, name)
    pipeline.wait(arn, "Succeeded")
    assert list(pipeline.statuses(arn)) == ["Check", "Good", "After"]


def test_branches_run_side_by_side_up_to_the_limit_and_a_failure_lets_them_end(pipeline: Pipeline) -> None:
    pipeline.create(train("A"), train("B"), train("C"), train("After", DependsOn=["A"]), parallel=2)
    arn = pipeline.start()
    pipeline.wait_for_steps(arn, A="Executing", B="Executing")
    pipeline.end(arn, "B", SecondaryStatus.FAILED, "AlgorithmError: exit 3")
    pipeline.wait_for_steps(arn, A="Executing", B="Failed")
    pipeline.end(arn, "A")
    assert pipeline.wait(arn, "Failed")["FailureReason"] == "The step 'B' failed: AlgorithmError: exit 3"
    assert pipeline.statuses(arn) == {"A": "Succeeded", "B": "Failed"}
    # A retry keeps what succeeded, and gives what failed another job.
    before = pipeline.job(arn, "B")
    for _ in range(2):  # the second has the same token
        pipeline.sagemaker.retry_pipeline_execution(PipelineExecutionArn=arn, ClientRequestToken=TOKEN)
    pipeline.wait_until(lambda: len(pipeline.statuses(arn)) == 3, lambda: pipeline.statuses(arn))
    with pytest.raises(ClientError, match="it is Executing; only one that is Failed or Stopped can be retried"):
        pipeline.sagemaker.retry_pipeline_execution(PipelineExecutionArn=arn)
    pipeline.sagemaker.update_pipeline_execution(
        PipelineExecutionArn=arn, ParallelismConfiguration={"MaxParallelExecutionSteps": 5}
    )
    for name in ("B", "C", "After"):
        pipeline.end(arn, name)
    assert "FailureReason" not in pipeline.wait(arn, "Succeeded")
    assert pipeline.job(arn, "B") != before


def test_a_stopped_execution_stops_its_jobs_and_begins_no_step(pipeline: Pipeline) -> None:
    pipeline.create(train(), model())
    arn = pipeline.start()
    name = pipeline.job(arn, "Train")
    pipeline.sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn)
    status = lambda: pipeline.sagemaker.describe_training_job(TrainingJobName=name)["TrainingJobStatus"]  # noqa: E731
    pipeline.wait_until(lambda: status() == "Stopping", status)
    assert pipeline.describe(arn)["PipelineExecutionStatus"] == "Stopping"
    pipeline.end(arn, "Train", SecondaryStatus.STOPPED)
    pipeline.wait(arn, "Stopped")
    assert pipeline.statuses(arn) == {"Train": "Stopped"}
    with pytest.raises(ClientError, match="it is Stopped; only one that is Executing can be stopped"):
        pipeline.sagemaker.stop_pipeline_execution(PipelineExecutionArn=arn)


def test_a_job_that_somebody_stops_or_deletes_fails_its_step(pipeline: Pipeline) -> None:
    pipeline.create(train())
    arn = pipeline.start()
    pipeline.end(arn, "Train", SecondaryStatus.STOPPED)
    assert "ended in status Stopped" in pipeline.wait(arn, "Failed")["FailureReason"]


def test_a_result_is_reused_until_it_expires_its_arguments_change_or_its_job_is_deleted(
    pipeline: Pipeline, stage: Any
) -> None:
    epochs = {"HyperParameters": {"epochs": {"Get": "Parameters.Epochs"}}}
    parameters = [{"Name": "Epochs", "Type": "String", "DefaultValue": "3"}]
    pipeline.create(train(arguments=epochs, **CACHED), model(), Parameters=parameters)
    first = pipeline.start()
    pipeline.end(first, "Train")
    pipeline.wait(first, "Succeeded")
    second = pipeline.start()
    pipeline.wait(second, "Succeeded")
    steps = pipeline.steps(second)
    assert steps["Train"]["CacheHitResult"] == {"SourcePipelineExecutionArn": first}
    assert pipeline.job(second, "Train") == pipeline.job(first, "Train")
    assert "CacheHitResult" not in steps["Model"]
    changed = pipeline.start(PipelineParameters=[{"Name": "Epochs", "Value": "4"}])
    assert pipeline.job(changed, "Train") != pipeline.job(first, "Train")
    pipeline.end(changed, "Train", SecondaryStatus.FAILED)
    pipeline.wait(changed, "Failed")
    stage.clock.ms += 3_600_001
    expired = pipeline.start()
    pipeline.end(expired, "Train")
    pipeline.wait(expired, "Succeeded")
    pipeline.sagemaker.delete_training_job(TrainingJobName=pipeline.job(expired, "Train"))
    deleted = pipeline.start()
    assert len({pipeline.job(arn, "Train") for arn in (first, expired, deleted)}) == 3
    # The last failed, so that it is no result.
    pipeline.end(deleted, "Train", SecondaryStatus.FAILED)
    pipeline.wait(deleted, "Failed")


def test_selected_steps_use_the_results_of_another_execution(pipeline: Pipeline) -> None:
    pipeline.create(train(), model(), train("Other"))
    source = pipeline.start()
    for name in ("Train", "Other"):
        pipeline.end(source, name)
    pipeline.wait(source, "Succeeded")

    def start(*names: str, source: str | None = None) -> str:
        arn = {} if source is None else {"SourcePipelineExecutionArn": source}
        steps = [{"StepName": name} for name in names]
        return pipeline.start(SelectiveExecutionConfig={**arn, "SelectedSteps": steps})

    arn = start("Model", source=source)
    found = pipeline.wait(arn, "Succeeded")
    assert found["SelectiveExecutionConfig"]["SelectedSteps"] == [{"StepName": "Model"}]
    steps = pipeline.steps(arn)
    assert steps["Train"]["SelectiveExecutionResult"] == {"SourcePipelineExecutionArn": source}
    assert steps["Model"]["Metadata"] != pipeline.steps(source)["Model"]["Metadata"]
    alone = start("Other")
    pipeline.end(alone, "Other")
    pipeline.wait(alone, "Succeeded")
    assert list(pipeline.statuses(alone)) == ["Other"]
    for names, of, reason in (
        (("Dance",), source, "there is no such step; steps are"),
        (("Model",), None, "it needs the step 'Train', and no execution is given; select it, too"),
        (("Model",), alone, "has no result of it; select it, too"),
    ):
        with pytest.raises(ClientError, match=reason):
            start(*names, source=of)


def test_a_failed_step_is_tried_again_as_its_policies_say(pipeline: Pipeline, stage: Any) -> None:
    policy = {"ExceptionType": ["SageMaker.JOB_INTERNAL_ERROR"], "IntervalSeconds": 60, "MaxAttempts": 1}
    pipeline.create(train(RetryPolicies=[policy]))
    arn = pipeline.start()
    before = pipeline.job(arn, "Train")
    pipeline.end(arn, "Train", SecondaryStatus.FAILED, "InternalServerError: lost")
    pipeline.wait_for_steps(arn, Train="Starting")
    stage.clock.ms += 60_000
    pipeline.wait_for_steps(arn, Train="Executing")
    assert pipeline.steps(arn)["Train"]["AttemptCount"] == 2
    assert pipeline.job(arn, "Train") != before
    pipeline.end(arn, "Train", SecondaryStatus.FAILED, "InternalServerError: lost again")
    assert "lost again" in pipeline.wait(arn, "Failed")["FailureReason"]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([train(arguments={"StoppingCondition": {"MaxRuntimeInSeconds": 0}})], "greater than or equal to 1"),
        ([train(arguments={"HyperParameters": {"epochs": [3]}})], "SerializationException"),
        ([train(arguments={"OutputDataConfig": {"S3OutputPath": "s3://none/x"}})], "the bucket 'none' does not exist"),
        (
            [train(arguments={"TrainingJobName": {"Std:JsonGet": {"S3Uri": "s3://data/none", "Path": "a"}}})],
            "the file s3://data/none cannot be read",
        ),
        ([train(arguments={"RoleArn": {"Get": "Steps.C.Color"}}), None], "the answer of the step 'C' has no 'Color'"),
    ],
)
def test_a_request_that_a_client_may_not_send_fails_its_step_with_the_same_error(
    pipeline: Pipeline, steps: list[Any], reason: str
) -> None:
    same = {"Type": "Equals", "LeftValue": 1, "RightValue": 1}
    condition = {"Name": "C", "Type": "Condition", "Arguments": {"Conditions": [same]}}
    pipeline.create(*(each or condition for each in steps))
    found = pipeline.wait(pipeline.start(), "Failed")
    assert reason in found["FailureReason"]


@pytest.mark.parametrize("given_by", ["settings", "iam"])
def test_the_policy_that_a_role_was_given_limits_the_steps(
    pipeline: Pipeline, stage: Any, clients: Callable[..., Any], given_by: str
) -> None:
    allowed = {"Effect": "Allow", "Action": ["sagemaker:*", "iam:PassRole"], "Resource": "*"}
    denied = {"Effect": "Deny", "Action": "sagemaker:CreateModel", "Resource": "*"}
    policy = {"Statement": [allowed, denied]}
    if given_by == "settings":
        stage.roles._policies = Roles({"SageMakerRole": read_policy(policy)})._policies
    else:
        iam, role = clients("iam"), {"RoleName": "SageMakerRole"}
        iam.create_role(**role, AssumeRolePolicyDocument="{}")
        iam.put_role_policy(**role, PolicyName="steps", PolicyDocument=json.dumps(policy))
    pipeline.create(train(), model())
    arn = pipeline.start()
    pipeline.end(arn, "Train")
    reason = pipeline.wait(arn, "Failed")["FailureReason"]
    assert "The step 'Model' failed: ClientError: AccessDeniedException" in reason
    assert "assumed-role/SageMakerRole/" in reason


def test_the_steps_of_a_key_end_with_the_key(pipeline: Pipeline, clients: Callable[..., Any]) -> None:
    made = clients("iam").create_access_key(UserName="ann")["AccessKey"]
    keys = Credential(made["AccessKeyId"], made["SecretAccessKey"])
    pipeline.create(train(), model())
    arn = clients("sagemaker", keys).start_pipeline_execution(PipelineName="p")["PipelineExecutionArn"]
    assert pipeline.describe(arn)["CreatedBy"]["IamIdentity"]["Arn"].endswith("/ann")
    pipeline.job(arn, "Train")
    clients("iam").delete_access_key(UserName="ann", AccessKeyId=keys.access_key_id)
    pipeline.end(arn, "Train")
    assert "AccessDeniedException: the key" in pipeline.wait(arn, "Failed")["FailureReason"]


def test_requests_for_what_does_not_exist_are_refused(sagemaker: Any) -> None:
    execution = f"{ARN}:pipeline/p/execution/abcdefghijkl"
    for name in ("describe_pipeline_execution", "stop_pipeline_execution", "list_pipeline_execution_steps"):
        with pytest.raises(
            sagemaker.exceptions.ResourceNotFound, match=f"Pipeline execution '{execution}' does not exist"
        ):
            getattr(sagemaker, name)(PipelineExecutionArn=execution)
    with pytest.raises(sagemaker.exceptions.ResourceNotFound):
        sagemaker.start_pipeline_execution(PipelineName="p")
    sagemaker.create_pipeline(PipelineName="p", PipelineDefinition=definition(train()), RoleArn=ROLE)
    with pytest.raises(sagemaker.exceptions.ResourceNotFound, match="has no version 2"):
        sagemaker.start_pipeline_execution(PipelineName="p", PipelineVersionId=2)
    with pytest.raises(ClientError, match="its parameters are none"):
        sagemaker.start_pipeline_execution(PipelineName="p", PipelineParameters=[{"Name": "A", "Value": "1"}])


def test_an_endpoint_is_created_by_the_first_execution_updated_by_the_next_and_left_alone_by_others(
    pipeline: Pipeline, sagemaker: Any, stage: Any
) -> None:
    name = {"Get": "Steps.Config.EndpointConfigName"}
    variant = {"VariantName": "AllTraffic", "ModelName": {"Get": "Parameters.Model"}, "InstanceType": "local"}
    config = {"EndpointConfigName": "digits", "ProductionVariants": [{**variant, "InitialInstanceCount": 1}]}
    pipeline.create(
        {"Name": "Config", "Type": "EndpointConfig", "Arguments": config, **CACHED},
        {
            "Name": "Deploy",
            "Type": "Endpoint",
            "Arguments": {"EndpointName": "digits", "EndpointConfigName": name},
            **CACHED,
        },
        Parameters=[{"Name": "Model", "Type": "String", "DefaultValue": "a"}],
    )
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": "s3://data/model.tar.gz"}
    for each in "ab":
        sagemaker.create_model(ModelName=each, PrimaryContainer=container, ExecutionRoleArn=ROLE)

    def start(model: str) -> str:
        return pipeline.start(PipelineParameters=[{"Name": "Model", "Value": model}])

    def endpoint() -> dict[str, Any]:
        return sagemaker.describe_endpoint(EndpointName="digits")

    first = start("a")
    pipeline.wait_for_steps(first, Config="Succeeded", Deploy="Executing")
    assert endpoint()["EndpointStatus"] == "Creating"
    stage.bring_up("digits")
    pipeline.wait(first, "Succeeded")
    config_name = endpoint()["EndpointConfigName"]
    assert config_name.startswith("digits-")
    steps = pipeline.steps(first)
    assert steps["Config"]["Metadata"]["EndpointConfig"]["Arn"].endswith(f"endpoint-config/{config_name}")
    assert steps["Deploy"]["Metadata"]["Endpoint"]["Arn"] == endpoint()["EndpointArn"]

    second = start("b")
    pipeline.wait_until(lambda: endpoint()["EndpointStatus"] == "Updating", endpoint)
    stage.bring_up("digits")
    pipeline.wait(second, "Succeeded")
    assert endpoint()["EndpointConfigName"] != config_name

    # An execution waits while somebody else updates the endpoint. Its own update fails the step if it is rolled back.
    variants = [{**variant, "ModelName": "a", "InitialInstanceCount": 1}]
    sagemaker.create_endpoint_config(EndpointConfigName="other", ProductionVariants=variants)
    sagemaker.update_endpoint(EndpointName="digits", EndpointConfigName="other")
    third = start("a")
    pipeline.wait_for_steps(third, Config="Succeeded", Deploy="Starting")
    stage.bring_up("digits")
    pipeline.wait_for_steps(third, Config="Succeeded", Deploy="Executing")
    stage.change_endpoint("digits", lambda now: replace(now, starting=None, status=EndpointStatus.IN_SERVICE))
    reason = pipeline.wait(third, "Failed")["FailureReason"]
    assert reason == "The step 'Deploy' failed: ClientError: digits ended with the EndpointConfigName other"

    def hits(arn: str) -> list[str]:
        return [name for name, each in pipeline.steps(arn).items() if "CacheHitResult" in each]

    assert hits(third) == ["Config"]
    fourth = start("b")
    pipeline.wait_for_steps(fourth, Config="Succeeded", Deploy="Executing")
    stage.bring_up("digits")
    pipeline.wait(fourth, "Succeeded")
    fifth = start("b")
    pipeline.wait(fifth, "Succeeded")
    assert (hits(fourth), hits(fifth)) == (["Config"], ["Config", "Deploy"])


def test_requests_of_endpoint_steps_are_sent_once_if_the_driver_dies_behind_each(
    pipeline: Pipeline, sagemaker: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[str] = []

    def point(name: str) -> None:
        if name == "control.pipelines.job.created":
            passed.append(name)
            if len(passed) % 2:
                raise ServiceUnavailable("the driver begins again from the store")

    monkeypatch.setattr("tidemill.control.pipelines.driver.faults.point", point)
    monkeypatch.setattr("tidemill.control.work_queue._RETRY_S", 0.01)
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": "s3://data/model.tar.gz"}
    sagemaker.create_model(ModelName="m", PrimaryContainer=container, ExecutionRoleArn=ROLE)
    variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "local", "InitialInstanceCount": 1}
    deploy = {"EndpointName": "digits", "EndpointConfigName": {"Get": "Steps.Config.EndpointConfigName"}}
    pipeline.create(
        {"Name": "Config", "Type": "EndpointConfig", "Arguments": {"ProductionVariants": [variant]}},
        {"Name": "Deploy", "Type": "Endpoint", "Arguments": deploy},
    )
    for count in (1, 2):  # a creation, and an update
        arn = pipeline.start()
        pipeline.wait_for_steps(arn, Config="Succeeded", Deploy="Executing")
        stage.bring_up("digits")
        pipeline.wait(arn, "Succeeded")
        assert all(each["AttemptCount"] == 1 for each in pipeline.steps(arn).values())
        assert len(sagemaker.list_endpoint_configs()["EndpointConfigs"]) == count
    assert len(passed) == 8


def test_an_endpoint_step_needs_the_name_of_its_endpoint(pipeline: Pipeline) -> None:
    pipeline.create({"Name": "Deploy", "Type": "Endpoint", "Arguments": {"EndpointConfigName": "digits"}})
    assert "Endpoint have no EndpointName; give one" in pipeline.wait(pipeline.start(), "Failed")["FailureReason"]


def test_an_execution_is_found_by_its_own_arn_only(pipeline: Pipeline) -> None:
    pipeline.create({"Name": "Stop", "Type": "Fail", "Arguments": {"ErrorMessage": "no data"}})
    arn = pipeline.start()
    end = arn.rpartition(":")[2]
    # A policy that allows the pipeline "other" would be satisfied by the second.
    for wrong in (arn.replace("us-west-2", "eu-west-1"), f"{ARN}:pipeline/other/execution/:{end}"):
        with pytest.raises(pipeline.sagemaker.exceptions.ResourceNotFound):
            pipeline.describe(wrong)
    pipeline.wait(arn, "Failed")


def test_pages_of_pipelines_with_a_prefix_are_full(sagemaker: Any) -> None:
    for name in ("a-x", "x-a", "x-b", "b-x", "x-c"):
        sagemaker.create_pipeline(PipelineName=name, PipelineDefinition=definition(train()), RoleArn=ROLE)
    members = {"PipelineNamePrefix": "x", "SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 2}
    page = sagemaker.list_pipelines(**members)
    assert [each["PipelineName"] for each in page["PipelineSummaries"]] == ["x-a", "x-b"]
    rest = sagemaker.list_pipelines(**members, NextToken=page["NextToken"])
    assert [each["PipelineName"] for each in rest["PipelineSummaries"]] == ["x-c"]
    assert "NextToken" not in rest


def test_the_end_of_a_job_moves_its_execution_on_at_once(
    pipeline: Pipeline, stage: Any, door: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.pipelines.driver._LOOK_S", 3600.0)
    pipeline.create(train())
    arn = pipeline.start()
    name = pipeline.job(arn, "Train")
    pipeline.end(arn, "Train")

    async def report() -> None:
        stage.pipeline_driver.job_ended(stage.training.get(name))

    door.run(report())
    pipeline.wait(arn, "Succeeded")


def test_a_defect_of_the_driver_ends_the_execution_and_its_steps(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.create(train())
    arn = pipeline.start()
    pipeline.wait_for_steps(arn, Train="Executing")
    monkeypatch.setattr("tidemill.control.pipelines.driver._ready", None)
    assert "InternalServerError: TypeError" in pipeline.wait(arn, "Failed")["FailureReason"]
    step = pipeline.steps(arn)["Train"]
    assert (step["StepStatus"], "InternalServerError" in step["FailureReason"]) == ("Failed", True)


@pytest.mark.parametrize("end", ["success", "failure"])
def test_the_ends_of_callback_steps_are_refused_by_name(sagemaker: Any, end: str) -> None:
    send = getattr(sagemaker, f"send_pipeline_execution_step_{end}")
    with pytest.raises(ClientError, match=f"SendPipelineExecutionStep{end.capitalize()}'; instead, a Processing step"):
        send(CallbackToken="abcdefghij")
