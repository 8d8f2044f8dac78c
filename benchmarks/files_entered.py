"""Count the source files of the service that one request enters, in the steady state, until its answer; and the moves.

    python benchmarks/files_entered.py [--list] [--requests 4] [--settle 1]

These are the files that a reader opens to follow a request through the code. A file counts if one of its functions
runs, in any thread of the service, during every request of a kind after the first one. Unrelated work of the service
runs during some requests only, so it does not count. A move is a call of a function in another of these files than the
thread's call before, the median of the requests. The service runs in the main thread of this process.
"""

import argparse
import os
import secrets
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import tidemill
from tidemill.sdk.boto import loopback_session
from tidemill.server.discovery import connect
from tidemill.server.run import serve
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings

SOURCE = str(Path(tidemill.__file__).parent) + os.sep
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.21-cpu-py311"
ANSWERED = "Connection._finished"


class Recorder:
    """Records the files of all traced threads, from `start` until the answer is passed to the connection."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.moves: list[str] = []
        """File of each call that followed a call in another file, in the order of time."""
        self.answered = threading.Event()
        self._on = False
        self._last: dict[int, str] = {}  # by thread

    def start(self) -> None:
        self.files.clear()
        self.moves.clear()
        self._last.clear()
        self.answered.clear()
        self._on = True

    def trace(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._on and frame.f_code.co_filename.startswith(SOURCE):
            file = frame.f_code.co_filename.removeprefix(SOURCE)
            self.files.add(file)
            if self._last.get(threading.get_ident()) != file:
                self._last[threading.get_ident()] = file
                self.moves.append(file)
            if frame.f_code.co_qualname == ANSWERED:
                self._on = False
                self.answered.set()


def requests(session: Any) -> dict[str, Callable[[int], object]]:
    """Return the measured requests by name. Each is a function of the round's number."""
    s3, sagemaker = session.client("s3"), session.client("sagemaker")
    s3.create_bucket(Bucket="bench")
    job = {
        "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "HyperParameters": {"sagemaker_program": '"train.py"', "sagemaker_submit_directory": '"s3://bench/source"'},
        # The object does not exist, so the job fails before it starts an instance.
        "InputDataConfig": [
            {
                "ChannelName": "training",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bench/nothing/"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": "s3://bench/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    }
    return {
        "PutObject": lambda number: s3.put_object(Bucket="bench", Key=f"key-{number}", Body=secrets.token_bytes(1000)),
        "CreateTrainingJob": lambda number: sagemaker.create_training_job(TrainingJobName=f"job-{number}", **job),
    }


def measure(state: StateDirectory, ready: int, recorder: Recorder, *, lists: bool, count: int, settle_s: float) -> None:
    """Send the requests and print the counts, then stop the service."""
    try:
        os.read(ready, 4096)
        connection = connect(state)
        if connection is None:
            raise RuntimeError("the service did not start; its log is above")
        session = loopback_session(
            endpoint_url=connection.service.url,
            region=connection.service.region,
            access_key_id=connection.keys.access_key_id,
            secret_access_key=connection.keys.secret_access_key,
        )
        for name, send in requests(session).items():
            entered: list[set[str]] = []
            moves: list[list[str]] = []
            for number in range(1 + count):
                time.sleep(settle_s)
                recorder.start()
                send(number)
                recorder.answered.wait(10)
                entered.append(set(recorder.files))
                moves.append(list(recorder.moves))
            files = set.intersection(*entered[1:])
            moved = statistics.median(sum(file in files for file in each) for each in moves[1:])
            print(f"{name}: {len(files)} files, {moved:.0f} moves")
            for file in sorted(files) if lists else ():
                print(f"    {file}")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also print the files")
    parser.add_argument("--requests", type=int, default=4, help="how often each request is measured")
    parser.add_argument(
        "--settle",
        type=float,
        default=1.0,
        help="seconds for the work that a request leaves behind to end: a commit, or a failing job",
    )
    arguments = parser.parse_args()
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(state_dir=Path(directory), port=0, isolation="plain", log_level="error")
        reader, writer = os.pipe()
        state = StateDirectory(settings.state_dir)
        client = threading.Thread(
            target=measure,
            args=(state, reader, recorder),
            kwargs={"lists": arguments.list, "count": arguments.requests, "settle_s": arguments.settle},
            daemon=True,
        )
        # Started first: the client's own thread is not traced.
        client.start()
        threading.settrace(recorder.trace)
        sys.settrace(recorder.trace)
        serve(settings, ready_fd=writer)
        client.join()


if __name__ == "__main__":
    main()
