"""Commands at a service that is named by its URL, as users of another machine's service use them.

The commands run in this process, because each start of one would cost as much as the whole test.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
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
        assert self.out, self
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


def test_ps_filters_and_compares(command: Command, jobs: Any, two: tuple[str, str]) -> None:
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
    running = f"running-{begin}"
    members = {"AlgorithmSpecification": jobs.describe(one)["AlgorithmSpecification"]}
    jobs.create("import time; print('loss=0.125', flush=True); time.sleep(600)", name=running, **members)
    jobs.wait_for_line(running, "loss=0.125")
    latest = command("ps", "--compare", "loss", "--name", running, "--json").json["jobs"][0]
    assert (latest["status"], latest["metrics"]) == ("InProgress", {"loss": 0.125})
    command("stop", running)
    jobs.wait(running)
    unknown = command("ps", "--compare", "accuracy", "--name", begin)
    assert unknown.code == 1
    assert "no job of the list has the metric accuracy; there are loss" in unknown.err


def test_json_is_one_document_of_the_documented_form(
    command: Command, service: Service, two: tuple[str, str], root: Path, tmp_path: Path
) -> None:
    one, _ = two
    (tmp_path / "train.py").write_text("print(1)")
    runs = {
        "status": ("status",),
        "open": ("open", "--no-browser"),
        "train": ("train", "train.py", "--name", f"json-{uuid.uuid4().hex[:6]}"),
        "ps": ("ps", "--all", "--limit", "1"),
        "logs": ("logs", one, "-n", "1"),
        "describe": ("describe", one),
        "environments list": ("environments", "list", "--available"),
        "examples list": ("examples", "list"),
        "examples get": ("examples", "get", "digits"),
        "keys add": ("keys", "add", "ada"),
        "keys list": ("keys", "list"),
        "keys revoke": ("keys", "revoke", "ada"),
        "metrics add": ("metrics", "add", "ada"),
        "metrics list": ("metrics", "list"),
        "metrics revoke": ("metrics", "revoke", "ada"),
        "doctor": ("doctor",),
        "env": ("env", "--state-dir", str(service.state_dir)),
        "up": ("up", "--state-dir", str(service.state_dir)),
        "gc": ("gc", "--dry-run", "--state-dir", str(service.state_dir)),
        "down": ("down", "--state-dir", str(tmp_path / "none")),
        "service status": ("service", "status"),
        "service uninstall": ("service", "uninstall", "--name", "no-such-unit"),
    }
    documented = forms(root)
    for name, arguments in runs.items():
        ended = command(*arguments, "--json")
        assert ended.code in (0, 1) if name == "doctor" else ended.code == 0, (name, ended)
        answer = ended.json[0] if isinstance(ended.json, list) else ended.json
        names = {each for each in answer if not each[0].isupper()}
        assert names <= documented[name] | {"public_url"}, name
        assert names or name in ("describe", "env"), name
    for arguments, code, kind in (
        (("describe", "nobody"), 1, "NotFound"),
        (("keys", "revoke", "nobody"), 1, "CommandFailed"),
        (("ps", "--limit", "x"), 2, "WrongUsage"),
        (("nonsense",), 2, "WrongUsage"),
        (("ps", "--endpoint-url", "http://127.0.0.1:9"), 1, "NoAnswer"),
    ):
        failed = command(*arguments, "--json")
        assert (failed.code, failed.json["error"]["code"]) == (code, kind), failed
        assert failed.json["error"]["message"]


def forms(root: Path) -> dict[str, set[str]]:
    """Return the documented members by command."""
    rows = re.findall(r"^\| `([a-z ]+)` \| (.*) \|$", (root / "docs/reference/json.md").read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`([a-z_]+)`", text)) for name, text in rows}


def test_tab_completes_jobs_endpoints_environments_and_options(
    variables: dict[str, str], two: tuple[str, str], service: Service
) -> None:
    one, other = two
    by_state = {name: value for name, value in variables.items() if name != "TIDEMILL_ENDPOINT_URL"}
    tidemill = [sys.executable, "-c", COMPLETE]

    def complete(line: str, *, shell: str = "bash", environment: dict[str, str] = variables) -> list[str]:
        words = line.split(" ")
        asked = {
            "_TIDEMILL_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        }
        ended = subprocess.run(tidemill, env=environment | asked, capture_output=True, text=True, check=False)
        loaded = set(json.loads(ended.stderr.splitlines()[-1]))
        assert not loaded & {"boto3", "botocore", "pydantic_settings", "rich", "tidemill.sdk"}, line
        return [each for each in ended.stdout.splitlines() if each]

    assert complete(f"tidemill logs {one[:10]}") == [other, one]
    assert complete(f"tidemill describe {one}") == [one]
    local = complete(f"tidemill stop --state-dir {service.state_dir} {other[:-1]}", environment=by_state)
    assert local == [other]
    assert complete(f"tidemill delete {one[:10]}") == []
    assert complete("tidemill lo") == ["logs"]
    assert {"tf-2.20", "tf-2.21"} <= set(complete("tidemill environments build tf-2.2"))
    assert complete("tidemill logs --gr") == ["--grep"]
    assert complete("tidemill examples get dig") == ["digits"]
    assert complete(f"tidemill logs {one[:10]}", shell="fish") == [other, one]
    assert f'"{one}"' in complete(f"tidemill logs {one[:10]}", shell="zsh")[1]
    assert complete(f"tidemill logs {one[:10]}", environment=by_state) == []  # no service runs there


COMPLETE = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps([name for name, module in sys.modules.items() if module]), file=sys.stderr))
from tidemill.cli import main
main()
"""


def test_bash_completes_by_the_script_that_the_program_prints(variables: dict[str, str], two: tuple[str, str]) -> None:
    bin_directory = Path(sys.executable).parent
    shell = variables | {"PATH": f"{bin_directory}:/usr/bin:/bin", "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    program = f"""
        eval "$(tidemill --show-completion bash)"
        COMP_WORDS=(tidemill logs {two[0]}); COMP_CWORD=2
        _tidemill_completion tidemill
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    shown = subprocess.run(["bash", "-c", program], env=shell, capture_output=True, text=True, check=True)
    assert shown.stdout == f"{two[0]}\n", shown.stderr


def test_train_sends_what_the_estimator_would(command: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.csv").write_text("1,2")
    printed = command(
        *(
            "train",
            "train.py",
            "--dry-run",
            "--name",
            "dry",
            "--instance-count",
            "2",
            "--instance-type",
            "ml.c5.xlarge",
        ),
        *("--volume-size", "7", "--hp", "rate=0.5", "--env", "MODE=fast", "--role", "Trainer"),
        *("--distribution", "mpi,processes_per_host=2", "--input-mode", "Pipe"),
        *("--input", "train=data,content_type=text/csv,distribution=ShardedByS3Key,shuffle_seed=3"),
        *("--input", "augmented=s3://bucket/m.json,s3_data_type=AugmentedManifestFile,attribute_names=image:label"),
        *("--input", "plain=s3://bucket/p,input_mode=FastFile", "--metric", "loss=l=(.*)", "--metric", "accuracy"),
        *("--checkpoint-s3-uri", "s3://bucket/c", "--checkpoint-local-path", "/opt/ml/saved"),
        *("--spot", "--max-run", "60", "--max-wait", "120", "--max-retry-attempts", "3", "--tag", "team=a b"),
    )
    request = printed.json
    assert (printed.code, request["TrainingJobName"]) == (0, "dry")
    assert request["ResourceConfig"] == {"InstanceCount": 2, "InstanceType": "ml.c5.xlarge", "VolumeSizeInGB": 7}
    assert request["AlgorithmSpecification"]["TrainingInputMode"] == "Pipe"
    loss, accuracy = request["AlgorithmSpecification"]["MetricDefinitions"]
    assert loss == {"Name": "loss", "Regex": "l=(.*)"}
    assert re.search(accuracy["Regex"], "step 3 - accuracy: 0.25")[1] == "0.25"  # type: ignore[index]
    channels = {each["ChannelName"]: each for each in request["InputDataConfig"]}
    source = channels["train"]["DataSource"]["S3DataSource"]
    assert source["S3Uri"].startswith("s3://sagemaker-us-west-2-000000000000/tidemill-inputs/")
    assert source["S3DataDistributionType"] == "ShardedByS3Key"
    assert (channels["train"]["ContentType"], channels["train"]["ShuffleConfig"]) == ("text/csv", {"Seed": 3})
    assert channels["augmented"]["DataSource"]["S3DataSource"]["AttributeNames"] == ["image", "label"]
    assert channels["plain"]["InputMode"] == "FastFile"
    assert request["CheckpointConfig"] == {"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/saved"}
    assert request["EnableManagedSpotTraining"] is True
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120}
    assert request["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert request["Tags"] == [{"Key": "team", "Value": "a b"}]
    assert request["Environment"] == {"MODE": "fast"}
    assert request["RoleArn"].endswith(":role/Trainer")
    assert request["HyperParameters"]["sagemaker_mpi_enabled"] == "true"
    assert request["HyperParameters"]["sagemaker_mpi_num_of_processes_per_host"] == "2"
    assert "no job, execution or endpoint" in command("describe", "dry").err  # nothing was sent
    bucket = "sagemaker-us-west-2-000000000000"
    nothing = command("train", "train.py", "--dry-run", "--distribution", '{"parameter_server": {"enabled": true}}')
    assert nothing.json["HyperParameters"]["sagemaker_parameter_server_enabled"] == "true"
    assert nothing.json["OutputDataConfig"]["S3OutputPath"] == f"s3://{bucket}/"
    for wrong in (
        ("--distribution", "{"),
        ("--input", "a=s3://bucket/p,input_mode=Fast"),
        ("--input", "a=s3://bucket/p,shuffle_seed=x"),
        ("--input-mode", "Slow"),
        ("--tag", "a"),
    ):
        assert command("train", "train.py", "--dry-run", *wrong).code == 2, wrong
    assert "unknown kind 'ring'" in command("train", "train.py", "--dry-run", "--distribution", "ring").err


def test_train_needs_no_service_for_a_dry_run(command: Command, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    printed = command("train", "train.py", "--dry-run", "--state-dir", str(tmp_path / "none"))
    assert printed.json["ResourceConfig"]["InstanceType"] == "local"
    assert not (tmp_path / "none").exists()


def test_train_at_a_named_service_honors_its_options(command: Command, jobs: Any, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        textwrap.dedent("""
        import os, pathlib
        print("loss=0.75", os.environ["MODE"], pathlib.Path("/opt/ml/saved").is_dir())
        """)
    )
    name = f"options-{uuid.uuid4().hex[:6]}"
    ended = command(
        *("train", "train.py", "--name", name, "--metric", "loss=loss=([0-9.]+)", "--env", "MODE=fast", "--json"),
        *("--checkpoint-s3-uri", "s3://sagemaker-us-west-2-000000000000/c", "--checkpoint-local-path", "/opt/ml/saved"),
        *("--spot", "--max-run", "60", "--max-wait", "120", "--tag", "team=a"),
    )
    assert ended.json == {"name": name, "status": "Completed", "model": None}
    assert "loss=0.75 fast True" in ended.err  # the log is no result
    job = jobs.describe(name)
    assert job["EnableManagedSpotTraining"] is True
    assert [each["Value"] for each in job["FinalMetricDataList"]] == [0.75]
    assert jobs.sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"] == [{"Key": "team", "Value": "a"}]
    assert jobs.sagemaker.list_training_jobs(NameContains=name)["TrainingJobSummaries"]


def test_earlier_runs_of_a_script_tell_how_long_it_takes(command: Command, jobs: Any, tmp_path: Path) -> None:
    script = f"timed_{uuid.uuid4().hex[:6]}.py"
    (tmp_path / script).write_text("print(1)")
    first = command("train", script)
    assert first.code == 0
    assert "takes about" not in first.err  # nothing to tell from
    second = command("train", script, "--hp", "rate=0.5")
    assert "as one run of the same code" in second.err
    assert "hyperparameters" not in second.err
    assert (
        "as one run of the same code with the same hyperparameters" in command("train", script, "--hp", "rate=0.5").err
    )
    (tmp_path / script).write_text("import time; time.sleep(600)")
    name = f"timed-{uuid.uuid4().hex[:6]}"
    other = command("train", script, "--no-wait", "--name", name)
    assert f"tidemill: {name} takes about" in other.err
    assert f"the median of 3 runs of {script}" in other.err
    assert (
        "takes about" not in command("train", script, "--no-wait", "--name", f"{name}-2", "--instance-count", "2").err
    )
    jobs.wait(name, until=("Training",))
    estimate = command("describe", name, "--json").json["Estimate"]
    assert (estimate["Runs"], estimate["Basis"]) == (3, f"of {script}")
    took = [jobs.describe(each["TrainingJobName"]) for each in command("ps", "--all", "--json").json["jobs"]]
    times = sorted(
        (job["TrainingEndTime"] - job["TrainingStartTime"]).total_seconds()
        for job in took
        if job["HyperParameters"]["sagemaker_program"] == f'"{script}"' and job["TrainingJobStatus"] == "Completed"
    )
    assert estimate["TypicalSeconds"] == pytest.approx(times[1], abs=0.1)
    assert "Estimate:" in command("describe", name).out
    assert len(command("ps", "--name", name, "--kind", "training").out.splitlines()) == 3
    for each in (name, f"{name}-2"):
        command("stop", each)
        jobs.wait(each)
