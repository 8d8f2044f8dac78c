"""AWS's own SageMaker SDK, version 2, unmodified: fit, attach, deploy, predict, delete; processors, also of ours."""

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forked_sdk import ForkedSdk
from tidemill.core.frameworks import SCIKIT_LEARN
from tidemill.testing import Service

CLIENT = """
    import sys
    from sagemaker.tensorflow import TensorFlow

    estimator = TensorFlow(
        entry_point="train.py", role="SageMakerRole", instance_count=1, instance_type="ml.m5.large",
        framework_version="1.15.5", py_version="py37", hyperparameters={"epochs": 2, "note": "a b"},
        model_dir="/opt/ml/model",
    )
    estimator.fit()
    again = TensorFlow.attach(estimator.latest_training_job.name)
    print("ATTACHED", again.latest_training_job.name == estimator.latest_training_job.name)
    predictor = again.deploy(initial_instance_count=1, instance_type="ml.m5.large")
    print("PREDICTED", predictor.predict({"instances": [2.0, 4.0]}))
    predictor.delete_endpoint()
"""

SCRIPT = """
    import argparse, os
    import tensorflow as tf

    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--note")
    parser.add_argument("--model_dir")
    args = parser.parse_args()
    print(f"epochs={args.epochs} note={args.note!r} tensorflow={tf.__version__}")

    class Half(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": x * 0.5 + 2.0}

    tf.compat.v1.enable_v2_behavior()
    model = Half()
    tf.saved_model.save(model, os.environ["SM_MODEL_DIR"] + "/1", signatures=model.__call__)
"""


IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"

PROCESSORS = """
    import sys
    import boto3
    from sagemaker.network import NetworkConfig
    from sagemaker.processing import FrameworkProcessor, ProcessingInput, ProcessingJob, ProcessingOutput, Processor
    from sagemaker.processing import ScriptProcessor
    from sagemaker.sklearn.processing import SKLearnProcessor
    from sagemaker.tensorflow import TensorFlow
    from sagemaker.tensorflow.processing import TensorFlowProcessor

    IMAGE, s3 = sys.argv[1], boto3.resource("s3")
    common = {"role": "SageMakerRole", "instance_count": 1, "instance_type": "ml.m5.large"}

    def files(job, name):
        (uri,) = [each.destination for each in job.outputs if each.output_name == name]
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        return [each.get()["Body"].read().decode() for each in s3.Bucket(bucket).objects.filter(Prefix=prefix)]

    script = ScriptProcessor(
        image_uri=IMAGE, command=["python3"], env={"TEAM": "tides"}, max_runtime_in_seconds=600, base_job_name="script",
        network_config=NetworkConfig(enable_network_isolation=False), tags=[{"Key": "team", "Value": "tides"}], **common
    )
    script.run(
        code="prepare.py",
        inputs=[ProcessingInput(source="data", destination="/opt/ml/processing/input")],
        outputs=[ProcessingOutput(source="/opt/ml/processing/train", output_name="train")],
        arguments=["--ratio", "0.3"],
    )
    again = ProcessingJob.from_processing_name(script.sagemaker_session, script.latest_job.job_name)
    print("SCRIPT", files(again, "train"), again.describe()["ExitMessage"])

    learn = SKLearnProcessor(framework_version="1.2-1", **common)
    learn.run(
        code="learn.py", outputs=[ProcessingOutput(source="/opt/ml/processing/out", s3_upload_mode="Continuous")],
        wait=False, logs=False,
    )
    learn.latest_job.wait(logs=True)
    print("LEARN", files(learn.latest_job, "output-1"))

    for processor in (
        TensorFlowProcessor(framework_version="2.21", py_version="py311", image_uri=IMAGE, **common),
        FrameworkProcessor(TensorFlow, "2.21", py_version="py311", image_uri=IMAGE, command=["python3"], **common),
    ):
        processor.run(
            code="evaluate.py", source_dir="source", arguments=["a b"],
            outputs=[ProcessingOutput(source="/opt/ml/processing/out", output_name="out")],
        )
        print("FRAMEWORK", files(processor.latest_job, "out"))

    bare = Processor(image_uri=IMAGE, entrypoint=["python3", "-c", "import time; time.sleep(600)"], **common)
    bare.run(wait=False, logs=False)
    bare.latest_job.stop()
    bare.latest_job.wait(logs=False)
    print("BARE", bare.latest_job.describe()["ProcessingJobStatus"])

    try:
        Processor(image_uri="acme.example/xgboost:1", entrypoint=["true"], **common).run()
    except Exception as error:
        print("REFUSED", error)
"""

PROCESSOR_SCRIPTS = {
    "prepare.py": """
        import os, pathlib, sys
        rows = sorted(path.name for path in pathlib.Path("/opt/ml/processing/input").glob("*.csv"))
        pathlib.Path("/opt/ml/processing/train/rows.txt").write_text(f"{rows} {sys.argv[1:]} {os.environ['TEAM']}")
        pathlib.Path("/opt/ml/output/message").write_text("prepared")
    """,
    "learn.py": """
        import pathlib
        import pandas as pd, sklearn
        from sklearn.preprocessing import StandardScaler
        frame = pd.DataFrame({"x": [1.0, 2.0, 3.0]})
        print("scikit-learn", sklearn.__version__)
        pathlib.Path("/opt/ml/processing/out/mean.txt").write_text(str(StandardScaler().fit(frame).mean_[0]))
    """,
    "source/evaluate.py": """
        import pathlib, sys
        import helper
        pathlib.Path("/opt/ml/processing/out/evaluation.txt").write_text(f"{helper.NAME} {sys.argv[1:]}")
    """,
    "source/helper.py": "NAME = 'tides'",
    "data/a.csv": "1",
    "data/b.csv": "2",
}


def test_fit_attach_deploy_predict_delete(
    tidemill_service: Service, root: Path, tmp_path: Path, build_environment: Callable[[str], Any]
) -> None:
    build_environment("1.15")
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT))
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [root / ".venvs/peers/bin/python", "client.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epochs=2 note='a b' tensorflow=1.15.5" in done.stdout
    assert "ATTACHED True" in done.stdout
    assert "PREDICTED {'predictions': [3.0, 4.0]}" in done.stdout


@pytest.mark.parametrize("sdk", [pytest.param("of AWS", marks=pytest.mark.matrix), "of tidemill"])
def test_processors(
    tidemill_service: Service,
    aws_sdk: ForkedSdk,
    root: Path,
    tmp_path: Path,
    build_environment: Callable[[str], Any],
    sdk: str,
) -> None:
    build_environment(SCIKIT_LEARN.environment)
    for name, text in PROCESSOR_SCRIPTS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    (tmp_path / "client.py").write_text(textwrap.dedent(PROCESSORS))
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}
    if sdk == "of AWS":
        done = aws_sdk.run(Path("client.py"), IMAGE, directory=tmp_path, variables=variables)
    else:
        command = [root / ".venv/bin/tidemill", "run", "client.py", IMAGE]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stdout + done.stderr
    printed = [line for line in done.stdout.splitlines() if line.split(" ")[0].isupper()]
    assert printed[:4] == [
        "SCRIPT [\"['a.csv', 'b.csv'] ['--ratio', '0.3'] tides\"] prepared",
        "LEARN ['2.0']",
        "FRAMEWORK [\"tides ['a b']\"]",
        "FRAMEWORK [\"tides ['a b']\"]",
    ], done.stdout + done.stderr
    assert "BARE Stopped" in done.stdout  # behind the dots of the wait
    assert "it is an image of XGBoost" in printed[-1] and "of scikit-learn" in printed[-1]
    assert f"running on scikit-learn {SCIKIT_LEARN.release}; scikit-learn 1.2 was asked for" in done.stdout
    assert f"scikit-learn {SCIKIT_LEARN.release}\n" in done.stdout
