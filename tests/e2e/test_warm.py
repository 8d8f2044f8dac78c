"""Warm starts through the whole stack: the same script sees the same environment after a cold and a warm start."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = """
    import json, os, sys
    warm = "tensorflow" in sys.modules
    import tensorflow as tf
    print("WARM", warm)
    print("WORLD", json.dumps({
        "argv": sys.argv, "cwd": os.getcwd(), "name": __name__, "file": __file__, "path": sys.path,
        "environment": {k: v for k, v in os.environ.items()
                        if not k.startswith(("AWS_", "SM_TRAINING_ENV", "SM_HPS", "TRAINING_JOB_", "TIDEMILL_INSTANCE"))
                        and k not in ("SAGEMAKER_JOB_NAME", "SM_HP_RUN", "SM_USER_ARGS", "SM_MODULE_DIR")},
        "sum": float(tf.reduce_sum(tf.ones([3]))),
    }, sort_keys=True))
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "w"), "w") as file:
        file.write("1")
"""


@pytest.fixture(scope="module", params=["auto", "plain"])
def warm_service(request: pytest.FixtureRequest, wait_until: Callable[..., Any]) -> Iterator[Service]:
    with Service(settings={"warm": True, "isolation": request.param}) as service:
        wait_until(lambda: list((service.state_dir / "warm").glob("*.sock")), "a warm process")
        yield service


def world(jobs: Any, job: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    log = jobs.log(job["TrainingJobName"])
    found = {line.split()[0]: line.partition(" ")[2] for line in log if line.startswith(("WARM ", "WORLD "))}
    text = found["WORLD"].replace(job["TrainingJobName"], "JOB")
    return found["WARM"] == "True", json.loads(text)


def test_a_warm_script_has_the_same_environment_as_a_cold_one(warm_service: Service, jobs_of: Any) -> None:
    jobs = jobs_of(warm_service)
    values = {"HyperParameters": {"epochs": "3", "note": json.dumps("a b; $x")}}
    was_warm, warm = world(jobs, jobs.run(SCRIPT, **values))
    # A variable that TensorFlow reads when it is imported forces a cold start.
    was_cold, cold = world(jobs, jobs.run(SCRIPT, **values, Environment={"TF_MARK": "1"}))
    assert (was_warm, was_cold) == (True, False)
    with urllib.request.urlopen(f"{warm_service.url}/healthz") as health:
        assert json.load(health)["warm"] == "on"
    assert cold["environment"].pop("TF_MARK") == "1"
    for seen in (warm, cold):
        # In mode plain, directories contain the name of the job.
        base = seen["environment"].get("SAGEMAKER_BASE_DIR", "/opt/ml")
        for key, value in seen["environment"].items():
            seen["environment"][key] = value.replace(base.removesuffix("/ml"), "BASE") if base != "/opt/ml" else value
        for key in ("cwd", "file"):
            seen[key] = seen[key].replace(base, "BASE")
        seen["path"] = [entry.replace(base, "BASE") for entry in seen["path"]]
    assert warm == cold


def test_a_warm_script_reads_a_stream(warm_service: Service, jobs_of: Any) -> None:
    script = """
    import os, sys
    warm = "tensorflow" in sys.modules
    from sagemaker_tensorflow import PipeModeDataset

    base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
    stream = PipeModeDataset("train", "TextLine", state_dir=f"{base}/pipe_state", pipe_dir=f"{base}/input/data",
                             config_dir=f"{base}/input/config")
    print("READ", warm, *(b" ".join(list(stream.as_numpy_iterator())).decode() for _ in range(2)), flush=True)
    """
    jobs = jobs_of(warm_service)
    jobs.s3.put_object(Bucket=BUCKET, Key="warm/a", Body=b"one\ntwo\nthree")
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/warm/a"}}
    job = jobs.run(script, InputDataConfig=[{"ChannelName": "train", "InputMode": "Pipe", "DataSource": source}])
    assert job["TrainingJobStatus"] == "Completed", job
    assert "READ True one two three one two three" in jobs.log(job["TrainingJobName"])


def test_a_warm_script_that_fails_shows_its_own_traceback(warm_service: Service, jobs_of: Any) -> None:
    jobs = jobs_of(warm_service)
    job = jobs.run("import sys\ndef f():\n    return 1 / 0\nprint('tensorflow' in sys.modules)\nf()")
    assert job["TrainingJobStatus"] == "Failed"
    assert "ZeroDivisionError: division by zero" in job["FailureReason"]
    assert 'train.py", line 3, in f' in job["FailureReason"]
    assert "True" in jobs.log(job["TrainingJobName"])


def test_a_warm_script_gets_its_time_to_stop(warm_service: Service, jobs_of: Any) -> None:
    jobs = jobs_of(warm_service)
    name = jobs.create(
        """
        import os, signal, sys, time
        def save(*_):
            open(os.path.join(os.environ["SM_MODEL_DIR"], "saved"), "w").write("in time")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready", "tensorflow" in sys.modules, flush=True)
        time.sleep(600)
        """
    )
    jobs.wait(name, until=("Training",))
    jobs.wait_for_line(name, "ready True")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Stopped"
    assert jobs.model_files(job) == {"saved": b"in time"}
