"""Train a model, deploy it and request predictions, with the estimator API.

Run it with `python client.py`; the service is started if none runs. With the import of AWS's documents,
`from sagemaker.tensorflow import TensorFlow`, run it with `tidemill run client.py`.

The exit code is 1 if the model recognizes fewer than 95 % of the held-out digits.
"""

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tidemill.sdk import TensorFlow

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
EXPECTED_ACCURACY = 0.95

took_s: dict[str, float] = {}


@contextmanager
def timed(phase: str):
    begin = time.monotonic()
    yield
    took_s[phase] = time.monotonic() - begin


def main() -> int:
    if not (DATA / "heldout.json").exists():
        print(f"no data in {DATA}; `make quickstart` prepares it, or prepare.py {DATA}", file=sys.stderr)
        return 2
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
        estimator.fit({"train": f"file://{DATA}/train", "test": f"file://{DATA}/test"})
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
    print(f"{right} of {len(found)} digits recognised")
    return right / len(found)


if __name__ == "__main__":
    sys.exit(main())
