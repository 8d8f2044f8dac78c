"""Parameter servers, masters and workers that fail: the job reports the cause, and no process is left."""

from collections.abc import Iterator
from typing import Any

import pytest

from tidemill.testing import Service

# What fails on which instance, and the expected FailureReason of the job.
FAILURES = {
    "master": (
        "if task == 'master': wait(); raise ValueError('no such layer')",
        "ValueError: no such layer",
        "algo-1",
    ),
    "worker": (
        "if task == 'worker': wait(); raise ValueError('no such layer')",
        "ValueError: no such layer",
        "algo-2",
    ),
    "server of the master": (
        "if task == 'master': wait(); kill_server()",
        "the parameter server of algo-1 (ps/0) ended by signal 9",
        "algo-1",
    ),
    "server of a worker": (
        "if task == 'worker': wait(); kill_server()",
        "the parameter server of algo-2 (ps/1) ended by signal 9",
        "algo-2",
    ),
}
FAILING = """
    import json, os, pathlib, signal, time
    task = json.loads(os.environ["TF_CONFIG"])["task"]["type"]
    shared = pathlib.Path(os.environ["TIDEMILL_JOB_DIRECTORY"])

    def wait():
        while len(list(shared.glob("*.up"))) < 2:
            time.sleep(0.01)

    def kill_server():
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\\0")
            except OSError:  # the process has just ended
                continue
            if b"tidemill_runtime.parameter_server" in words:
                os.kill(int(path.parent.name), signal.SIGKILL)

    (shared / f"{task}.up").touch()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    FAILURE
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def jobs(jobs_of: Any) -> Iterator[Any]:
    with Service(settings={"max_instances": 2, "stop_grace_s": 60}) as service:
        yield jobs_of(service)


@pytest.mark.matrix
@pytest.mark.parametrize("case", list(FAILURES))
def test_the_failed_instance_of_a_cluster_is_the_reason_of_the_job(jobs: Any, oracle_of: Any, case: str) -> None:
    failure, reason, instance = FAILURES[case]
    name = jobs.create(
        FAILING.replace("FAILURE", failure),
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
        HyperParameters={"sagemaker_parameter_server_enabled": "true"},
    )
    job = oracle_of(jobs).check(name, "Failed")
    assert reason in job["FailureReason"]
    assert job["FailureReason"].endswith(f", instance: {instance}")
