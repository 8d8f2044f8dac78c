"""Jobs and endpoints in allocations of Slurm, also after the loss of a node, of the service or of the controller."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from slurm_tools import idle_nodes, queue, slurm

from cluster_scripts import CUT_STEPS, DIGITS, HOROVOD, HOROVOD_STEPS, STEPS, under_mpi
from cluster_servers import ServedDigits, process
from control import ask
from tidemill.core.slurm_options import SlurmOptions
from tidemill.errors import MachinesBusy
from tidemill.executors.slurm.placement import SlurmPlacement
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
MIRRORED = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
WAIT = """
    import os, socket, time
    print("ON", socket.gethostbyname(os.environ["SM_CURRENT_HOST"]), os.environ.get("CUDA_VISIBLE_DEVICES"))
    print("KEY", os.environ["AWS_SECRET_ACCESS_KEY"])
    print("READY", flush=True)
    while not os.path.exists("/opt/ml/output/go"):
        time.sleep(0.1)
"""


def of_type(instance_type: str, count: int = 1) -> dict[str, Any]:
    return {"InstanceType": instance_type, "InstanceCount": count, "VolumeSizeInGB": 1}


def found(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line.partition("FOUND ")[2]) for line in lines if "FOUND " in line]


def checkpoints(jobs: Any, prefix: str) -> int:
    return int(jobs.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)["KeyCount"])


def restarts(job: dict[str, Any]) -> list[str]:
    """Return why the job was started again, each time."""
    return [each["StatusMessage"] for each in job["SecondaryStatusTransitions"] if each["Status"] == "Restarting"]


def node_of(number: str) -> str:
    """Return the only node of a Slurm job."""
    ((_, _, node),) = [each for each in queue() if each[0] == number]
    return node


def numbers(state: str = "RUNNING") -> list[str]:
    return [number for number, its, _ in queue() if its == state]


def test_the_digits_train_on_a_node(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    job = jobs.run(DIGITS)
    (alone,) = found(jobs.log(job["TrainingJobName"]))
    assert alone["accuracy"] > 0.85
    assert "1/saved_model.pb" in jobs.model_files(job)
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)
    assert {state for _, state, _ in queue()} == {"COMPLETED"}, "the allocation ended by itself"


def test_two_mirrored_workers_on_two_nodes_train_as_one(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    job = jobs.run(DIGITS, HyperParameters=MIRRORED, ResourceConfig=of_type("ml.c5.large", 2))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    first, second = found(lines)
    assert first == second, "both end with the same weights"
    assert first["replicas"] == 2
    assert first["accuracy"] > 0.85


def test_horovod_ranks_on_two_nodes_train_one_model(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    job = jobs.run(HOROVOD, HyperParameters=under_mpi(), ResourceConfig=of_type("ml.m5.large", 2))
    lines = jobs.log(job["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", (job["FailureReason"], lines)
    first, second = sorted(found(lines), key=lambda each: each["rank"])
    assert [first["host"], second["host"]] == ["algo-1", "algo-2"]
    assert first["weights"] == second["weights"]


def test_a_stopped_job_leaves_its_node_and_no_secret_is_shown_by_slurm(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    name = jobs.create(WAIT, ResourceConfig=of_type("ml.p3.2xlarge"))
    jobs.wait_for_line(name, "READY")
    log = jobs.log(name)
    (on,) = [line for line in log if line.startswith("ON")]
    assert on.split()[1] == "10.88.0.12", "the node with the feature and the GPUs"
    assert on.split()[2] in ("0", "1")
    (secret,) = [line.split()[1] for line in log if line.startswith("KEY")]
    (number,) = numbers()
    shown = slurm("scontrol", "show", "job", "-dd", number) + slurm("scontrol", "write", "batch_script", number, "-")
    assert f"Comment={name}" in shown
    assert "TimeLimit=01:00:00" in shown
    assert secret not in shown
    processes = [text for text in ask("commands", "node2") if "tidemill.node.slurm" in text or "SLURM_STEP" in text]
    assert processes
    assert not any(secret in text for text in processes)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


def test_a_job_waits_with_slurms_reason_and_is_cancelled_when_it_is_stopped(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    waiting = jobs.create("print(1)", ResourceConfig=of_type("ml.g4dn.xlarge"))
    jobs.wait(waiting, until=("Pending",))
    jobs.wait_until(lambda: "PENDING" in jobs.describe(waiting)["SecondaryStatusTransitions"][-1]["StatusMessage"])
    message = jobs.describe(waiting)["SecondaryStatusTransitions"][-1]["StatusMessage"]
    (number,) = numbers("PENDING")
    assert f"Slurm's job {number} is PENDING (PartitionDown" in message
    jobs.sagemaker.stop_training_job(TrainingJobName=waiting)
    assert jobs.wait(waiting)["TrainingJobStatus"] == "Stopped"
    jobs.wait_until(lambda: not numbers("PENDING"), queue)


def test_what_slurm_refuses_fails_with_slurms_words(cluster: Service, jobs_of: Any) -> None:
    job = jobs_of(cluster).run("print(1)", ResourceConfig=of_type("ml.p4d.24xlarge"))
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "invalid partition specified: nowhere" in job["FailureReason"]


def test_more_nodes_than_the_partition_has_fail_at_once(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    job = jobs.run("print(1)", ResourceConfig=of_type("ml.m5.large", 5))
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "PENDING (PartitionNodeLimit): it asks for 5 nodes" in job["FailureReason"]
    assert "main gives a job at most 4" in job["FailureReason"]
    jobs.wait_until(lambda: not numbers("PENDING"), queue)


def test_a_job_goes_on_while_the_service_is_killed_and_started_again(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    waiting = jobs.create("print(1)", ResourceConfig=of_type("ml.g4dn.xlarge"))
    jobs.wait(waiting, until=("Pending",))
    (pending,) = numbers("PENDING")
    name = jobs.create(
        "import time\nprint('HERE', flush=True)\nfor i in range(50): print('LINE', i, flush=True); time.sleep(0.1)"
    )
    jobs.wait_for_line(name, "HERE")
    cluster.kill()
    cluster.start()
    jobs = jobs_of(cluster)
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed"
    assert restarts(job) == []
    assert [line for line in jobs.log(name) if line.startswith("LINE")] == [f"LINE {i}" for i in range(50)]
    assert numbers("PENDING") == [pending], "the waiting job kept its place in the queue"
    jobs.sagemaker.stop_training_job(TrainingJobName=waiting)
    jobs.wait(waiting)
    jobs.wait_until(lambda: not numbers("PENDING"), queue)


def test_no_job_is_lost_while_the_controller_is_away(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    running = jobs.create(WAIT)
    jobs.wait_for_line(running, "READY")
    ask("kill_controller")
    try:
        later = jobs.create("print('LATER')")
        job = jobs.wait(later, until=("Pending",))
        assert "Slurm does not answer" in job["SecondaryStatusTransitions"][-1]["StatusMessage"]
        jobs.sagemaker.stop_training_job(TrainingJobName=running)
        assert jobs.wait(running)["TrainingJobStatus"] == "Stopped"
        cluster.kill()
        cluster.start()
        jobs = jobs_of(cluster)
    finally:
        ask("start_controller")
    assert jobs.wait(later)["TrainingJobStatus"] == "Completed"
    assert "LATER" in jobs.log(later)
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


def resumes(jobs: Any, prefix: str, lose: Any, script: str = STEPS, **options: Any) -> dict[str, Any]:
    """Run a job with checkpoints, call ``lose`` with its Slurm job in the middle, and return the finished job."""
    before = set(numbers())
    name = jobs.create(textwrap.dedent(script), CheckpointConfig={"S3Uri": f"s3://{BUCKET}/{prefix}"}, **options)
    jobs.wait_until(lambda: checkpoints(jobs, prefix) >= 5, "five checkpoints")
    (number,) = set(numbers()) - before
    lose(number)
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    assert len(restarts(job)) == 1
    resumed = [int(re.sub(".*FROM ", "", line)) for line in jobs.log(name) if re.search(r"(^|>:)FROM \d", line)]
    instances = options.get("ResourceConfig", {}).get("InstanceCount", 1)
    assert sorted(resumed)[:instances] == [0] * instances
    assert min(sorted(resumed)[instances:]) >= (4 if script is STEPS else 1)
    return job


def test_a_job_whose_node_is_killed_resumes_on_another(cluster: Service, jobs_of: Any) -> None:
    lost: list[str] = []

    def kill(number: str) -> None:
        lost.append(node_of(number))
        ask("kill_node", lost[0])

    jobs = jobs_of(cluster)
    try:
        resumes(jobs, "checkpoints-killed", kill)
    finally:
        ask("start_node", lost[0])
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


@pytest.mark.parametrize("script", [HOROVOD_STEPS, CUT_STEPS], ids=["horovod", "model-parallel"])
def test_ranks_on_two_nodes_of_which_one_is_killed_resume_together(
    script: str, cluster: Service, jobs_of: Any, request: pytest.FixtureRequest
) -> None:
    jobs, lost = jobs_of(cluster), []

    def kill(number: str) -> None:
        ((_, _, nodes),) = [each for each in queue() if each[0] == number]
        lost.append(slurm("scontrol", "show", "hostnames", nodes).split()[1])
        ask("kill_node", lost[0])

    parameters = (
        under_mpi(mp_parameters=json.dumps({"partitions": 2, "microbatches": 2}))
        if script is CUT_STEPS
        else under_mpi()
    )
    try:
        job = resumes(
            jobs,
            f"checkpoints-{request.node.callspec.id}",
            kill,
            script,
            HyperParameters=parameters,
            ResourceConfig=of_type("ml.c5.large", 2),
        )
    finally:
        ask("start_node", lost[0])
    first, second = sorted(found(jobs.log(job["TrainingJobName"])), key=lambda each: each["rank"])
    if script is HOROVOD_STEPS:
        assert first["weights"] == second["weights"] == [sum(step + 0.5 for step in range(1, 61))] * 10
    else:
        assert first["losses"] == second["losses"]
        alone = jobs.run(CUT_STEPS, HyperParameters={**parameters, **under_mpi(2)})
        whole, _ = found(jobs.log(alone["TrainingJobName"]))
        assert {step: whole["losses"][step] for step in first["losses"]} == first["losses"], "as without a loss"
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


def test_a_job_that_slurm_preempts_saves_its_state_and_resumes(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)

    def preempt(_: str) -> None:
        slurm("sbatch", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 10")

    job = resumes(jobs, "checkpoints-preempted", preempt)
    (why,) = restarts(job)
    assert "has taken the machine away" in why


def test_a_job_whose_allocation_is_ended_starts_again_and_fails_at_last_with_slurms_reason(
    cluster: Service, jobs_of: Any
) -> None:
    jobs = jobs_of(cluster)
    before = set(numbers())
    name = jobs.create(WAIT, RetryStrategy={"MaximumRetryAttempts": 1})
    jobs.wait_for_line(name, "READY")
    (first,) = set(numbers()) - before
    slurm("scancel", first)
    jobs.wait_for_line(name, "READY", 2)
    (second,) = set(numbers()) - before - {first}
    ask("kill_agents", node_of(second))
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == f"InternalServerError: Slurm's job {second} is FAILED (NonZeroExitCode)"
    (message,) = restarts(job)
    assert "algo-1 was lost: InternalServerError: the cluster's scheduler has taken the machine away" in message


def test_an_allocation_is_found_although_the_answer_of_sbatch_was_lost(cluster: Service, tmp_path: Path) -> None:
    job_id, types = "ab" * 16, ["ml.m5.large"]
    options = {"*": SlurmOptions(partition="closed")}
    placement = SlurmPlacement(tmp_path, options=options)
    try:
        with pytest.raises(MachinesBusy, match="PENDING"):
            placement.reserve(job_id, 1, types, title="lost")
        (file,) = tmp_path.glob(f"{job_id}-1.json")
        value = json.loads(file.read_text())
        number = value["number"]
        file.write_text(json.dumps({**value, "number": None}))
        again = SlurmPlacement(tmp_path, options=options)
        with pytest.raises(MachinesBusy, match=f"job {number} is PENDING"):
            again.reserve(job_id, 1, types, title="lost")
        assert again.waits(job_id)
        again.release(job_id)
        assert str(number) not in numbers("PENDING")
    finally:
        placement.close()


def test_an_endpoint_outlives_a_node_the_service_and_the_controller(cluster: Service, jobs_of: Any) -> None:
    jobs = jobs_of(cluster)
    served = ServedDigits(jobs, jobs.run(DIGITS), instances=2)
    served.wait()
    scores = served.invoke()
    assert len(scores) == 10
    assert served.transform(instances=2) == [scores] * 8
    jobs.wait_until(lambda: len(numbers()) == 2, queue)  # an allocation for each instance
    before = set(numbers())
    lost = node_of(min(before))
    with served.asked_all_the_time() as waited_s:
        ask("kill_node", lost)
        jobs.wait_until(lambda: len(set(numbers()) - before) == 1, queue)
        served.wait()
        answered = len(waited_s)
        jobs.wait_until(lambda: len(waited_s) > answered + 20, "answers of both instances")
    ask("start_node", lost)
    running = set(numbers())
    ask("kill_controller")
    try:
        cluster.kill()
        cluster.start()
        jobs = jobs_of(cluster)
        served.take_up(jobs)
        assert served.invoke() == scores
    finally:
        ask("start_controller")
    jobs.wait_until(lambda: set(numbers()) == running, queue)
    served.wait()
    served.delete()
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


def test_an_endpoint_and_a_transform_job_wait_for_nodes_and_can_be_ended_meanwhile(
    cluster: Service, jobs_of: Any
) -> None:
    jobs = jobs_of(cluster)
    name = jobs.create(WAIT, ResourceConfig=of_type("ml.c5.large", 4))
    jobs.wait_for_line(name, "READY", count=4)
    trained = {"ModelArtifacts": {"S3ModelArtifacts": f"s3://{BUCKET}/digits/model.tar.gz"}}
    jobs.s3.put_object(Bucket=BUCKET, Key="digits/model.tar.gz", Body=b"no node unpacks it")
    served = ServedDigits(jobs, trained, instances=1)
    served.begin_transform(instances=2)
    jobs.wait_until(lambda: len(numbers("PENDING")) == 2, queue)

    def reason() -> str:
        (starting,) = served.describe()["PendingDeploymentSummary"]["ProductionVariants"]
        return starting.get("VariantStatus", [{"StatusMessage": ""}])[0]["StatusMessage"]

    jobs.wait_until(lambda: "is PENDING" in reason(), reason)
    jobs.sagemaker.stop_transform_job(TransformJobName=served.name)
    assert served.ended_transform()["TransformJobStatus"] == "Stopped"
    served.delete()
    jobs.wait_until(lambda: not numbers("PENDING"), queue)
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    jobs.wait(name)
    jobs.wait_until(lambda: len(idle_nodes()) == 4, queue)


def test_a_processing_job_runs_on_a_node(cluster: Service, jobs_of: Any) -> None:
    script = "import socket\nopen('/opt/ml/processing/out/result', 'w').write(socket.gethostname())\n"
    _, result = process(jobs_of(cluster), script)
    assert result
