"""Commands at a service that is named by its URL, as users of another machine's service use them.

The commands run in this process, because each start of one would cost as much as the whole test.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidemill.cli import main
from tidemill.testing import Service

SCRIPT = """
    import argparse, os, time
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=0.1)
    rate = parser.parse_known_args()[0].rate
    host = os.environ["SM_CURRENT_HOST"]
    for step in range(5):
        print(f"{host} step={step} loss={rate * (5 - step):.2f}", flush=True)
"""
METRICS = [{"Name": "loss", "Regex": r"loss=([0-9.]+)"}]


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Ended]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"max_instances": 4}) as service:
        yield service


@pytest.fixture(scope="module")
def jobs(service: Service, jobs_of: Any) -> Any:
    return jobs_of(service)


@pytest.fixture
def variables(service: Service, tmp_path: Path) -> dict[str, str]:
    """The environment of a user of another machine: address and keys, and no state directory with a service."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_"))}
    keys = {name: value for name, value in service.environment.items() if name.startswith("AWS_") and "KEY" in name}
    own = {"TIDEMILL_STATE_DIR": str(tmp_path / "no-state"), "TIDEMILL_CONFIG": os.devnull, "HOME": str(tmp_path)}
    return {**kept, **keys, **own, "AWS_REGION": "us-west-2", "TIDEMILL_ENDPOINT_URL": service.url}


@pytest.fixture
def command(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    for name in [name for name in os.environ if name.startswith(("TIDEMILL_", "AWS_"))]:
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(arguments)
        shown = capsys.readouterr()
        return Ended(int(end.value.code or 0), shown.out, shown.err)

    return run


@pytest.fixture(scope="module")
def two(jobs: Any) -> tuple[str, str]:
    """Return the names of two ended jobs, the second with two instances; both begin with the same text."""
    mark = uuid.uuid4().hex[:6]
    names = (f"two-{mark}-one", f"two-{mark}-other")
    members = {
        "AlgorithmSpecification": {
            "TrainingImage": "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311",
            "TrainingInputMode": "File",
            "MetricDefinitions": METRICS,
        }
    }
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    jobs.create(SCRIPT, name=names[0], HyperParameters={"rate": "0.5", "same": "1"}, **members)
    jobs.wait(names[0])
    jobs.create(
        SCRIPT, name=names[1], HyperParameters={"rate": "0.25", "same": "1"}, ResourceConfig=resources, **members
    )
    jobs.wait(names[1])
    return names


def test_a_begin_that_only_one_name_has_is_enough_and_nothing_is_the_last_job(
    command: Command, two: tuple[str, str]
) -> None:
    one, other = two
    found = command("describe", one[:-1], "--json")
    assert (found.code, found.json["TrainingJobName"]) == (0, one)
    assert found.err == f"tidemill: {one} (job)\n"
    assert command("describe", one, "--json").err == ""
    for last in ((), ("-",)):
        assert command("describe", *last, "--json").json["TrainingJobName"] == other
        assert f"tidemill: {other} (job)\n" in command("logs", *last).err
    several = command("describe", one[:10])
    assert several.code == 1
    assert f"{one} (job)" in several.err and f"{other} (job)" in several.err
    assert "begins several names" in several.err
    assert "no job, execution or endpoint named" in command("describe", one[1:]).err
    assert "no job, execution or endpoint named" in command("describe", "odd name!").err
    assert command("download", other[:-1]).code == 1  # it has no model
    assert f"training job {other} is Completed" in command("download", other[:-1]).err


def test_what_ends_something_takes_no_last_and_no_begin_of_several(command: Command, jobs: Any) -> None:
    mark = uuid.uuid4().hex[:6]
    names = [jobs.create("import time; time.sleep(600)", name=f"end-{mark}-{each}") for each in "ab"]
    for verb in ("stop", "interrupt"):
        refused = command(verb, "-")
        assert refused.code == 1
        assert f"`tidemill {verb}` needs a name" in refused.err and names[1] in refused.err
        assert "begins several names" in command(verb, f"end-{mark}").err
    assert command("delete", "-").code == 1
    assert "is a job: jobs stay" in command("delete", names[0]).err
    assert "no job, execution or endpoint named" in command("delete", names[0][:-1]).err
    assert {jobs.describe(name)["TrainingJobStatus"] for name in names} == {"InProgress"}
    stopped = command("stop", f"end-{mark}-a")
    assert f"{names[0]} is stopping" in stopped.out
    assert jobs.wait(names[0])["TrainingJobStatus"] == "Stopped"
    assert jobs.describe(names[1])["TrainingJobStatus"] == "InProgress"
    assert command("stop", names[1]).code == 0
    jobs.wait(names[1])


def test_the_log_is_filtered_by_text_instance_time_and_number(command: Command, two: tuple[str, str]) -> None:
    _, other = two
    everything = command("logs", other).out.splitlines()
    assert any(line.startswith("[algo-1] ") for line in everything)
    assert any(line.startswith("[algo-2] ") for line in everything)
    found = command("logs", other, "--grep", r"step=[34] ").out.splitlines()
    assert sorted(found) == [f"[algo-{n}] algo-{n} step={s} loss={0.25 * (5 - s):.2f}" for n in (1, 2) for s in (3, 4)]
    assert (
        command("logs", other, "--grep", "step=", "-n", "2").out.splitlines()
        == [line for line in everything if "step=" in line][-2:]
    )
    only = command("logs", other, "--instance", "algo-2", "--grep", "step=").out.splitlines()
    assert only == [f"algo-2 step={s} loss={0.25 * (5 - s):.2f}" for s in range(5)]
    assert command("logs", other, "--tail", "3").out.splitlines() == everything[-3:]
    assert command("logs", other, "--tail", "0").out == ""
    assert command("logs", other, "--since", "2h").out.splitlines() == everything
    assert command("logs", other, "--since", "2099-01-01").out == ""
    unknown = command("logs", other, "--instance", "algo-3")
    assert unknown.code == 1
    assert "has no line of algo-3; there are lines of algo-1, algo-2" in unknown.err
    for wrong in (("--grep", "("), ("--since", "soon"), ("--tail", "-1")):
        assert command("logs", other, *wrong).code == 2


def test_following_goes_on_after_a_restart_of_the_service(
    variables: dict[str, str], jobs: Any, service: Service
) -> None:
    script = """
        import pathlib, time
        print("before", flush=True)
        while not pathlib.Path("/opt/ml/checkpoints/go").exists():
            time.sleep(0.05)
        print("after", flush=True)
    """
    checkpoints = {"S3Uri": "s3://sagemaker-us-west-2-000000000000/follow-checkpoints"}
    name = jobs.create(script, CheckpointConfig=checkpoints)
    command = [sys.executable, "-m", "tidemill.cli", "logs", "-f", name, "--grep", "before|after"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "before\n"
        service.stop()
        assert tail.stdout.readline() == f"The service at {service.url} does not answer; trying again.\n"
        service.start()
        for directory in service.state_dir.glob("jobs/**/checkpoints"):
            (directory / "go").touch()
        assert tail.stdout.read() == "after\n"
        assert tail.wait(60) == 0


def test_ps_filters_and_compares(command: Command, two: tuple[str, str]) -> None:
    one, other = two
    begin = one[:10]
    listed = command("ps", "--all", "--name", begin, "--kind", "training", "--json").json
    assert list(listed) == ["jobs"]
    assert [job["TrainingJobName"] for job in listed["jobs"]] == [other, one]
    assert command("ps", "--name", begin, "--status", "Failed", "--kind", "training").out == "no jobs, no endpoints\n"
    assert one in command("ps", "--name", begin, "--since", "1h").out
    assert one not in command("ps", "--name", begin, "--since", "2099-01-01").out
    assert command("ps", "--kind", "nonsense").code == 2
    lines = command("ps", "--compare", "loss", "--name", begin).out.splitlines()
    assert lines[0].split() == ["JOB", "STATUS", "LOSS", "rate"]
    assert [line.split() for line in lines[1:]] == [
        [other, "Completed", "0.25", "0.25"],
        [one, "Completed", "0.5", "0.5"],
    ]
    compared = command("ps", "--compare", "loss", "--name", begin, "--json").json["jobs"]
    assert compared[1] == {
        "name": one,
        "status": "Completed",
        "metrics": {"loss": 0.5},
        "hyperparameters": {"rate": "0.5", "same": "1"},
    }
    unknown = command("ps", "--compare", "accuracy", "--name", begin)
    assert unknown.code == 1
    assert "no job of the list has the metric accuracy; there are loss" in unknown.err
