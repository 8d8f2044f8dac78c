"""Jobs and endpoints on the machines of a Ray cluster, also after the loss of a machine or of the service."""

import contextlib
import json
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from nodes import LEASE_S, RAY_PORT, SPECIAL_ADDRESS, Node

from cluster_scripts import DIGITS, STEPS
from cluster_servers import ServedDigits, process
from namespaces import HEAD
from tidemill.core.instances import InstanceRef
from tidemill.core.machine_share import MachineShare
from tidemill.errors import LaunchError
from tidemill.executors.ray.placement import RayPlacement
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
MIRRORED = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
AFTER_LEASE_S = 15.0


def found(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("FOUND ")) for line in lines if line.startswith("FOUND ")]


def node_of(nodes: list[Node]) -> Node:
    """Return the machine on which the cluster's only job runs."""
    (busy,) = (node for node in nodes if agents(node))
    return busy


def agents(node: Node) -> list[int]:
    """Return the processes of agents on a machine."""
    return commands(node, b"tidemill.node")


def commands(node: Node, text: bytes) -> list[int]:
    """Return the processes of a machine whose command contains ``text``."""
    found = []
    for pid in node.pids():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the process has just ended
            if text in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def checkpoints(jobs: Any, prefix: str) -> int:
    listed = jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return listed["KeyCount"]


def test_a_job_trains_on_a_machine_of_the_cluster(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    jobs = jobs_of(cluster[0])
    job = jobs.run(DIGITS)
    (alone,) = found(jobs.log(job["TrainingJobName"]))
    assert alone["accuracy"] > 0.85
    assert "1/saved_model.pb" in jobs.model_files(job)


def test_two_mirrored_workers_on_two_machines_train_as_one(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    jobs = jobs_of(cluster[0])
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    job = jobs.run(DIGITS, HyperParameters=MIRRORED, ResourceConfig=resources)
    statuses = [each["Status"] for each in job["SecondaryStatusTransitions"]]
    assert statuses.count("Starting") == 1
    first, second = found(jobs.log(job["TrainingJobName"]))
    assert first == second, "both end with the same weights"
    assert first["replicas"] == 2
    assert first["accuracy"] > 0.85


def of_type(instance_type: str, count: int = 1) -> dict[str, Any]:
    return {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 1}


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        (
            of_type("ml.m5.large", 5),
            "5 instances need a machine each, with 1 CPU; of the 4 machines of the",
        ),
        (of_type("ml.g4dn.xlarge"), "1 instances need a machine each, with 1 CPU, 9 GPUs; of the 4 machines of the"),
        (of_type("ml.p3.2xlarge", 2), "with 2 CPUs, 1 GPU, label disk=fast; of the 4 machines of the cluster 1 can"),
    ],
)
def test_instances_for_which_there_are_no_machines_are_refused_in_words(
    resources: dict[str, Any], words: str, cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    job = jobs_of(cluster[0]).run("print(1)", ResourceConfig=resources)
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert words in job["FailureReason"]
    assert f"{SPECIAL_ADDRESS} (2 CPUs, 2 GPUs, disk=fast)" in job["FailureReason"]


def test_a_type_gets_its_gpus_on_a_machine_with_its_labels_and_waits_while_that_is_busy(
    cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    jobs = jobs_of(cluster[0])
    first = jobs.create(
        "import os, socket, time\n"
        "address = socket.gethostbyname(os.environ['SM_CURRENT_HOST'])\n"
        "print('ON', address, os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "print('READY', flush=True)\n"
        "while not os.path.exists('/opt/ml/output/go'): time.sleep(0.1)",
        ResourceConfig=of_type("ml.p3.2xlarge"),
    )
    jobs.wait_for_line(first, "READY")
    (line,) = [line for line in jobs.log(first) if line.startswith("ON")]
    assert line.split()[1] == SPECIAL_ADDRESS
    assert line.split()[2] in ("0", "1")
    second = jobs.create("print('SECOND')", ResourceConfig=of_type("ml.p3.2xlarge"))
    jobs.wait_until(lambda: jobs.describe(second)["SecondaryStatus"] == "Pending", "the second job's turn to wait")
    jobs.sagemaker.stop_training_job(TrainingJobName=first)
    assert jobs.wait(second)["TrainingJobStatus"] == "Completed"


def test_a_machine_is_asked_to_kill_while_another_job_waits_for_machines(cluster: tuple[Service, list[Node]]) -> None:
    placement = RayPlacement(f"{HEAD}:{RAY_PORT}", shares={"*": MachineShare(cpus=2)}, reserve_s=60)
    job_id, everywhere = "ab" * 16, "ef" * 16
    whole = ["ml.m5.large"] * len(cluster[1])
    try:
        placement.reserve(everywhere, 1, whole, title="first")
        with ThreadPoolExecutor(1) as waiting:
            reserved = waiting.submit(placement.reserve, job_id, 1, whole, title="second")
            assert not placement.kill(InstanceRef("cd" * 16, 0)), "there is no such instance"
            placement.release("cd" * 16)
            assert not reserved.done()
            placement.close()
            with pytest.raises(LaunchError):
                reserved.result()
    finally:
        placement.close()
        again = RayPlacement(f"{HEAD}:{RAY_PORT}")
        again.release(job_id)
        again.release(everywhere)
        again.close()


def test_a_job_goes_on_while_the_service_is_killed_and_started_again(
    cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    service, _ = cluster
    jobs = jobs_of(service)
    name = jobs.create(
        "import time\nprint('HERE', flush=True)\nfor i in range(50): print('LINE', i, flush=True); time.sleep(0.1)"
    )
    jobs.wait_for_line(name, "HERE")
    service.kill()
    service.start()
    jobs = jobs_of(service)
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    assert [line for line in jobs.log(name) if line.startswith("LINE")] == [f"LINE {i}" for i in range(50)]


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_a_job_whose_machine_is_lost_resumes_on_another(
    how: str, cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    service, nodes = cluster
    jobs = jobs_of(service)
    prefix = f"checkpoints-{how}"
    older = {file for node in nodes for file in files_of_instances(node)}  # of a machine that another test has killed
    name = jobs.create(textwrap.dedent(STEPS), CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"})
    jobs.wait_for_line(name, "FROM 0")
    jobs.wait_until(lambda: checkpoints(jobs, prefix) >= 5, "five checkpoints")
    lost = node_of(nodes)
    (keys,) = (line.split()[1:] for line in jobs.log(name) if line.startswith("KEYS"))
    lost_s = time.time()
    if how == "killed":
        lost.kill()
    else:
        lost.cut()
    try:
        jobs.wait_until(
            lambda: [line for line in jobs.log(name) if line.startswith("FROM") and line != "FROM 0"],
            lambda: jobs.describe(name),
        )
        assert refusal_of_writes(service, keys, prefix) == "InvalidToken"
        job = jobs.wait(name)
        assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
        started = [each for each in job["SecondaryStatusTransitions"] if each["Status"] == "Starting"]
        assert len(started) == 2
        waited_s = started[1]["StartTime"].timestamp() - lost_s
        assert waited_s < LEASE_S + AFTER_LEASE_S
        resumed = [int(line.split()[1]) for line in jobs.log(name) if line.startswith("FROM")]
        assert resumed[0] == 0
        assert resumed[1] >= 4
        if how == "cut":
            # All processes on the lost machine have ended themselves: its lease ended before the job continued.
            assert [commands(lost, text) for text in (b"tidemill.shim", b"tidemill_runtime", b"train.py")] == [
                [],
                [],
                [],
            ]
    finally:
        lost.mend()
        if how == "killed":
            lost.join()
    # Ray may have killed the agent of a machine that was cut off: its files go when the machine gets its next instance.
    others = [node for node in nodes if node is not lost]
    jobs.wait_until(
        lambda: not {file for node in others for file in files_of_instances(node)} - older,
        "files of instances are gone",
    )


def refusal_of_writes(service: Service, keys: list[str], prefix: str) -> str:
    """The code with which the service refuses a write with the keys of an earlier attempt."""
    access_key_id, secret, token = keys
    zombie = boto3.session.Session(access_key_id, secret, token, region_name="us-west-2")
    client = zombie.client("s3", endpoint_url=service.url)
    with pytest.raises(ClientError) as refused:
        client.put_object(Bucket=BUCKET, Key=f"{prefix}/999", Body=b"of a zombie")
    return str(refused.value.response["Error"]["Code"])


def files_of_instances(node: Node) -> list[Path]:
    """What is left of instances on a machine."""
    return list(node.root.glob("instances/*"))


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_an_endpoint_outlives_a_machine_and_the_service(
    how: str, cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    service, nodes = cluster
    jobs = jobs_of(service)
    served = ServedDigits(jobs, jobs.run(DIGITS), instances=2)
    served.wait()
    scores = served.invoke()
    assert served.transform(instances=2) == [scores] * 8
    busy = {each.name for each in nodes if agents(each)}
    assert len(busy) == 2
    (lost, *_) = [each for each in nodes if each.name in busy]
    with served.asked_all_the_time() as waited_s:
        if how == "killed":
            lost.kill()
        else:
            lost.cut()
        jobs.wait_until(lambda: [each for each in nodes if each.name not in busy and agents(each)], served.describe)
        served.wait()
        answered = len(waited_s)
        jobs.wait_until(lambda: len(waited_s) > answered + 20, "answers of both instances")
    assert max(waited_s) < 30
    if how == "cut":
        assert commands(lost, b"tidemill_serving") == [], "its lease has ended"
        lost.mend()
    else:
        lost.join()
    before = sorted(pid for each in nodes for pid in agents(each))
    service.kill()
    service.start()
    served.take_up(jobs_of(service))
    assert served.invoke() == scores
    assert sorted(pid for each in nodes for pid in agents(each)) == before, "the instances are the same"
    served.delete()
    jobs.wait_until(lambda: not any(agents(each) for each in nodes), "the end of the agents")


def test_a_processing_job_runs_on_a_machine_of_the_cluster(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    script = "open('/opt/ml/processing/out/result', 'w').write('done')\n"
    _, result = process(jobs_of(cluster[0]), script)
    assert result == b"done"
