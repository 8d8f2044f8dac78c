"""Jobs under mpirun whose instances run on different machines: Horovod, model parallelism, and a rank that fails."""

import contextlib
import json
import re
import socket
import textwrap
import threading
from typing import Any

import pytest
from nodes import Node
from test_ray import BUCKET, agents, checkpoints

from cluster_scripts import CUT, CUT_STEPS, HOROVOD, HOROVOD_STEPS, under_mpi
from tidemill.testing import Service

_ALL_PROTOCOLS = 3
TWO_MACHINES = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
FAILING = """
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    world.barrier()
    if world.rank == 1:
        raise KeyError("tide")
    world.barrier()
"""


class Wiretap:
    """Capture the traffic of the machines' network, and count the packets that contain a text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        self._thread = threading.Thread(target=self._listen)
        self._ended = threading.Event()
        self.packets = self.found = 0

    def __enter__(self) -> "Wiretap":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        self._socket.settimeout(0.1)
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                packet = self._socket.recv(1 << 16)
                self.packets += 1
                self.found += self._text in packet


def found(lines: list[str]) -> list[dict[str, Any]]:
    """Return what the ranks printed, by rank."""
    each = [json.loads(line.partition("FOUND ")[2]) for line in lines if "<stdout>:FOUND " in line]
    return sorted(each, key=lambda one: one["rank"])


def test_horovod_ranks_on_two_machines_train_one_model(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    jobs = jobs_of(cluster[0])
    job = jobs.run(HOROVOD, HyperParameters=under_mpi(), ResourceConfig=TWO_MACHINES)
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    first, second = found(lines)
    assert [each["host"] for each in (first, second)] == ["algo-1", "algo-2"]
    assert [each["size"] for each in (first, second)] == [2, 2]
    assert [each["local_size"] for each in (first, second)] == [1, 1]
    assert first["weights"] == second["weights"]
    assert first["accuracy"] == second["accuracy"] > 0.85


@pytest.mark.parametrize("encrypted", [False, True], ids=["clear", "encrypted"])
def test_a_model_cut_over_two_machines_trains_as_on_one(
    encrypted: bool, cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    jobs = jobs_of(cluster[0])
    parameters = {"mp_parameters": json.dumps({"partitions": 2, "microbatches": 2})}
    with Wiretap(b"OBJECTS IN THE CLEAR") as tap:
        job = jobs.run(
            CUT,
            HyperParameters=under_mpi(**parameters),
            ResourceConfig=TWO_MACHINES,
            EnableInterContainerTrafficEncryption=encrypted,
        )
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job, lines)
    assert tap.packets > 100
    assert bool(tap.found) != encrypted
    on_two = found(lines)
    assert [each["host"] for each in on_two] == ["algo-1", "algo-2"]
    assert [each["held"] for each in on_two] == [64 * 32 + 32, 32 * 10 + 10], "each machine holds its own part"
    assert on_two[0]["losses"] == on_two[1]["losses"]
    assert on_two[0]["losses"][-1] < 0.5 * on_two[0]["losses"][0]
    if encrypted:
        alone = jobs.run(CUT, HyperParameters=under_mpi(2, **parameters))
        on_one = found(jobs.log(alone["TrainingJobName"]))
        assert [each["host"] for each in on_one] == ["algo-1", "algo-1"]
        assert [each["losses"] for each in on_two] == [each["losses"] for each in on_one]


def test_the_rank_that_failed_on_another_machine_is_named(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    jobs = jobs_of(cluster[0])
    job = jobs.run(FAILING, HyperParameters=under_mpi(), ResourceConfig=TWO_MACHINES)
    assert job["TrainingJobStatus"] == "Failed"
    assert "rank 1 on algo-2: KeyError: 'tide'" in job["FailureReason"], jobs.log(job["TrainingJobName"])


@pytest.mark.parametrize("script", [HOROVOD_STEPS, CUT_STEPS], ids=["horovod", "model-parallel"])
def test_ranks_on_two_machines_of_which_one_is_killed_resume_together(
    script: str, cluster: tuple[Service, list[Node]], jobs_of: Any, request: pytest.FixtureRequest
) -> None:
    service, nodes = cluster
    jobs, prefix = jobs_of(service), f"checkpoints-{request.node.callspec.id}"
    model_parallel = {"mp_parameters": json.dumps({"partitions": 2, "microbatches": 2})} if script is CUT_STEPS else {}
    name = jobs.create(
        textwrap.dedent(script),
        CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"},
        HyperParameters=under_mpi(**model_parallel),
        ResourceConfig=TWO_MACHINES,
    )
    jobs.wait_until(lambda: checkpoints(jobs, prefix) >= 5, "five checkpoints")
    _, lost = [each for each in nodes if agents(each)]
    lost.kill()
    job = jobs.wait(name)
    lost.join()
    lines = jobs.log(name)
    assert job["TrainingJobStatus"] == "Completed", (job.get("FailureReason"), lines)
    resumed = sorted(int(each[1]) for line in lines if (each := re.search(r">:FROM (\d+)", line)))
    assert resumed[:2] == [0, 0]
    assert min(resumed[2:]) >= 1
    first, second = found(lines)
    if script is HOROVOD_STEPS:
        assert first["weights"] == second["weights"] == [sum(step + 0.5 for step in range(1, 61))] * 10
    else:
        assert first["losses"] == second["losses"]
        assert first["losses"]["60"] > 0
