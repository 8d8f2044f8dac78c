"""`tidemill ps`, `describe` and `stop` know the executions of pipelines."""

import json
import subprocess
import sys
from typing import Any

import pytest

SCRIPT = "import time\nprint('RUNS', flush=True)\nwhile True:\n    time.sleep(0.1)\n"


@pytest.fixture
def verb(jobs: Any) -> Any:
    """Return a function that runs a command at the service and returns its output."""

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *arguments],
            env={"PATH": "/usr/bin:/bin", **jobs.service.environment},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_an_execution_is_listed_described_and_stopped_by_its_name(jobs: Any, verb: Any) -> None:
    request = jobs.request(SCRIPT, name="watched")
    step = {"Name": "Train", "Type": "Training", "Arguments": {**request, "TrainingJobName": "watched"}}
    text = json.dumps({"Version": "2020-12-01", "Steps": [step]})
    role = request["RoleArn"]
    jobs.sagemaker.create_pipeline(PipelineName="watched", PipelineDefinition=text, RoleArn=role)
    arn = jobs.sagemaker.start_pipeline_execution(PipelineName="watched")["PipelineExecutionArn"]
    execution_id = arn.rpartition("/")[2]
    name = f"watched/{execution_id}"

    def job() -> str:
        found = jobs.sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn)["PipelineExecutionSteps"]
        arns = [step["Metadata"]["TrainingJob"]["Arn"] for step in found if "Metadata" in step]
        return arns[0].partition("/")[2] if arns else ""

    training = jobs.wait_until(job, "the job of the step")
    # The name in the definition is the begin of the job's.
    assert training.startswith(f"watched-{execution_id}-Train-")
    jobs.wait_for_line(training, "RUNS")
    listed = verb("ps").splitlines()
    assert any(line.split()[:2] == [name, "Executing"] for line in listed)
    assert any(line.split()[:2] == [training, "InProgress"] for line in listed)
    described = json.loads(verb("describe", name, "--json"))
    assert described["PipelineExecutionArn"] == arn
    assert [(each["StepName"], each["StepStatus"]) for each in described["Steps"]] == [("Train", "Executing")]
    assert f"tidemill describe {name}" in verb("stop", name)
    assert jobs.wait(training, until=("Stopped",))["TrainingJobStatus"] == "Stopped"

    def status() -> str:
        return str(jobs.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)["PipelineExecutionStatus"])

    jobs.wait_until(lambda: status() == "Stopped", status)
    assert not any(line.startswith(name) for line in verb("ps").splitlines())
    assert any(line.split()[:2] == [name, "Stopped"] for line in verb("ps", "--all").splitlines())
