"""tidemill's own SDK under the names of AWS's: a notebook without AWS's SDK, and pipelines as AWS's SDK writes them."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

RunSdk = Callable[[str, str], list[str]]

ONLY_V2 = {"DebugHookConfig", "ProfilerConfig", "EnableSageMakerMetricsTimeSeries", "SkipModelValidation"}
"""Members that AWS's SDK sends unasked: of a debugger, a profiler and a store of metrics that do not exist here."""

OF_ITS_OWN = {
    # AWS's SDK names the estimator of a tuner, but not of a training.
    *("sagemaker_estimator_class_name", "sagemaker_estimator_module", "sagemaker_job_name"),
    # Each has its own script that packs code into a model.
    *("dependencies", "model_archive", "source_dir", "sagemaker_program"),
}
"""Hyperparameters that differ."""

STEPS = [
    *("Prepare", "Older", "Command", "Framework", "Train", "Again", "Tune", "Several", "Best-CreateModel", "Score"),
    *("ScoreAgain", "Check", "Plain-RegisterModel", "Code-RepackModel-0", "Code-CreateModel", "Inner", "TooMany"),
    *("TooFew", "OldModel", "OldRegister-RegisterModel", "Configure", "Serve"),
]


@pytest.mark.matrix
def test_a_notebook_for_version_2_runs_without_awss_sdk(run_sdk: RunSdk) -> None:
    lines = run_sdk("own", "notebook.py")
    instead = [line for line in lines if line.startswith("INSTEAD")]
    assert [line for line in lines if line not in instead] == [
        "IMAGE tensorflow-training:2.21.0-cpu-py311 tensorflow-training True",
        "UPLOADED True 4",
        "PROCESSED {'rows': {'count': 7}}",
        "TRAINED True ['loss'] [0.5]",
        "TRACKED [7.0] True",
        "FAILED True",
        "TUNED 4 True ['first', 'second']",
        "LISTED ['a.tar.gz', 'deep/b.tar.gz'] MultiModel True",
        "EXECUTED Succeeded ['Best-CreateModel', 'Check', 'Prepare', 'Register-RegisterModel',"
        " 'Register-RepackModel-0', 'Train', 'Tune']",
        "PACKED ['code/inference.py', 'weights.txt'] TENSORFLOW",
        "WAITED WaiterError",
        "REFUSED only 3 rows 1",
        "CACHED ['Prepare']",
        "SELECTED ['Train']",
    ]
    for line, part in zip(
        instead, ("script of a ProcessingStep", "tf.profiler", "there is no PyTorch", "name_from_base"), strict=True
    ):
        assert part in line


def test_definitions_of_pipelines_are_those_of_awss_sdk(run_sdk: RunSdk) -> None:
    theirs, ours = (
        dict(line.split(" ", 1) for line in run_sdk(environment, "definitions.py")) for environment in ("peers", "own")
    )
    for kind in ("DEFINITION", "NAMED"):
        expected, found = json.loads(theirs[kind]), json.loads(ours[kind])
        assert found["Parameters"] == expected["Parameters"]
        assert found["PipelineExperimentConfig"] == expected["PipelineExperimentConfig"]
        expected_steps, found_steps = (dict(steps(each["Steps"])) for each in (expected, found))
        assert list(found_steps) == list(expected_steps) == (STEPS if kind == "DEFINITION" else ["Named"])
        if "OldRegister-RegisterModel" in found_steps:  # AWS's SDK names the framework in the newer form alone
            (container,) = found_steps["OldRegister-RegisterModel"]["Arguments"]["InferenceSpecification"]["Containers"]
            assert (container.pop("Framework"), container.pop("FrameworkVersion")) == ("TENSORFLOW", "2.19")
        for name, step in expected_steps.items():
            assert comparable(found_steps[name]) == comparable(step), name


@pytest.mark.matrix
def test_local_mode_of_awss_sdk_runs_at_the_service_by_tidemill_run(run_sdk: RunSdk) -> None:
    lines = run_sdk("own-peers", "local_mode.py")
    assert [line for line in lines if not line.startswith("ROWS")] == [
        "ROLE arn:aws:iam::000000000000:role/SageMakerRole",
        "TRAINED Completed local s3://",
        "PROCESSED Completed",
        "EXECUTED Succeeded",
    ]


def test_local_mode_of_awss_sdk_alone_needs_docker_compose(run_sdk: RunSdk) -> None:
    with pytest.raises(AssertionError, match=r"Docker Compose is not installed|No such file or directory: 'docker'"):
        run_sdk("peers", "local_mode.py")


def steps(given: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the steps of a definition by name, with names in place of the steps of branches."""
    for step in given:
        arguments = dict(step["Arguments"])
        branches = [arguments.get(branch, []) for branch in ("IfSteps", "ElseSteps")]
        for branch in ("IfSteps", "ElseSteps"):
            if branch in arguments:
                arguments[branch] = [each["Name"] for each in arguments[branch]]
        yield step["Name"], {**step, "Arguments": arguments}
        for branch in branches:
            yield from steps(branch)


def comparable(value: Any) -> Any:
    """Return a value without what differs on purpose, or with each call."""
    if isinstance(value, dict):
        members = {name: comparable(each) for name, each in value.items() if name not in ONLY_V2 | OF_ITS_OWN}
        # One is the older name of the other, which the service shows, too.
        resources = members.pop("HyperParameterTuningResourceConfig", None)
        return members if resources is None else {**members, "ResourceConfig": resources}
    if isinstance(value, list):
        return [comparable(each) for each in value]
    return _plain(value) if isinstance(value, str) else value


def _plain(text: str) -> str:
    text = re.sub(r"^\d{12}\.dkr\.ecr\..*?/([a-z-]+:\d+\.\d+)(\.\d+)?", r"\1", text)  # the registry and the patch
    text = text.removesuffix("/") if text.startswith("/opt/ml") else text
    # AWS's SDK puts the code of steps in their older form below a name with the time.
    text = re.sub(
        r"(everything|named)/code/[0-9a-f]{64}|[a-z-]+-\d{4}(-\d\d){5}-\d{3}/(source|input/code)", "CODE", text
    )
    return re.sub(r"^(s3://[^/]*/)[a-z-]+-\d{4}(-\d\d){5}-\d{3}$", r"\1", text)
