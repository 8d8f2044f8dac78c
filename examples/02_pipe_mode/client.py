"""Train in Pipe mode, from plain TFRecords and from compressed ones.

    python client.py

The service is started if none runs, and the data is prepared if it is missing.
"""

import subprocess
import sys
from pathlib import Path

from tidemill.environments.builder import Environments
from tidemill.sdk import Session, TensorFlow, TrainingInput
from tidemill.sdk.console import Console
from tidemill.settings import Settings

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"


def prepare() -> None:
    if not (DATA / "packed").exists():
        environment = Environments(Settings().environments_dir).ensure("tf-2.21", log=Console().log)
        subprocess.run([environment.python, HERE / "prepare.py", DATA], check=True)


def estimator() -> TensorFlow:
    return TensorFlow(
        entry_point=str(HERE / "train.py"),
        role="SageMakerRole",
        instance_count=1,
        instance_type="local",
        framework_version="2.21",
        py_version="py311",
        base_job_name="digits-pipe",
        input_mode="Pipe",
        hyperparameters={"epochs": 20},
    )


def main() -> None:
    prepare()
    session = Session()
    plain = session.upload_data(str(DATA / "plain"), key_prefix="digits-pipe/plain")
    packed = session.upload_data(str(DATA / "packed"), key_prefix="digits-pipe/packed")
    estimator().fit(plain)
    # The same script: the service decompresses the stream.
    estimator().fit(TrainingInput(packed, compression="Gzip"))


if __name__ == "__main__":
    sys.exit(main())
