"""Training jobs on the machines of a Ray cluster, also after the loss of a machine or of the service."""

import contextlib
import json
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from nodes import HEAD, LEASE_S, RAY_PORT, Node

from tidemill.errors import LaunchError
from tidemill.executors.ray.placement import RayPlacement
from tidemill.instance.spec import InstanceRef
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
MIRRORED = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
AFTER_LEASE_S = 15.0
DIGITS = """
    import hashlib, json, os
    import keras, tensorflow as tf
    from sklearn.datasets import load_digits

    several = len(json.loads(os.environ["SM_HOSTS"])) > 1
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.005), loss)
    model.fit(x[:1500], y[:1500], batch_size=100, epochs=6, verbose=0)
    digest = hashlib.sha256(b"".join(weights.tobytes() for weights in model.get_weights())).hexdigest()
    accuracy = float((model.predict(x[1500:], verbose=0).argmax(1) == y[1500:]).mean())
    found = {"replicas": strategy.num_replicas_in_sync, "accuracy": accuracy, "weights": digest}
    print("FOUND", json.dumps(found), flush=True)
    model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""
STEPS = """
    import os, time
    from pathlib import Path
    directory = Path("/opt/ml/checkpoints")
    done = [int(file.name) for file in directory.glob("[0-9]*")]
    print("FROM", max(done, default=0), flush=True)
    for step in range(max(done, default=0) + 1, 1000):
        (directory / f"{step}").write_text("x")
        time.sleep(0.2)
        if done and step > max(done) + 5:
            break
    print("END", flush=True)
"""


def found(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("FOUND ")) for line in lines if line.startswith("FOUND ")]


def wait_for_line(jobs: Any, name: str, line: str, *, timeout_s: float = 120) -> None:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        with contextlib.suppress(jobs.logs_client.exceptions.ResourceNotFoundException):
            if line in jobs.log(name):
                return
        time.sleep(0.2)
    pytest.fail(f"{name} did not print {line!r}: {jobs.describe(name)}")


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


def test_more_instances_than_machines_are_refused_in_words(cluster: tuple[Service, list[Node]], jobs_of: Any) -> None:
    jobs = jobs_of(cluster[0])
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 5, "VolumeSizeInGB": 1}
    job = jobs.run("print(1)", ResourceConfig=resources)
    assert job["TrainingJobStatus"] == "Failed"
    assert "5 machines with a free CPU were asked for" in job["FailureReason"]


def test_a_machine_is_asked_to_kill_while_another_job_waits_for_machines(cluster: tuple[Service, list[Node]]) -> None:
    placement = RayPlacement(f"{HEAD}:{RAY_PORT}", reserve_s=60)
    job_id = "ab" * 16
    try:
        with ThreadPoolExecutor(1) as waiting:
            reserved = waiting.submit(placement.reserve, job_id, 1, len(cluster[1]) + 1)
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
        again.close()


def test_a_job_goes_on_while_the_service_is_killed_and_started_again(
    cluster: tuple[Service, list[Node]], jobs_of: Any
) -> None:
    service, _ = cluster
    jobs = jobs_of(service)
    name = jobs.create(
        "import time\nprint('HERE', flush=True)\nfor i in range(50): print('LINE', i, flush=True); time.sleep(0.1)"
    )
    wait_for_line(jobs, name, "HERE")
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
    name = jobs.create(textwrap.dedent(STEPS), CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"})
    wait_for_line(jobs, name, "FROM 0")
    deadline_s = time.monotonic() + 60
    while checkpoints(jobs, prefix) < 5:
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
    lost = node_of(nodes)
    lost_s = time.time()
    if how == "killed":
        lost.kill()
    else:
        lost.cut()
    try:
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
