"""Search by boto3: filters, order, pages, and what a caller may see."""

import asyncio
import itertools
import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from polling import poll
from tidemill.control.resources import TRIAL, record_of
from tidemill.control.search.expression import sort_key
from tidemill.core.experiments import Tracked
from tidemill.core.training import FinalMetric, SecondaryStatus
from tidemill.store.records.base import Transaction

ARN = "arn:aws:sagemaker:us-west-2:000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
CREATED = datetime.fromtimestamp(1_700_000_000, tz=UTC)
IMAGE = "tensorflow-training:2.21.0-cpu-py312"
DEFINITION = json.dumps(
    {"Version": "2020-12-01", "Steps": [{"Name": "Stop", "Type": "Fail", "Arguments": {"ErrorMessage": "no data"}}]}
)
LOSSES = {"a": 0.5, "b": 0.125, "c": 10.0}


def where(name: str, operator: str | None = None, value: str | None = None) -> dict[str, str]:
    given = {"Name": name, "Operator": operator, "Value": value}
    return {member: text for member, text in given.items() if text is not None}


def found(sagemaker: Any, resource: str, *filters: dict[str, str], **members: Any) -> list[str]:
    """Return the names of the results of all pages."""
    expression = members.pop("SearchExpression", {"Filters": list(filters)} if filters else {})
    names: list[str] = []
    while True:
        reply = sagemaker.search(Resource=resource, SearchExpression=expression, **members)
        for each in reply["Results"]:
            ((member, result),) = each.items()
            names.append(result[f"{member}Arn"].rpartition("/")[2])
        if "NextToken" not in reply:
            return names
        members["NextToken"] = reply["NextToken"]


@pytest.fixture
def jobs(sagemaker: Any, stage: Any) -> Any:
    """Create the training jobs a, b and c, one second apart; a and b have ended with a loss."""
    for name in "abc":
        stage.clock.ms += 1000
        sagemaker.create_training_job(
            TrainingJobName=name,
            RoleArn=ROLE,
            AlgorithmSpecification={
                "TrainingImage": "tensorflow-training:2.21.0-cpu-py312",
                "TrainingInputMode": "File",
            },
            HyperParameters={
                "sagemaker_program": "train.py",
                "sagemaker_submit_directory": "s3://data/code.tar.gz",
                "layers.first": str(len(name) * 10),
                "kind": f"lstm-{name}",
            },
            InputDataConfig=[
                {
                    "ChannelName": channel,
                    "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://data/{name}/{channel}"}},
                }
                for channel in ("train", "test")
            ],
            OutputDataConfig={"S3OutputPath": "s3://data/out"},
            ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
            Tags=[{"Key": "team", "Value": "north" if name == "a" else "south"}],
        )
    for name in "ab":
        stage.clock.ms += 1000
        metrics = (FinalMetric("loss", LOSSES[name], stage.clock.ms),)
        stage.change_job(
            name,
            lambda job, metrics=metrics: replace(
                job.enter(SecondaryStatus.COMPLETED, at_ms=stage.clock.ms, message="done"), final_metrics=metrics
            ),
        )
    return sagemaker


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ([where("TrainingJobName", "Equals", "b")], "b"),
        ([where("TrainingJobName", "NotEquals", "b")], "ac"),
        ([where("TrainingJobName", "In", "a, c,d")], "ac"),
        ([where("TrainingJobStatus", "Equals", "Completed")], "ab"),
        ([where("TrainingJobStatus", value="InProgress")], "c"),
        ([where("CreationTime", "GreaterThan", "2023-11-14T22:13:22Z")], "c"),
        ([where("CreationTime", "LessThanOrEqualTo", "2023-11-14T22:13:22")], "ab"),
        ([where("Metrics.loss", "LessThan", "0.2")], "b"),
        ([where("metrics.loss", "GreaterThanOrEqualTo", "5e-1")], "a"),
        ([where("Metrics.loss")], "ab"),
        ([where("Metrics.loss", "NotExists")], "c"),
        ([where("HyperParameters.layers.first", "Equals", "10")], "abc"),
        ([where("HyperParameters.kind", "Contains", "-b")], "b"),
        ([where("HyperParameters.other", "Exists")], ""),
        ([where("Tags.team", "Equals", "south")], "bc"),
        ([where("Tags.team", "Equals", "south"), where("TrainingJobStatus", "Equals", "Completed")], "b"),
        ([where("ResourceConfig.VolumeSizeInGB", "Equals", "10.0")], "abc"),
        ([where("ResourceConfig.VolumeSizeInGB", "GreaterThan", "9")], "abc"),
        ([where("InputDataConfig.DataSource.S3DataSource.S3Uri", "Contains", "/a/test")], "a"),
        ([where("EnableManagedSpotTraining", "Equals", "true")], ""),
    ],
)
def test_filters_select_training_jobs(jobs, filters, names):
    assert found(jobs, "TrainingJob", *filters, SortBy="TrainingJobName", SortOrder="Ascending") == list(names)


def test_expressions_combine_filters_of_several_levels(jobs):
    def names(**expression: Any) -> str:
        return "".join(sorted(found(jobs, "TrainingJob", SearchExpression=expression)))

    either = [where("TrainingJobName", "Equals", "a"), where("Metrics.loss", "LessThan", "0.2")]
    assert names(Filters=either, Operator="Or") == "ab"
    assert names(Filters=either, Operator="And") == ""
    inner = {"Filters": either, "Operator": "Or"}
    assert names(SubExpressions=[inner], Filters=[where("Tags.team", "Equals", "north")]) == "a"
    path = "InputDataConfig.DataSource.S3DataSource.S3Uri"
    for prefix in ("", "InputDataConfig."):
        conditions = [
            where(f"{prefix}ChannelName", "Equals", "train"),
            where(f"{prefix}{path.removeprefix('InputDataConfig.')}", "Contains", "/b/"),
        ]
        assert names(NestedFilters=[{"NestedPropertyName": "InputDataConfig", "Filters": conditions}]) == "b"
        conditions[0] = where(f"{prefix}ChannelName", "Equals", "other")
        assert names(NestedFilters=[{"NestedPropertyName": "InputDataConfig", "Filters": conditions}]) == ""


def test_results_are_sorted_by_any_property_and_come_in_pages(jobs):
    orders = {
        "CreationTime": "abc",
        "TrainingJobName": "abc",
        "Metrics.loss": "cba",
        "HyperParameters.kind": "abc",
        "TrainingJobStatus": "abc",
    }
    for (property_name, ascending), size in itertools.product(orders.items(), (1, 2, 3)):
        members = {"SortBy": property_name, "MaxResults": size}
        assert "".join(found(jobs, "TrainingJob", SortOrder="Ascending", **members)) == ascending
        assert "".join(found(jobs, "TrainingJob", **members)) == ascending[::-1]
    assert "".join(found(jobs, "TrainingJob")) == "bac"  # by the last change


def test_a_result_has_the_description_and_the_tags(jobs):
    (result,) = jobs.search(
        Resource="TrainingJob", SearchExpression={"Filters": [where("TrainingJobName", "Equals", "a")]}
    )["Results"]
    job = result["TrainingJob"]
    assert job["Tags"] == [{"Key": "team", "Value": "north"}]
    described = jobs.describe_training_job(TrainingJobName="a")
    assert {name: job[name] for name in job.keys() & described.keys()} == {
        name: described[name] for name in job.keys() & described.keys()
    }
    assert {"HyperParameters", "FinalMetricDataList", "ResourceConfig"} <= job.keys()


def test_what_cannot_be_searched_is_refused_by_name(jobs, refusal):
    def refused(**members: Any) -> str:
        status, code, message = refusal(jobs.search, **members)
        assert (status, code) == (400, "ValidationException")
        return message

    expression = {"Filters": [where("TrainingJobNmae", "Equals", "a")]}
    assert "'TrainingJobNmae' is not a property" in refused(Resource="TrainingJob", SearchExpression=expression)
    assert "'Metrics.loss' is not a property" in refused(Resource="Endpoint", SortBy="Metrics.loss")
    assert "compares with a value" in refused(
        Resource="TrainingJob", SearchExpression={"Filters": [where("TrainingJobName", "Equals")]}
    )
    assert "this version searches" in refused(Resource="Model")
    for token in ("x", jobs.search(Resource="TrainingJob", MaxResults=1)["NextToken"]):
        assert "not a token of this listing" in refused(
            Resource="TrainingJob", SortBy="TrainingJobName", NextToken=token
        )
    assert jobs.search(Resource="FeatureGroup")["Results"] == []
    assert jobs.search(Resource="TrainingJob", CrossAccountFilterOption="CrossAccount")["Results"] == []


def test_runs_are_found_by_parents_parameters_and_statistics(sagemaker, metrics, stage):
    sagemaker.create_experiment(ExperimentName="tides", Description="of the sea")
    sagemaker.create_trial(TrialName="deep", ExperimentName="tides")
    for number, name in enumerate("abc"):
        stage.clock.ms += 1000
        tags = [{"Key": "source", "Value": "run"}] if name != "c" else []
        sagemaker.create_trial_component(
            TrialComponentName=name,
            DisplayName="Training" if name != "a" else "Test",
            Parameters={"rate": {"NumberValue": number / 10}, "kind": {"StringValue": f"k{number}"}},
            OutputArtifacts={"model": {"Value": f"s3://data/{name}"}},
            Tags=tags,
        )
        data = [{"MetricName": "test:loss", "Timestamp": CREATED, "Value": value} for value in (3.0 - number, 1.0)]
        metrics.batch_put_metrics(TrialComponentName=name, MetricData=data)
    for name in "ab":
        sagemaker.associate_trial_component(TrialComponentName=name, TrialName="deep")

    def names(*filters: dict[str, str], **members: Any) -> str:
        return "".join(found(sagemaker, "ExperimentTrialComponent", *filters, **members))

    assert names(where("Parents.ExperimentName", "Equals", "tides"), SortBy="CreationTime") == "ba"
    named = where("TrialComponentName", "Equals", "a")
    assert names(named, where("Parents.TrialName", "Equals", "deep")) == "a"
    assert names(named, where("Parents.TrialName", "Equals", "other")) == ""
    assert names(where("DisplayName", "Equals", "Training"), SortBy="metrics.test:loss.max") == "bc"
    assert names(SortBy="Metrics.test:loss.Max", SortOrder="Ascending") == "cba"
    assert names(where("Metrics.test:loss", "Equals", "1"), where("Parameters.rate", "GreaterThan", "0.05")) == "cb"
    assert names(where("Parameters.kind", "Equals", "k1")) == "b"
    assert names(where("OutputArtifacts.model", "Contains", "data/c")) == "c"
    assert names(where("Tags.source", "Equals", "run"), SortBy="TrialComponentName") == "ba"
    reply = sagemaker.search(Resource="ExperimentTrialComponent", SearchExpression={"Filters": [named]})
    component = reply["Results"][0]["TrialComponent"]
    assert component["Parents"] == [{"TrialName": "deep", "ExperimentName": "tides"}]
    assert component["Tags"] == [{"Key": "source", "Value": "run"}]
    assert found(sagemaker, "Experiment", where("Description", "Contains", "sea")) == ["tides"]
    assert found(sagemaker, "ExperimentTrial", where("ExperimentName", "Equals", "tides")) == ["deep"]


def test_packages_groups_and_endpoints_are_found(sagemaker, stage):
    container = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
    for name in ("digits", "tides"):
        sagemaker.create_model_package_group(ModelPackageGroupName=name)
        for approval in ("Approved", "Rejected"):
            sagemaker.create_model_package(
                ModelPackageGroupName=name,
                ModelApprovalStatus=approval,
                InferenceSpecification={"Containers": [container]},
                CustomerMetadataProperties={"rmse": "0.1" if name == "digits" else "0.3"},
            )
    assert found(sagemaker, "ModelPackageGroup", where("ModelPackageGroupName", "Equals", "tides")) == ["tides"]
    of_digits = where("ModelPackageGroupName", "Equals", "digits")
    approved = where("ModelApprovalStatus", "Equals", "Approved")
    assert found(sagemaker, "ModelPackage", of_digits, SortBy="ModelPackageVersion") == ["2", "1"]
    assert found(sagemaker, "ModelPackage", of_digits, approved) == ["1"]
    metadata = where("CustomerMetadataProperties.rmse", "LessThan", "0.2")
    assert len(found(sagemaker, "ModelPackage", metadata)) == 2
    sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": "digits", "InstanceType": "local", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName="digits", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
    assert found(sagemaker, "Endpoint", where("EndpointStatus", "Equals", "Creating")) == ["digits"]
    assert found(sagemaker, "Endpoint", where("EndpointConfigName", "Equals", "other")) == []


def test_tuning_jobs_and_pipelines_are_found(sagemaker, stage):
    ranges = {"ContinuousParameterRanges": [{"Name": "rate", "MinValue": "0.1", "MaxValue": "1"}]}
    for name in ("a", "b"):
        stage.clock.ms += 1000
        sagemaker.create_hyper_parameter_tuning_job(
            HyperParameterTuningJobName=name,
            HyperParameterTuningJobConfig={
                "Strategy": "Random",
                "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
                "ResourceLimits": {"MaxNumberOfTrainingJobs": 2, "MaxParallelTrainingJobs": 1},
                "ParameterRanges": ranges,
            },
            TrainingJobDefinition={
                "StaticHyperParameters": {
                    "sagemaker_program": "train.py",
                    "sagemaker_submit_directory": "s3://data/code.tar.gz",
                    "kind": name,
                },
                "AlgorithmSpecification": {
                    "TrainingImage": IMAGE,
                    "TrainingInputMode": "File",
                    "MetricDefinitions": [{"Name": "loss", "Regex": "loss=([0-9.]+)"}],
                },
                "RoleArn": ROLE,
                "OutputDataConfig": {"S3OutputPath": "s3://data/out"},
                "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 1},
                "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            },
        )
        sagemaker.create_pipeline(
            PipelineName=f"pipeline-{name}",
            PipelineDefinition=DEFINITION,
            ClientRequestToken="t" * 32,
            RoleArn=ROLE,
        )
    kind = where("TrainingJobDefinition.StaticHyperParameters.kind", "Equals", "b")
    assert found(sagemaker, "HyperParameterTuningJob", kind) == ["b"]
    running = where("HyperParameterTuningJobStatus", "Equals", "InProgress")
    assert found(sagemaker, "HyperParameterTuningJob", running, SortBy="CreationTime") == ["b", "a"]
    assert found(sagemaker, "Pipeline", where("PipelineName", "Contains", "-a")) == ["pipeline-a"]


def test_executions_of_pipelines_are_found_by_their_state_parameters_and_pipeline(sagemaker, stage, door):
    door.run(stage.pipeline_driver.start(stage.step_requests))
    parameters = [{"Name": "Rows", "Type": "Integer", "DefaultValue": 3}]
    text = json.dumps({**json.loads(DEFINITION), "Parameters": parameters})
    sagemaker.create_pipeline(PipelineName="p", PipelineDefinition=text, RoleArn=ROLE)
    arns = []
    for rows in ("3", "12"):
        stage.clock.ms += 1000
        started = sagemaker.start_pipeline_execution(
            PipelineName="p",
            PipelineExecutionDisplayName=f"with-{rows}",
            PipelineParameters=[{"Name": "Rows", "Value": rows}],
        )
        arns.append(started["PipelineExecutionArn"])
    ids = [arn.rpartition("/")[2] for arn in arns]

    def ended() -> list[str]:
        return found(sagemaker, "PipelineExecution", where("PipelineExecutionStatus", "Equals", "Failed"))

    poll(lambda: sorted(ended()) == sorted(ids), ended)
    many = [where("Name", "Equals", "Rows"), where("PipelineParameters.Value", "GreaterThan", "10")]
    nested = {"NestedFilters": [{"NestedPropertyName": "PipelineParameters", "Filters": many}]}
    assert found(sagemaker, "PipelineExecution", SearchExpression=nested) == ids[1:]
    reason = where("FailureReason", "Contains", "no data")
    assert found(sagemaker, "PipelineExecution", reason, SortBy="CreationTime", MaxResults=1) == ids[::-1]
    by_name = {"SortBy": "PipelineExecutionDisplayName", "SortOrder": "Ascending", "MaxResults": 1}
    assert found(sagemaker, "PipelineExecution", where("PipelineArn", "Contains", "/p"), **by_name) == ids[::-1]
    (result,) = sagemaker.search(Resource="PipelineExecution", SearchExpression=nested)["Results"]
    described = sagemaker.describe_pipeline_execution(PipelineExecutionArn=arns[1])
    del described["ResponseMetadata"]
    parameters = [{"Name": "Rows", "Value": "12"}]
    assert result["PipelineExecution"] == {**described, "PipelineParameters": parameters}
    (result,) = sagemaker.search(Resource="Pipeline")["Results"]
    described = sagemaker.describe_pipeline(PipelineName="p")
    assert result["Pipeline"] == {name: described[name] for name in result["Pipeline"]}
    assert {"LastRunTime", "PipelineStatus", "CreatedBy"} <= result["Pipeline"].keys()


def test_a_search_without_filters_on_tags_reads_tags_of_its_results_only(jobs, stage, monkeypatch):
    read = []
    get = stage.records.get
    monkeypatch.setattr(stage.records, "get", lambda kind, name: read.append(kind) or get(kind, name))
    assert found(jobs, "TrainingJob", where("HyperParameters.kind", "Equals", "lstm-a")) == ["a"]
    assert read.count("tags") == 1


def test_a_search_for_what_was_created_lately_reads_nothing_that_is_older(jobs, stage, monkeypatch):
    read = []
    list_page = stage.records.list

    async def listed(kind, query):
        page = await list_page(kind, query)
        read.extend(record.name for record in page.records)
        return page

    monkeypatch.setattr(stage.records, "list", listed)
    old = where("HyperParameters.kind", "Equals", "lstm-a")
    for text in ("2023-11-14T22:13:23Z", "1700000003"):
        late = where("creationTime", "GreaterThanOrEqualTo", text)
        assert found(jobs, "TrainingJob", late, where("HyperParameters.kind"), SortBy="CreationTime") == ["c"]
        assert found(jobs, "TrainingJob", late, old, SortBy="CreationTime") == []
    assert "a" not in read
    either = {"Filters": [late, old], "Operator": "Or"}
    assert found(jobs, "TrainingJob", SearchExpression=either, SortBy="CreationTime") == ["c", "a"]
    none = where("CreationTime", "GreaterThan", "nan")
    assert found(jobs, "TrainingJob", none, SortBy="CreationTime") == []


def test_suggestions_are_names_of_properties(sagemaker):
    hint = {"PropertyNameQuery": {"PropertyNameHint": "Trial"}}
    reply = sagemaker.get_search_suggestions(Resource="ExperimentTrialComponent", SuggestionQuery=hint)
    names = [each["PropertyName"] for each in reply["PropertyNameSuggestions"]]
    assert names == ["TrialComponentArn", "TrialComponentName"]


def test_what_is_no_number_is_sorted_before_texts_and_those_before_numbers_and_times():
    values = [math.nan, None, "b", "nan", True, 2, "10", CREATED]
    keys = [sort_key(each) for each in values]
    assert keys == sorted(keys)
    assert [kind for kind, _ in keys] == [0, 0, 1, 1, 2, 2, 2, 2]


def test_a_search_walks_blocks_of_records(sagemaker, stage):
    sagemaker.create_experiment(ExperimentName="tides")

    def insert(transaction: Transaction) -> None:
        for number in range(300):
            trial = Tracked(
                name=f"t{number}",
                arn=f"{ARN}:experiment-trial/t{number}",
                members={"ExperimentName": "tides"},
                created_ms=stage.clock.ms + number,
                created_by="",
            )
            transaction.insert(record_of(TRIAL, trial))

    asyncio.run(stage.records.change(insert))
    ascending = [f"t{number}" for number in range(300)]
    assert found(sagemaker, "ExperimentTrial", SortBy="CreationTime", SortOrder="Ascending") == ascending
    last = where("CreationTime", "GreaterThan", str((CREATED + timedelta(milliseconds=298)).timestamp()))
    assert found(sagemaker, "ExperimentTrial", last, SortBy="DisplayName") == ["t299"]
