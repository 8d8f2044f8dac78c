"""Train a model, deploy it and request predictions, with the estimator API.

    python client.py

The service is started if none runs, and the data is prepared if it is missing. The exit code is 1 if the model
recognizes fewer than 95 % of the held-out digits. With the import of AWS's documents, `from sagemaker.tensorflow
import TensorFlow`, run the client with `tidemill run client.py`.
"""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tidemill.environments.builder import Environments
from tidemill.sdk import TensorFlow
from tidemill.sdk.console import Console
from tidemill.settings import Settings

HERE = Path(__file__).parent
DATA = HERE / "data"
EXPECTED_ACCURACY = 0.95

took_s: dict[str, float] = {}


@contextmanager
def timed(phase: str):
    begin = time.monotonic()
    yield
    took_s[phase] = time.monotonic() - begin


def prepare() -> None:
    """Make the data, with the packages of the jobs' environment."""
    if not (DATA / "heldout.json").exists():
        environment = Environments(Settings().environments_dir).ensure("tf-2.21", log=Console().log)
        subprocess.run([environment.python, HERE / "prepare.py", DATA], check=True)


def main() -> int:
    prepare()
    estimator = TensorFlow(
        entry_point=str(HERE / "train.py"),
        role="SageMakerRole",
        train_instance_count=1,
        train_instance_type="local",
        framework_version="2.21",
        py_version="py3",
        base_job_name="digits",
        hyperparameters={"epochs": 20, "learning_rate": 0.002},
    )
    with timed("train"):
        estimator.fit({name: (DATA / name).absolute().as_uri() for name in ("train", "test")})
    with timed("deploy"):
        predictor = estimator.deploy(initial_instance_count=1, instance_type="local")
    try:
        accuracy = ask(predictor)
    finally:
        with timed("delete"):
            predictor.delete_endpoint()
    for phase, seconds in took_s.items():
        print(f"{phase:8} {seconds:6.1f} s")
    print(f"accuracy on held-out digits: {accuracy:.3f}")
    print(f"service: {estimator.sagemaker_session.endpoint_url} (still running; `tidemill down` ends it)")
    return 0 if accuracy >= EXPECTED_ACCURACY else 1


def ask(predictor) -> float:
    """Return the share of the held-out digits that the endpoint recognizes."""
    held_out = json.loads((DATA / "heldout.json").read_text())
    with timed("predict"):
        predictions = predictor.predict({"instances": held_out["images"]})["predictions"]
    found = [scores.index(max(scores)) for scores in predictions]
    right = sum(one == other for one, other in zip(found, held_out["labels"], strict=True))
    print(f"{right} of {len(found)} digits recognized")
    return right / len(found)


if __name__ == "__main__":
    sys.exit(main())
