"""Definitions of pipelines: what is refused and why; parameters, expressions, conditions, durations, retries."""

import asyncio
import json
from typing import Any

import pytest

from tidemill.control.pipelines.conditions import holds
from tidemill.control.pipelines.definition import parse_definition
from tidemill.control.pipelines.driver import job_name
from tidemill.control.pipelines.expressions import Get, Unresolved, part_of, resolved
from tidemill.control.pipelines.parameters import parameter_values
from tidemill.control.pipelines.repetition import StepRetry, cache_key, failure_kind, parse_caching, parse_retries
from tidemill.control.pipelines.step_types import JOBS, REFUSED_TYPES, STEP_TYPES
from tidemill.core.pipelines import PipelineExecution
from tidemill.errors import ValidationException

CONDITION = {"Type": "Equals", "LeftValue": 1, "RightValue": 1}


def step(name: str = "A", kind: str = "Training", **members: Any) -> dict[str, Any]:
    return {"Name": name, "Type": kind, "Arguments": {}, **members}


def text(*steps: dict[str, Any], **members: Any) -> str:
    return json.dumps({"Version": "2020-12-01", "Steps": list(steps), **members})


def condition(name: str = "C", **arguments: Any) -> dict[str, Any]:
    return step(name, "Condition", Arguments={"Conditions": [CONDITION], **arguments})


BOTH_WAYS = (step("A", DependsOn=["B"]), step("B", Arguments={"X": {"Get": "Steps.A.TrainingJobName"}}))


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", "an object is expected"),
        (text(step(), Version="2021-01-01"), "this service reads 2020-12-01"),
        (text(step(), Callbacks=[]), "members here are Version, Metadata, Parameters"),
        (text(), "a pipeline has 1 to 50"),
        (text(*(step(f"A{index}") for index in range(51))), "'51 steps'"),
        (text(step("a b")), "letters, digits, '-' and '_'"),
        (text(step(), step()), "names of steps are unique"),
        (text(step(), condition(IfSteps=[step()])), "names of steps are unique, also across branches"),
        (text(step(kind="Dance")), "it is no type of step of SageMaker"),
        (text(step(Retries=3)), "members here are Name, Type, Arguments"),
        (text(step(DependsOn=["B"])), "Value 'B' at 'pipelineDefinition.steps.A' is not allowed: there is no step of"),
        (text(step(Arguments={"X": {"Get": "Steps.B.ModelArn"}})), "there is no step of this name; steps are A"),
        (text(step(Arguments={"X": {"Get": "Parameters.P"}})), "Parameters.P does not exist; Parameters has nothing"),
        (text(step(Arguments={"X": {"Get": "Execution.Owner"}})), "Execution has PipelineName, PipelineArn"),
        (text(step(Arguments={"X": {"Get": "Here.P"}})), "'Here.P' is not a path of Get"),
        (text(step(Arguments={"X": [{"Std:Join": {"On": "-"}}]})), "Std:Join needs On, a text, and Values"),
        (text(step(Arguments={"X": {"Std:JsonGet": {"Path": "a"}}})), "Std:JsonGet needs Path and either"),
        (text(step(Arguments={"X": {"Std:JsonGet": {"PropertyFile": "F", "Path": "a"}}})), "PropertyFile is a Get of"),
        (text(step(Arguments={"X": {"Y": float("nan")}})), "it is not JSON: NaN is no number of JSON"),
        ('{"Version": "2020-12-01", "Steps": ' + "[" * 5000 + "]" * 5000 + "}", "nested too deep"),
        (text(*BOTH_WAYS), "a step cannot need itself, directly or through others"),
        (text(step(DependsOn=["A"])), "A needs A"),
        (text(step(CacheConfig={"Enabled": True, "ExpireAfter": "soon"})), "a duration of ISO 8601, e.g. P30D"),
        (text(step(kind="Model", CacheConfig={"Enabled": True})), "CacheConfig is for steps that run a job"),
        (text(step(DependsOn=[{"Step": "A", "Trigger": "Failed"}])), "other outcomes cannot begin a step"),
        (text(step(RetryPolicies=5)), "steps.1.member.retryPolicies' is not allowed: a list is expected"),
        (text(step(kind="Processing", PropertyFiles=5)), "propertyFiles' is not allowed: a list is expected"),
        (text(step(PropertyFiles=[{}])), "only Processing steps have PropertyFiles"),
        (text(step(RetryPolicies=[{"ExceptionType": ["Bad"], "MaxAttempts": 1}])), "ExceptionType is a list of"),
        (text(step(RetryPolicies=[{"ExceptionType": ["Step.THROTTLING"]}])), "has MaxAttempts or ExpireAfterMin"),
        (text(step(kind="Fail", Arguments={"Text": ""})), "a Fail step has the argument ErrorMessage"),
        (text(condition(Conditions=[])), "Conditions is a list of at least one condition"),
        (text(condition(Conditions=[{"Type": "Like"}])), "allowed are Equals, GreaterThan"),
        (text(condition(Conditions=[{"Type": "In", "QueryValue": 1}])), "a condition In needs Values"),
        (text(condition(Conditions=[{"Type": "Not", "Condition": {"Type": "Or"}}])), "a condition Or needs Conditions"),
        (text(step(RetryPolicies=[{"ExceptionType": [{}], "MaxAttempts": 1}])), "ExceptionType is a list of"),
        (text(step(), Parameters=[{"Name": "P", "Type": "Date"}]), "one of String, Integer, Float, Boolean"),
        (text(step(), Parameters=[{"Name": "P", "Type": {}}]), "one of String, Integer, Float, Boolean"),
        (text(step(), Parameters=[{"Name": "P", "Type": "String", "EnumValues": "ab"}]), "a list is expected"),
        (text(step(), Parameters=[{"Name": "P", "Type": "Integer", "DefaultValue": True}]), "it is no Integer"),
        (
            text(step(), Parameters=[{"Name": "P", "Type": "String", "DefaultValue": "c", "EnumValues": ["a", "b"]}]),
            "its EnumValues are a, b",
        ),
        (
            text(step(), PipelineExperimentConfig={"ExperimentName": {"Get": "Steps.A.ModelArn"}, "TrialName": "t"}),
            "cannot be read before the first step",
        ),
    ],
)
def test_a_definition_that_cannot_be_executed_is_refused_with_the_place_and_what_is_allowed(definition, reason):
    with pytest.raises(ValidationException) as caught:
        parse_definition(definition)
    assert reason in caught.value.message
    assert "pipelineDefinition" in caught.value.message


@pytest.mark.parametrize("kind", REFUSED_TYPES)
def test_each_type_of_sagemaker_that_does_not_exist_here_is_refused_by_name_with_those_that_do(kind):
    with pytest.raises(ValidationException) as caught:
        parse_definition(text(step(kind=kind)))
    message = caught.value.message
    assert f"Value {kind!r} at 'pipelineDefinition.steps.1.member.type'" in message
    assert REFUSED_TYPES[kind] in message
    assert all(each in message for each in STEP_TYPES)


def test_steps_come_after_those_that_they_name_read_or_are_in_a_branch_of():
    read = step("Read", Arguments={"X": {"Std:Join": {"On": "", "Values": [{"Get": "Steps.First.A"}]}}})
    branches = condition(IfSteps=[condition("D", ElseSteps=[step("Deep")])], ElseSteps=[step("Other")])
    parsed = parse_definition(text(read, branches, step("Last", DependsOn=["Deep"]), step("First")))
    names = list(parsed.steps)
    assert names.index("First") < names.index("Read")
    assert names.index("C") < names.index("D") < names.index("Deep") < names.index("Last")
    deep = parsed.steps["Deep"]
    assert (deep.after, deep.condition, deep.branch) == ({"D"}, "D", "False")
    assert (parsed.steps["D"].branch, parsed.steps["Other"].branch, parsed.steps["Last"].branch) == (
        "True",
        "False",
        "",
    )
    assert "IfSteps" not in parsed.steps["C"].arguments


def test_parameters_are_read_by_their_type_and_must_be_given_without_a_default():
    found = [
        {"Name": "Epochs", "Type": "Integer", "DefaultValue": 3},
        {"Name": "Rate", "Type": "Float", "DefaultValue": 1},
        {"Name": "Fast", "Type": "Boolean"},
        {"Name": "Kind", "Type": "String", "DefaultValue": "a", "EnumValues": ["a", "b"]},
    ]
    definitions = parse_definition(text(step(), Parameters=found)).parameters

    def values(**given: str) -> dict[str, Any]:
        return parameter_values(definitions, [{"Name": name, "Value": value} for name, value in given.items()])

    assert values(Fast="True", Epochs="7", Kind="b") == {"Epochs": 7, "Rate": 1, "Fast": True, "Kind": "b"}
    for given, reason in (
        ({}, "Value Fast at 'pipelineParameters' is missing"),
        ({"Fast": "perhaps"}, "'perhaps' at 'pipelineParameters.Fast' is not allowed: it is no Boolean"),
        ({"Fast": "true", "Epochs": "3.5"}, "it is no Integer"),
        ({"Fast": "true", "Rate": "nan"}, "it is no Float"),
        ({"Fast": "true", "Kind": "c"}, "its EnumValues are a, b"),
        ({"Fast": "true", "Speed": "1"}, "its parameters are Epochs, Rate, Fast, Kind"),
    ):
        with pytest.raises(ValidationException, match=reason):
            values(**given)


class Values:
    """Values of expressions, by their path."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    async def get(self, path: Get) -> Any:
        return self._values[path.name]

    async def json(self, source: Get | str) -> Any:
        return {"uri": source, "file": source.file if isinstance(source, Get) else None, "list": [{"a": 1}]}


def read(value: Any, **values: Any) -> Any:
    return asyncio.run(resolved(value, Values(**values)))


def test_expressions_are_replaced_wherever_they_are_and_joined_as_json_writes_them():
    get = {"Get": "Parameters.P"}
    assert read({"A": [get, {"B": get}], "C": {"Get": "Parameters.P", "D": 1}}, P=3) == {
        "A": [3, {"B": 3}],
        "C": {"Get": "Parameters.P", "D": 1},  # with another key it is no expression
    }
    assert read({"Std:Join": {"On": "/", "Values": ["s3:/", get, True, 1.5]}}, P=False) == "s3://false/true/1.5"
    uri = {"Std:Join": {"On": "", "Values": ["s3://b/", get]}}
    assert read({"Std:JsonGet": {"S3Uri": uri, "Path": "uri"}}, P="k") == "s3://b/k"
    file = {"Get": "Steps.A.PropertyFiles.F"}
    assert read({"Std:JsonGet": {"PropertyFile": file, "Path": "list[0].a"}}) == 1
    assert read({"Std:JsonGet": {"PropertyFile": file, "Path": "$.file"}}) == "F"


def test_a_part_is_found_by_names_numbers_and_the_name_of_a_list_element():
    whole = {"Outputs": [{"OutputName": "a", "Uri": "1"}, {"OutputName": "b", "Uri": "2"}], "Map": {"x.y": 3}}
    assert part_of(whole, "Outputs['b'].Uri", what="it") == "2"
    assert part_of(whole, "Outputs[0].Uri", what="it") == "1"
    assert part_of(whole, 'Map["x.y"]', what="it") == 3
    for path, reason in (
        ("Outputs[2]", "it has no 'Outputs.2.': 2 is not in it, but a list"),
        ("Inputs", "'Inputs' is not in it, but Map, Outputs"),
        ("Outputs[x", "is not a path: expected NAME"),
    ):
        with pytest.raises(Unresolved, match=reason):
            part_of(whole, path, what="it")


@pytest.mark.parametrize(
    ("kind", "left", "right", "outcome"),
    [
        ("Equals", "a", "a", True),
        ("Equals", "1", 1, True),
        ("Equals", "Completed", 1, False),
        ("Equals", "True", True, True),
        ("GreaterThan", 2, 1.5, True),
        ("GreaterThanOrEqualTo", "0.9", 0.9, True),
        ("LessThan", 2, 2, False),
        ("LessThanOrEqualTo", 2, "2", True),
    ],
)
def test_values_are_compared_as_numbers_if_one_is_a_number(kind, left, right, outcome):
    comparison = {"Type": kind, "LeftValue": {"Get": "Parameters.L"}, "RightValue": right}
    reader = Values(L=left)
    assert asyncio.run(holds(comparison, reader)) is outcome
    for member in ("Condition", "Expression"):  # the SDK's and the documentation's
        assert asyncio.run(holds({"Type": "Not", member: comparison}, reader)) is not outcome
    assert asyncio.run(holds({"Type": "Or", "Conditions": [comparison, comparison]}, reader)) is outcome
    among = {"Type": "In", "QueryValue": {"Get": "Parameters.L"}, "Values": [left, "other"]}
    assert asyncio.run(holds(among, reader)) is True
    assert asyncio.run(holds({**among, "Values": ["other"]}, reader)) is False


def test_a_number_and_a_word_cannot_be_ordered():
    with pytest.raises(Unresolved, match="GreaterThan cannot compare 'high' with 1"):
        asyncio.run(holds({"Type": "GreaterThan", "LeftValue": "high", "RightValue": 1}, Values()))


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("P30D", 2592000), ("p1w", 604800), ("PT12H", 43200), ("T12H", 43200), ("P4DT12H", 388800), ("P1Y2M", 36720000)],
)
def test_durations_of_iso_8601_and_those_of_the_sdk_are_read(duration, seconds):
    assert parse_caching({"Enabled": True, "ExpireAfter": duration}, allowed=True) == seconds


def test_retries_wait_longer_each_time_and_end():
    kind = "SageMaker.JOB_INTERNAL_ERROR"
    [counted] = parse_retries([{"ExceptionType": [kind], "IntervalSeconds": 2, "MaxAttempts": 2}], allowed=True)
    assert [counted.wait_s(attempts=attempts, age_s=0) for attempts in (1, 2, 3)] == [2, 4, None]
    aged = StepRetry(frozenset([kind]), 10, 1, None, 60)
    assert (aged.wait_s(attempts=9, age_s=50), aged.wait_s(attempts=9, age_s=51)) == (10, None)


@pytest.mark.parametrize(
    ("code", "status", "reason", "kind"),
    [
        ("ResourceLimitExceeded", 400, "", "SageMaker.RESOURCE_LIMIT"),
        ("ThrottlingException", 429, "", "Step.THROTTLING"),
        ("InternalFailure", 500, "", "Step.SERVICE_FAULT"),
        ("ValidationException", 400, "", ""),
        ("", 200, "InternalServerError: it broke", "SageMaker.JOB_INTERNAL_ERROR"),
        ("", 200, "CapacityError: no machine", "SageMaker.CAPACITY_ERROR"),
        ("", 200, "AlgorithmError: exit 1", ""),
    ],
)
def test_failures_are_named_as_retry_policies_name_them(code, status, reason, kind):
    assert failure_kind(code, status=status, reason=reason) == kind


def test_results_are_found_by_the_arguments_on_which_they_depend():
    job = JOBS["Training"]
    arguments = {"HyperParameters": {"a": "1", "b": "2"}, "TrainingJobName": "x", "Tags": [{"Key": "k", "Value": "v"}]}
    key = cache_key("id", "A", job, arguments)
    assert cache_key("id", "A", job, {"HyperParameters": {"b": "2", "a": "1"}, "OutputDataConfig": {}}) == key
    others = [
        cache_key("id", "A", job, {"HyperParameters": {"a": "1", "b": "3"}}),
        cache_key("id", "A", job, {**arguments, "InputDataConfig": []}),
        cache_key("id", "B", job, arguments),
        cache_key("other", "A", job, arguments),
        cache_key("id", "A", JOBS["Transform"], arguments),
    ]
    assert key not in others


def test_names_of_jobs_depend_on_the_attempt_alone_and_fit():
    execution = PipelineExecution(
        execution_id="abcdefghijkl",
        pipeline="p",
        pipeline_arn="arn:pipeline/p",
        pipeline_id="0",
        version=1,
        role="R",
        key_id="",
        starter="",
        parameters={},
        created_ms=0,
        token="",
    )
    name = job_name(execution, "Train_Model", attempt=1, longest=63)
    assert name.startswith("pipelines-abcdefghijkl-Train-Model-")
    assert name == job_name(execution, "Train_Model", attempt=1, longest=63)
    assert name != job_name(execution, "Train_Model", attempt=2, longest=63)
    assert len(job_name(execution, "x" * 64, attempt=1, longest=63)) == 63
    assert len(job_name(execution, "x" * 64, attempt=1, longest=32)) <= 32
    assert job_name(execution, "A", attempt=1, longest=63, prefix="mine").startswith("mine-abcdefghijkl-A-")
