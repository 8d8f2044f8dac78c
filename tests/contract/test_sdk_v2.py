"""AWS's own SageMaker SDK, version 2, unmodified: fit, attach, deploy, predict, delete."""

import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
