"""`tidemill tensorboard` with the real TensorBoard: jobs that run, that end meanwhile, and without event files."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
# Writes event files as TensorFlow does, which takes ten times as long to import.
SCRIPT = """
    import os, signal, sys, threading, time
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    directory = sys.argv[sys.argv.index("--logs") + 1]
    os.makedirs(directory, exist_ok=True)

    def write(file, **members):
        RecordWriter(file).write(Event(wall_time=time.time(), **members).SerializeToString())
        file.flush()

    def loss(value):
        return Summary(value=[Summary.Value(tag="loss", simple_value=value)])

    with open(f"{directory}/events.out.tfevents.1.host", "wb") as file:
        write(file, file_version="brain.Event:2")
        write(file, step=1, summary=loss(0.5))
        print("first step", flush=True)
        while not stopped.wait(60):
            pass
        write(file, step=2, summary=loss(0.25))
"""


def tidemill(service: Service, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tidemill.cli", *arguments, "--state-dir", str(service.state_dir)],
        env=os.environ | service.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # A background shell makes its children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def interrupt(process: "subprocess.Popen[str]") -> str:
    """Send SIGINT, as Ctrl-C does, and return the output."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=300)[0]


class Board:
    """A TensorBoard that `tidemill tensorboard` started."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, *, wait_until: Callable[..., Any]) -> None:
        self._process = process
        self._wait_until = wait_until
        self._port = port

    def get(self, path: str, **query: str) -> Any:
        """Return its answer, or None if it does not listen or has no such run."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        with contextlib.closing(connection):
            try:
                connection.request("GET", f"/data/plugin/{path}?{urlencode(query)}")
                response = connection.getresponse()
                return json.loads(response.read()) if response.status == 200 else None
            except OSError:
                return None

    def wait_for_steps(self, expected: Mapping[str, list[int]]) -> None:
        def shown() -> bool:
            assert self._process.poll() is None, self._process.communicate()[0]
            return self._steps() == expected

        self._wait_until(shown, self._steps)

    def _steps(self) -> dict[str, list[int]]:
        steps = {}
        for run in self.get("scalars/tags") or {}:
            points = self.get("scalars/scalars", run=run, tag="loss")
            steps[run] = [point[1] for point in points or ()]
        return steps


@pytest.fixture
def free_port() -> Iterator[int]:
    """Yield a port that the system gives to nothing else. TensorBoard, which sets SO_REUSEADDR, can listen on it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", 0))
        yield int(sock.getsockname()[1])


@pytest.fixture
def running(tidemill_service: Service, jobs: Any) -> Iterator[tuple[str, str]]:
    """Start one job whose event files become part of output.tar.gz, and one whose event files are copied to S3."""
    plain = jobs.create(SCRIPT, HyperParameters={"logs": '"/opt/ml/output/data/logs"'})
    synced = jobs.create(
        SCRIPT,
        HyperParameters={"logs": '"/opt/ml/output/tensorboard"'},
        TensorBoardOutputConfig={"S3OutputPath": f"s3://{BUCKET}/boards"},
    )
    yield plain, synced
    for name in (plain, synced):
        if jobs.describe(name)["TrainingJobStatus"] == "InProgress":
            jobs.sagemaker.stop_training_job(TrainingJobName=name)


def test_jobs_are_shown_while_they_run_and_to_their_end(
    tidemill_service: Service, jobs: Any, running: tuple[str, str], free_port: int
) -> None:
    plain, synced = running
    process = tidemill(tidemill_service, "tensorboard", plain, synced, "--port", str(free_port))
    board = Board(process, free_port, wait_until=jobs.wait_until)
    try:
        board.wait_for_steps({f"{plain}/output/data/logs": [1], synced: [1]})
        for name in running:
            jobs.sagemaker.stop_training_job(TrainingJobName=name)
            jobs.wait(name)
        board.wait_for_steps({f"{plain}/output/data/logs": [1, 2], synced: [1, 2]})
    finally:
        output = interrupt(process)
    assert process.returncode == 130, output
    assert board.get("scalars/tags") is None
    assert "Traceback (most recent call last)" not in output
    again = tidemill(tidemill_service, "tensorboard", plain, "--port", str(free_port))
    try:
        Board(again, free_port, wait_until=jobs.wait_until).wait_for_steps({f"{plain}/output/data/logs": [1, 2]})
    finally:
        again.terminate()
        output = again.communicate(timeout=300)[0]
    assert again.returncode == 128 + signal.SIGTERM, output
    assert board.get("scalars/tags") is None


def test_a_job_that_cannot_be_shown_is_reported_in_one_line(
    tidemill_service: Service, jobs: Any, tmp_path: Path
) -> None:
    without = jobs.run("print('no logs')")["TrainingJobName"]
    absent = f"absent-{uuid.uuid4().hex[:6]}"
    for name, reason in (
        (without, "no event file of TensorBoard in its model.tar.gz"),
        (absent, "there is no training"),
    ):
        process = tidemill(tidemill_service, "tensorboard", name)
        output = process.communicate(timeout=300)[0]
        assert (process.returncode, output.count("\n")) == (1, 1), output
        assert reason in output
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEMILL_ENVIRONMENTS_DIR", str(tmp_path))
        process = tidemill(tidemill_service, "tensorboard", without)
        output = process.communicate(timeout=300)[0]
    assert process.returncode == 1
    assert "build it with `tidemill environments build tf-2.21`" in output
