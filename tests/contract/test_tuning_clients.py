"""One client script of a tuner, with AWS's SDK version 2 and with tidemill's own; and `tidemill tune`."""

import json
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forked_sdk import ForkedSdk
from tidemill.testing import Service

CLIENT = """
    import sys
    from sagemaker.tensorflow import TensorFlow
    from sagemaker.tuner import (
        CategoricalParameter, ContinuousParameter, HyperparameterTuner, IntegerParameter, WarmStartConfig,
        WarmStartTypes, create_identical_dataset_and_algorithm_tuner, create_transfer_learning_tuner,
    )

    name, model = sys.argv[1:]
    estimator = TensorFlow(
        entry_point="train.py", role="SageMakerRole", instance_count=1, instance_type="ml.m5.large",
        framework_version="1.15.5", py_version="py37", hyperparameters={"epochs": 2}, model_dir="/opt/ml/model",
    )
    ranges = {
        "lr": ContinuousParameter(0.001, 0.1, scaling_type="Logarithmic"),
        "units": IntegerParameter(8, 64),
        "optimizer": CategoricalParameter(["adam", "sgd"]),
    }
    tuner = HyperparameterTuner(
        estimator, "score", ranges, metric_definitions=[{"Name": "score", "Regex": "score=(.*);"}],
        strategy="Random", objective_type="Maximize", max_jobs=3, max_parallel_jobs=2,
    )
    tuner.fit({"model": model}, job_name=name)
    tuner.wait()
    again = HyperparameterTuner.attach(name)
    status = again.describe()["HyperParameterTuningJobStatus"]
    print("ATTACHED", again.best_training_job() == tuner.best_training_job(), status)
    summaries = again.analytics().training_job_summaries()
    values = [each["FinalHyperParameterTuningJobObjectiveMetric"]["Value"] for each in summaries]
    best = max(zip(values, summaries), key=lambda pair: pair[0])[1]
    print("TRAININGS", len(summaries), "BEST", best["TrainingJobName"] == tuner.best_training_job())
    hyperparameters = tuner.best_estimator().hyperparameters()
    print("TUNED", sorted(hyperparameters)[:1], hyperparameters["optimizer"].strip('"') in ("adam", "sgd"))
    try:
        import pandas
    except ImportError:
        pass
    else:
        print("TABLE", len(again.analytics().dataframe()))
    warm = create_transfer_learning_tuner(name).warm_start_config
    same = create_identical_dataset_and_algorithm_tuner(name, {"other"}).warm_start_config
    assert (same.type, set(same.parents)) == (WarmStartTypes.IDENTICAL_DATA_AND_ALGORITHM, {name, "other"})
    print("WARM", warm.type == WarmStartTypes.TRANSFER_LEARNING, sorted(warm.parents))
    predictor = tuner.deploy(initial_instance_count=1, instance_type="ml.m5.large")
    print("PREDICTED", predictor.predict({"instances": [2.0, 4.0]}))
    predictor.delete_endpoint()
"""

SCRIPT = """
    import argparse, os, tarfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--units", type=int)
    parser.add_argument("--optimizer", choices=["adam", "sgd"])
    parser.add_argument("--model_dir")
    args = parser.parse_args()
    print(f"score={args.units + args.lr};")
    with tarfile.open(os.environ["SM_CHANNEL_MODEL"] + "/model.tar.gz") as tar:
        tar.extractall(os.environ["SM_MODEL_DIR"])
"""


@pytest.mark.parametrize("sdk", ["aws", "tidemill"])
def test_a_tuner_fits_attaches_and_deploys_the_best_model(
    tidemill_service: Service,
    aws_sdk: ForkedSdk,
    tmp_path: Path,
    saved_model: Path,
    build_environment: Callable[[str], Any],
    jobs: Any,
    sdk: str,
) -> None:
    build_environment("1.15")
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT))
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    jobs.s3.upload_file(str(saved_model), "sagemaker-us-west-2-000000000000", "tuner/model.tar.gz")
    name = f"{sdk}-{uuid.uuid4().hex[:8]}"
    arguments = [name, "s3://sagemaker-us-west-2-000000000000/tuner"]
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}
    if sdk == "aws":
        done = aws_sdk.run(Path("client.py"), *arguments, directory=tmp_path, variables=variables)
    else:
        command = [sys.executable, "-m", "tidemill.cli", "run", "client.py", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "ATTACHED True Completed" in done.stdout
    assert "TRAININGS 3 BEST True" in done.stdout
    assert "TUNED ['" in done.stdout and "True" in done.stdout.partition("TUNED")[2].splitlines()[0]
    assert ("TABLE 3" in done.stdout) is (sdk == "aws")
    assert f"WARM True ['{name}']" in done.stdout
    assert "PREDICTED {'predictions': [3.0, 4.0]}" in done.stdout


def test_the_verb_prints_the_best_values_and_ctrl_c_stops_the_job(
    tidemill_service: Service, tmp_path: Path, jobs: Any
) -> None:
    (tmp_path / "train.py").write_text(
        "import json, os, time\n"
        "given = json.loads(os.environ['SM_HPS'])\n"
        "print(f\"epoch 1 - loss: 7.0 - val_loss: {given['x']:.4f}\", flush=True)\n"
        "time.sleep(given.get('pause', 0))\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}

    def verb(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidemill.cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)

    name = f"verb-{uuid.uuid4().hex[:8]}"
    searched = ("--range", "x=0.1:10:log", "--range", "n=1:3", "--range", "o=a,b")
    done = verb("tune", "train.py", *searched, "--jobs", "3", "--parallel", "2", "--seed", "1", "--name", name)
    assert done.returncode == 0, done.stdout + done.stderr
    described = json.loads(verb("describe", name, "--json").stdout)
    assert described["HyperParameterTuningJobConfig"]["Strategy"] == "Bayesian"
    ranges = described["HyperParameterTuningJobConfig"]["ParameterRanges"]
    assert [each["Name"] for kind in sorted(ranges) for each in ranges[kind]] == ["o", "x", "n"]
    (head, *rows) = (line for line in done.stdout.splitlines() if line.startswith(("TRAINING JOB", name)))
    assert head.split() == ["TRAINING", "JOB", "LOSS", "n", "o", "x"]
    assert len(rows) == 3 and rows[0].startswith(described["BestTrainingJob"]["TrainingJobName"])
    losses = [float(row.split()[1]) for row in rows]
    assert losses == sorted(losses) and max(losses) < 10, "val_loss counts, not loss"
    assert "3 of 3" in verb("ps", "--all").stdout

    stopped = f"verb-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "tidemill.cli", "tune", "train.py", "--range", "x=0.0:1.0", "--hp", "pause=600"]
    with subprocess.Popen(
        [*command, "--name", stopped], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    ) as running:
        jobs.wait_until(lambda: f"{stopped}-001" in verb("ps").stdout, "a training")
        running.send_signal(signal.SIGINT)
        output = running.communicate(timeout=60)[0].decode()
    assert running.returncode == 130 and f"stopping tuning job {stopped}" in output

    def has_stopped() -> bool:
        job = jobs.sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=stopped)
        return job["HyperParameterTuningJobStatus"] == "Stopped"

    jobs.wait_until(has_stopped, "the end of the tuning job")
    wrong = verb("tune", "train.py", "--range", "x=1:2:cubic")
    assert wrong.returncode == 2 and "is not a range" in wrong.stderr
