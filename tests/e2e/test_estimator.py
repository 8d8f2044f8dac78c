"""The estimator against a real service, used by a client script in a separate process."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemill.testing import Service

Client = Callable[..., "subprocess.CompletedProcess[str]"]

# The model comes from a channel, so the script needs no TensorFlow.
MODEL = """
    import argparse, os, tarfile

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--scale", type=float)
        parser.add_argument("--model_dir", type=str)
        parser.add_argument("--train", type=str, default=os.environ.get("SM_CHANNEL_TRAIN"))
        args, _ = parser.parse_known_args()
        print("scale", args.scale, "files", sorted(os.listdir(args.train)), flush=True)
        with tarfile.open(args.train + "/deep/model.tar.gz") as archive:
            archive.extractall(os.environ["SM_MODEL_DIR"], filter="data")
"""


@pytest.fixture
def variables(tidemill_service: Service, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a client that finds the service as its user's local one."""
    home = tmp_path / "home"
    home.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TIDEMILL_STATE_DIR": str(tidemill_service.state_dir),
        "TIDEMILL_ENVIRONMENTS_DIR": os.environ["TIDEMILL_ENVIRONMENTS_DIR"],
    }


@pytest.fixture
def client(variables: dict[str, str], tmp_path: Path) -> Client:
    """Return a function that runs a client script in `tmp_path`."""

    def run(script: str, *prefix: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "client.py").write_text(textwrap.dedent(script))
        command = [sys.executable, *prefix, "client.py"]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    return run


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def test_fit_attach_deploy_predict_delete(client: Client, saved_model: Path, tmp_path: Path) -> None:
    write(tmp_path / "train.py", MODEL)
    write(tmp_path / "data/a.txt", "a")
    (tmp_path / "data/deep").mkdir()
    shutil.copy(saved_model, tmp_path / "data/deep")
    done = client(
        """
        from tidemill.sdk import TensorFlow

        estimator = TensorFlow(entry_point="train.py", role="SageMakerRole", train_instance_count=1,
                               train_instance_type="local", framework_version="2.21", py_version="py3",
                               hyperparameters={"scale": 3})
        estimator.fit({"train": "file://data"})
        again = TensorFlow.attach(estimator.latest_training_job.name)
        predictor = again.deploy(initial_instance_count=1, instance_type="local")
        print("PREDICTED", predictor.predict({"instances": [1.0, 2.0]}))
        predictor.delete_endpoint()
        """
    )
    assert "scale 3.0 files ['a.txt', 'deep']" in done.stdout
    assert "PREDICTED {'predictions': [2.5, 3.0]}" in done.stdout
    assert done.stdout.index("Downloading") < done.stdout.index("files [") < done.stdout.index("Completed")


def test_aws_import_names_run_as_printed_in_its_documents(
    client: Client, tmp_path: Path, build_environment: Callable[[str], Any]
) -> None:
    build_environment("1.15")
    write(tmp_path / "tf-train.py", "import argparse\nprint('ran', argparse.__name__)")
    write(tmp_path / "data/a.txt", "a")
    done = client(
        """
        from sagemaker.session import s3_input
        from sagemaker.tensorflow import TensorFlow
        import sagemaker

        session = sagemaker.Session()
        uri = session.upload_data("data", key_prefix="printed")
        tf_estimator = TensorFlow(entry_point="tf-train.py", role="SageMakerRole",
                                  train_instance_count=1, train_instance_type="ml.p2.xlarge",
                                  framework_version="1.12", py_version="py3")
        tf_estimator.fit(s3_input(uri), wait=False)
        training_job_name = tf_estimator.latest_training_job.name
        tf_estimator = TensorFlow.attach(training_job_name=training_job_name)
        """,
        "-m",
        "tidemill.cli",
        "run",
    )
    assert "ran argparse" in done.stdout
    assert "TensorFlow 1.12.0 has no environment; running on 1.15.5 instead" in done.stdout


def test_an_error_in_the_script_is_shown_as_its_traceback(client: Client, tmp_path: Path) -> None:
    write(
        tmp_path / "src/train.py",
        """
        from steps import prepare

        if __name__ == "__main__":
            prepare({"rows": 0})
        """,
    )
    write(
        tmp_path / "src/steps.py",
        """
        def prepare(config):
            return 1 / config["rows"]
        """,
    )
    done = client(
        """
        from tidemill.sdk import TensorFlow

        TensorFlow(entry_point="train.py", source_dir="src", role="R", instance_count=1, instance_type="local",
                   framework_version="2.21", py_version="py311").fit()
        """,
        check=False,
    )
    assert done.returncode != 0
    assert "ZeroDivisionError: division by zero" in done.stdout, "the log shows the script's own traceback"
    assert 'return 1 / config["rows"]' in done.stdout
    assert "JobFailed" in done.stderr
    reason = done.stderr[done.stderr.index("AlgorithmError") :]
    assert "ZeroDivisionError: division by zero" in reason
    assert 'steps.py", line 3, in prepare' in reason


def wheel(directory: Path, name: str, text: str) -> None:
    """Write a wheel with one module, so that installing it downloads nothing."""
    directory.mkdir(parents=True)
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(directory / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def test_requirements_are_installed_and_their_failure_is_reported(client: Client, tmp_path: Path, jobs: Any) -> None:
    wheel(tmp_path / "src/vendored", "tides", "HIGH = 'high water'")
    write(tmp_path / "src/requirements.txt", "./vendored/tides-1.0-py3-none-any.whl\n")
    write(tmp_path / "src/train.py", "import tides, numpy; print(tides.HIGH, numpy.__name__)")
    script = """
        from tidemill.sdk import TensorFlow

        for _ in range(2):
            TensorFlow(entry_point="train.py", source_dir="src", role="R", instance_count=1, instance_type="local",
                       framework_version="2.21", py_version="py311").fit()
        """
    done = client(script)
    assert done.stdout.count("high water numpy") == 2
    assert done.stdout.count("Successfully installed") == 2, "a file of a job is installed for that job only"
    write(tmp_path / "src/requirements.txt", "./nowhere\n")
    failed = client(script, check=False)
    assert "InstallRequirementsError" in failed.stderr
    assert "nowhere" in failed.stderr


def test_ctrl_c_detaches_and_prints_how_to_attach(variables: dict[str, str], tmp_path: Path, jobs: Any) -> None:
    write(
        tmp_path / "train.py",
        """
        import os, time
        s3 = __import__("boto3").client("s3")
        print("begun", flush=True)
        while not s3.list_objects_v2(Bucket="sagemaker-us-west-2-000000000000", Prefix="detached/go").get("KeyCount"):
            time.sleep(0.1)
        print("done", flush=True)
        """,
    )
    write(
        tmp_path / "client.py",
        """
        import signal
        from tidemill.sdk import TensorFlow

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background hands it down ignored

        TensorFlow(entry_point="train.py", role="R", instance_count=1, instance_type="local",
                   framework_version="2.21", py_version="py311", base_job_name="detached").fit()
        """,
    )
    with subprocess.Popen(
        [sys.executable, "-u", "client.py"],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        shown = ""
        for line in process.stdout:
            shown += line
            if "begun" in line:
                os.killpg(process.pid, signal.SIGINT)
                break
        rest = process.stdout.read()
        assert process.wait(300) == -signal.SIGINT, shown + rest
    assert "Traceback" not in rest
    assert "KeyboardInterrupt" not in rest
    summaries = jobs.sagemaker.list_training_jobs(NameContains="detached")["TrainingJobSummaries"]
    name = summaries[0]["TrainingJobName"]
    assert "attach" in rest
    assert name in rest
    assert "stop" in rest
    jobs.s3.put_object(Bucket="sagemaker-us-west-2-000000000000", Key="detached/go", Body=b"")
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    assert "done" in jobs.log(name)


def test_lines_appear_while_the_script_runs(variables: dict[str, str], tmp_path: Path) -> None:
    """The script waits for the test, and the test waits for the script's line: neither ends if logs come late."""
    write(
        tmp_path / "train.py",
        """
        import os, time
        print("waiting", flush=True)
        s3 = __import__("boto3").client("s3")
        for _ in range(600):
            if s3.list_objects_v2(Bucket=os.environ["BUCKET"], Prefix="go/on").get("KeyCount"):
                break
            time.sleep(0.1)
        print("went on", flush=True)
        """,
    )
    write(
        tmp_path / "client.py",
        """
        import sys
        from tidemill.sdk import Session, TensorFlow

        session = Session()
        bucket = session.default_bucket()
        estimator = TensorFlow(entry_point="train.py", role="R", instance_count=1, instance_type="local",
                               framework_version="2.21", py_version="py311", environment={"BUCKET": bucket})
        import builtins
        real = sys.stdout.write
        def write(text):
            if "waiting" in text:
                session.upload_string_as_file_body("x", bucket, "go/on")
            return real(text)
        sys.stdout.write = write
        estimator.fit()
        """,
    )
    done = subprocess.run(
        [sys.executable, "client.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "went on" in done.stdout


def test_a_client_without_a_service_starts_one_and_prints_a_line(tmp_path: Path) -> None:
    write(tmp_path / "train.py", "print('ran')")
    write(
        tmp_path / "client.py",
        """
        from tidemill.sdk import TensorFlow

        TensorFlow(entry_point="train.py", role="R", instance_count=1, instance_type="local",
                   framework_version="2.21", py_version="py311").fit()
        """,
    )
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "TIDEMILL_STATE_DIR": str(tmp_path / "state"),
        "TIDEMILL_PORT": "0",
        "TIDEMILL_ENVIRONMENTS_DIR": os.environ["TIDEMILL_ENVIRONMENTS_DIR"],
    }
    try:
        done = subprocess.run(
            [sys.executable, "client.py"], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ran" in done.stdout
        assert "http://127.0.0.1:" in done.stderr
        again = subprocess.run(
            [sys.executable, "-m", "tidemill.cli", "up"], env=variables, capture_output=True, text=True, timeout=60
        )
        assert again.returncode == 0
        assert "already" in (again.stdout + again.stderr)
    finally:
        subprocess.run([sys.executable, "-m", "tidemill.cli", "down"], env=variables, check=True, timeout=300)


def test_a_job_in_plain_isolation_gets_its_base_directory(jobs_of: Any, tmp_path: Path) -> None:
    with Service(settings={"isolation": "plain"}) as service:
        jobs = jobs_of(service)
        job = jobs.run(
            """
            import os
            print("base", os.environ["SAGEMAKER_BASE_DIR"])
            open(os.path.join(os.environ["SM_MODEL_DIR"], "w"), "w").write("1")
            """
        )
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        log = jobs.log(job["TrainingJobName"])
        assert "isolation=plain" in log[0]
        assert any(line.startswith("base ") and "/jobs/" in line for line in log)
        assert jobs.model_files(job) == {"w": b"1"}


def test_a_stopped_job_gets_its_time_and_its_model(jobs: Any) -> None:
    name = jobs.create(
        """
        import os, signal, sys, time
        def save(*_):
            open(os.path.join(os.environ["SM_MODEL_DIR"], "saved"), "w").write("in time")
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("ready", flush=True)
        time.sleep(600)
        """
    )
    jobs.wait(name, until=("Training",))
    jobs.wait_for_line(name, "ready")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Stopped"
    assert jobs.model_files(job) == {"saved": b"in time"}


def test_a_job_that_takes_too_long_is_stopped_with_a_reason(jobs: Any) -> None:
    job = jobs.run("import time; time.sleep(600)", StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_ten_jobs_at_once_all_end(jobs: Any) -> None:
    names = [jobs.create(f"print('job {index}')") for index in range(10)]
    for index, name in enumerate(names):
        assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
        assert f"job {index}" in jobs.log(name)
