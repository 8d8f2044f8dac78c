"""Jobs in isolation mode ``full`` through a real service: packages, S3, the model, and closed networks."""

import http.server
import io
import json
import os
import signal
import socket
import threading
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tidemill.sandbox.network import network_failure
from tidemill.server.discovery import find_service
from tidemill.server.exports import proxy_environment
from tidemill.server.state import StateDirectory
from tidemill.testing import Service

_FAILURE = network_failure()
pytestmark = pytest.mark.skipif(_FAILURE is not None, reason=f"no network namespaces here: {_FAILURE}")

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = """
    import os, socket, tides
    import boto3
    from botocore.credentials import ContainerProvider

    keys = ContainerProvider().load().get_frozen_credentials()
    print("KEYS BY ADDRESS", keys.secret_key == os.environ["AWS_SECRET_ACCESS_KEY"])
    s3 = boto3.client("s3")
    key = f"out/{os.environ['TRAINING_JOB_NAME']}/seen.txt"
    s3.put_object(Bucket="sagemaker-us-west-2-000000000000", Key=key, Body=b"x" * 3_000_000)
    got = s3.get_object(Bucket="sagemaker-us-west-2-000000000000", Key=key)["Body"].read()
    print("STORED", len(got), tides.HIGH, socket.gethostname(), os.environ["SM_NETWORK_INTERFACE_NAME"])
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
        file.write("trained")
"""
CLOSED = """
    import os, socket
    host, _, port = os.environ["AWS_ENDPOINT_URL"].rpartition("//")[2].partition(":")
    for address in ((host, int(port)), ("192.0.2.1", 80)):
        try:
            socket.create_connection(address, timeout=20)
        except OSError as error:
            print("NO WAY", type(error).__name__)
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "model.txt"), "w") as file:
        file.write("trained")
"""

PROXY = """
    import os, socket
    for host in ("127.0.0.1", os.environ["AWS_ENDPOINT_URL"].rpartition("//")[2].partition(":")[0]):
        try:
            socket.create_connection((host, {port}), timeout=20)
            print("THE PROXY ANSWERS")
        except OSError:
            print("NO PROXY")
"""


@pytest.fixture(scope="module")
def full_jobs(jobs_of: Any) -> Iterator[Any]:
    """Yield jobs of a service in which every job has a separate network."""
    with Service(settings={"isolation": "full"}) as service:
        yield jobs_of(service)


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """Yield the URL of a package index on the machine's loopback, which no job in a separate network can reach."""
    wheel = _wheel()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_file = self.path.endswith(".whl")
            page = b'<!DOCTYPE html><html><body><a href="tides-1.0-py3-none-any.whl">tides</a></body></html>'
            body = wheel if is_file else page
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream" if is_file else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


def _wheel() -> bytes:
    """Return a wheel with one module."""
    info = "tides-1.0.dist-info"
    files = {
        "tides.py": "HIGH = 'high water'",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tides\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return buffer.getvalue()


def test_a_job_installs_packages_uses_s3_and_leaves_its_model(full_jobs: Any, index: str) -> None:
    job = full_jobs.run(SCRIPT, files={"requirements.txt": f"--index-url {index}\ntides\n"})
    log = full_jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    assert "STORED 3000000 high water algo-1 eth0" in log
    assert "KEYS BY ADDRESS True" in log
    assert any("isolation=full" in line for line in log)
    assert full_jobs.model_files(job) == {"model.txt": b"trained"}


def test_a_closed_job_reaches_nothing_and_its_data_and_model_are_moved(jobs: Any) -> None:
    job = jobs.run(CLOSED, EnableNetworkIsolation=True)
    log = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), log)
    assert job["EnableNetworkIsolation"] is True
    assert [line for line in log if "NO WAY" in line] == ["NO WAY ConnectionRefusedError", "NO WAY OSError"]
    assert jobs.model_files(job) == {"model.txt": b"trained"}


def test_a_closed_job_cannot_install_packages_from_a_network(jobs: Any, index: str) -> None:
    files = {"requirements.txt": f"--index-url {index}\ntides\n"}
    job = jobs.run("print('never')", files=files, EnableNetworkIsolation=True)
    assert job["TrainingJobStatus"] == "Failed"
    assert "InstallRequirementsError" in job["FailureReason"]


def test_no_job_in_a_network_of_its_own_reaches_the_proxy_of_a_shell(full_jobs: Any) -> None:
    state = StateDirectory(full_jobs.service.state_dir)
    record = find_service(state)
    assert record is not None
    port = urlsplit(proxy_environment(record, state=state, ambient={})["HTTPS_PROXY"]).port
    with socket.create_connection(("127.0.0.1", port)):
        pass
    job = full_jobs.run(PROXY.format(port=port))
    assert [line for line in full_jobs.log(job["TrainingJobName"]) if "PROXY" in line] == ["NO PROXY"] * 2


def test_a_job_whose_network_was_killed_starts_again_and_its_log_says_why(full_jobs: Any) -> None:
    name = full_jobs.create("import time\nprint('up', flush=True)\ntime.sleep(600)")
    full_jobs.wait_for_line(name, "up")
    networks = full_jobs.service.state_dir / "jobs"
    full_jobs.wait_until(lambda: len(list(networks.glob("*/network.*.json"))) == 1, "the clean-up of other jobs")
    [file] = networks.glob("*/network.1.json")
    holder = json.loads(file.read_text())["network"]["pid"]
    os.kill(holder, signal.SIGKILL)
    full_jobs.wait_for_line(name, "up", 2)
    transitions = full_jobs.describe(name)["SecondaryStatusTransitions"]
    [restarting] = [each for each in transitions if each["Status"] == "Restarting"]
    assert (
        f"algo-1 was lost: InternalServerError: the network of the job is gone: its process {holder} "
        in (restarting["StatusMessage"])
    )
    assert any(line.startswith("tidemill: the network of the job is gone") for line in full_jobs.log(name))
    full_jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert full_jobs.wait(name)["TrainingJobStatus"] == "Stopped"
