"""The placement on Slurm, with recorded output of Slurm 22.05's commands; `make matrix-slurm` runs the real daemons."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.core.instances import InstanceRef
from tidemill.core.slurm_options import SlurmOptions
from tidemill.errors import CapacityError, ConfigurationError, LaunchError, MachinesBusy
from tidemill.executors.slurm import batch, commands, nodes, queue
from tidemill.executors.slurm.commands import SlurmAway, SlurmRefused
from tidemill.executors.slurm.placement import SlurmPlacement, total_cpus
from tidemill.node.slurm import NotOurs, await_assignments

JOB_ID = "ab" * 16
NAME = f"tidemill-{JOB_ID}-1"
LISTING = """\
7|PENDING|PartitionDown||tidemill-aa-4
3|FAILED|BadConstraints||wrap
5|FAILED|NonZeroExitCode|node[1-2]|tidemill-aa-2
6|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions||tidemill-aa-3
4|PREEMPTED|None|node1|tidemill-aa-1
12|RUNNING|None|node[3-4]|tidemill-bb-1
11|COMPLETED|None|node[1-4]|wrap
"""
CPUS = "node1|2\nnode1|2\nnode2|4\n"
NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 CPUEfctv=2 CPUTot=2 CPULoad=13.08"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:2 NodeAddr={address} NodeHostName=head Version=22.05.8"
    " OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory=1000 AllocMem=0 Sockets=2 Boards=1 State={state}"
    " ThreadsPerCore=1 TmpDisk=0 Partitions=main,urgent  Reason=Not responding [slurm@2026-11-27T16:32:42]\n"
)
PARTITIONS = """\
PartitionName=main AllowGroups=ALL GraceTime=20 MaxNodes=UNLIMITED MinNodes=0 Nodes=node[1-4] TotalCPUs=8 TotalNodes=4
PartitionName=small AllowGroups=ALL GraceTime=20 MaxNodes=2 MinNodes=0 Nodes=node[1-4] TotalCPUs=8 TotalNodes=4
PartitionName=large AllowGroups=ALL GraceTime=20 MaxNodes=UNLIMITED MinNodes=0 Nodes=node[1-9] TotalCPUs=18 TotalNodes=9
"""
AWAY = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
ANSWER = """\
#!/bin/sh
cd {directory} || exit
echo "$@" >> {name}.calls
{first}
cat {name}.out
cat {name}.err >&2
exit "$(cat {name}.rc)"
"""
FIRST = {
    "sbatch": "cat > script",
    "scontrol": "[ \"$2\" != hostnames ] || exec sed -n 's/^NodeName=\\([^ ]*\\).*/\\1/p' scontrol.out",
}


class Slurm:
    """Commands in a directory of the PATH, whose answers a test sets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in commands.NEEDED:
            self.answer(name)
            (root / name).write_text(ANSWER.format(directory=root, name=name, first=FIRST.get(name, "")))
            (root / name).chmod(0o755)
        self.answer("sinfo", CPUS)

    def answer(self, name: str, out: str = "", *, error: str = "", status: int | None = None) -> None:
        """Set what a command writes, and its exit status; by default 1 with an error."""
        (self.root / f"{name}.out").write_text(out)
        (self.root / f"{name}.err").write_text(error)
        (self.root / f"{name}.rc").write_text(str(int(bool(error)) if status is None else status))

    def calls(self, name: str) -> list[str]:
        file = self.root / f"{name}.calls"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return Slurm(directory)


@pytest.fixture
def place(slurm: Slurm, tmp_path: Path) -> Callable[..., SlurmPlacement]:
    def make(**options: SlurmOptions) -> SlurmPlacement:
        return SlurmPlacement(tmp_path / "records", options=options or None, python="/opt/python")

    return make


def test_a_listing_of_squeue_names_jobs_of_tidemill_with_state_and_reason() -> None:
    jobs = {job.number: job for job in queue.parse(LISTING)}
    assert sorted(jobs) == [4, 5, 6, 7, 12], "others are not ours"
    assert [number for number, job in jobs.items() if job.waits] == [7, 6]
    assert [number for number, job in jobs.items() if job.ended] == [5, 4]
    assert str(jobs[7]) == "Slurm's job 7 is PENDING (PartitionDown)"
    assert str(jobs[4]) == "Slurm's job 4 is PREEMPTED"
    assert (jobs[12].nodes, jobs[12].name) == ("node[3-4]", "tidemill-bb-1")


@pytest.mark.parametrize(
    ("state", "responds"),
    [("ALLOCATED", True), ("MIXED", True), ("IDLE+DRAIN", True), ("DOWN+NOT_RESPONDING", False), ("ALLOCATED*", False)],
)
def test_a_node_responds_or_not(state: str, responds: bool) -> None:
    (node,) = nodes.parse(NODE.format(name="node1", address="10.88.0.11", state=state))
    assert (node.name, node.address, node.responds) == ("node1", "10.88.0.11", responds)


def test_the_cpus_of_a_node_in_several_partitions_count_once() -> None:
    assert total_cpus(CPUS) == 6


@pytest.mark.parametrize(
    ("said", "kind", "impossible"),
    [
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            SlurmAway,
            0,
        ),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", SlurmAway, 0),
        (
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's"
            " size and/or time limits)",
            SlurmAway,
            0,
        ),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", SlurmRefused, 1),
        (
            "sbatch: error: invalid partition specified: nowhere\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            SlurmRefused,
            1,
        ),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", SlurmRefused, 1),
        ("sbatch: error: Batch job submission failed: Access/permission denied", SlurmRefused, 0),
    ],
)
def test_errors_say_whether_the_request_may_succeed_later(
    said: str, kind: type[Exception], impossible: int, slurm: Slurm
) -> None:
    slurm.answer("sbatch", error=said)
    with pytest.raises(kind) as error:
        commands.run("sbatch")
    assert "sbatch: error" not in str(error.value)
    assert getattr(error.value, "impossible", False) == bool(impossible)


def test_options_become_those_of_sbatch_and_others_are_refused() -> None:
    options = SlurmOptions(partition="gpu", qos="high", gres="gpu:2", cpus=8, exclusive=True, options=("--nice=10",))
    assert (
        " ".join(options.arguments())
        == "--partition=gpu --qos=high --gres=gpu:2 --cpus-per-task=8 --exclusive --nice=10"
    )
    for refused in ("-N2", "--nodes=3", "--job=x", "--requeue", "x"):
        with pytest.raises(ValueError, match=r"option of sbatch|cannot be set"):
            SlurmOptions(options=(refused,))


def test_a_job_is_submitted_once_waits_with_slurms_reason_and_is_cancelled(
    slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    placement = place(**{"ml.p3.*": SlurmOptions(gres="gpu:1"), "ml.*": SlurmOptions()})
    slurm.answer("sbatch", "12\n")
    slurm.answer("squeue", f"12|PENDING|Priority||{NAME}\n")
    for _ in range(2):
        with pytest.raises(MachinesBusy, match=r"Slurm's job 12 is PENDING \(Priority\)"):
            placement.reserve(JOB_ID, 1, ["ml.p3.2xlarge"] * 2, title="digits")
    (call,) = slurm.calls("sbatch")
    assert f"--job-name={NAME} --comment=digits --nodes=2 --ntasks-per-node=1 --gres=gpu:1" in call
    assert "--no-requeue --export=NIL" in call
    assert "/opt/python -I -m tidemill.node.slurm" in (slurm.root / "script").read_text()
    assert placement.waits(JOB_ID)
    placement.release(JOB_ID)
    assert slurm.calls("scancel") == ["--quiet 12"]


def test_an_answer_of_sbatch_that_was_lost_starts_no_second_allocation(
    slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    placement = place()
    slurm.answer("sbatch", error=AWAY)
    with pytest.raises(MachinesBusy, match=r"Slurm does not answer: .*Unable to contact"):
        placement.reserve(JOB_ID, 1, ["ml.m5.large"], title="digits")
    slurm.answer("squeue", f"12|RUNNING|None|node1|{NAME}\n")
    slurm.answer("scontrol", NODE.format(name="node1", address="10.88.0.11", state="ALLOCATED"))
    assert place().reserve(JOB_ID, 1, ["ml.m5.large"], title="digits") == ("10.88.0.11",)
    assert len(slurm.calls("sbatch")) == 1


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("NODE_FAIL|None", MachinesBusy, "is submitted again"),
        ("PREEMPTED|None", MachinesBusy, "is submitted again"),
        ("FAILED|NonZeroExitCode", LaunchError, r"FAILED \(NonZeroExitCode\) before .*slurm-12.log on the first of"),
        ("CANCELLED|None", LaunchError, "CANCELLED"),
    ],
)
def test_an_allocation_that_ends_before_the_start(
    state: str, kind: type[Exception], words: str, slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    slurm.answer("sbatch", "12\n")
    slurm.answer("squeue", f"12|{state}|node1|{NAME}\n")
    placement = place()
    with pytest.raises(kind, match=words):
        placement.reserve(JOB_ID, 1, ["ml.m5.large"], title="digits")
    assert not placement.waits(JOB_ID)


def test_what_slurm_cannot_provide_is_a_lack_of_capacity(slurm: Slurm, place: Callable[..., SlurmPlacement]) -> None:
    slurm.answer(
        "sbatch", error="sbatch: error: Batch job submission failed: Requested node configuration is not available"
    )
    with pytest.raises(CapacityError, match=r"Requested node configuration is not available.*slurm_instance_types"):
        place().reserve(JOB_ID, 1, ["ml.m5.large"], title="digits")
    with pytest.raises(CapacityError, match="one allocation"):
        place(**{"ml.p3.*": SlurmOptions(gres="gpu:1")}).reserve(
            JOB_ID, 1, ["ml.p3.2xlarge", "ml.m5.large"], title="two"
        )


@pytest.mark.parametrize("state", ["FAILED|BadConstraints", "PENDING|PartitionTimeLimit"])
def test_a_job_that_slurm_never_starts_is_a_lack_of_capacity(
    state: str, slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    slurm.answer("sbatch", "12\n")
    slurm.answer("squeue", f"12|{state}||{NAME}\n")
    with pytest.raises(CapacityError, match=r"Slurm's job 12 is .*slurm_instance_types"):
        place().reserve(JOB_ID, 1, ["ml.m5.large"], title="digits")


def test_more_nodes_than_a_partition_gives_are_refused_and_nodes_that_are_down_are_awaited(
    slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    slurm.answer("sbatch", "12\n")
    slurm.answer("squeue", f"12|PENDING|PartitionNodeLimit||{NAME}\n")
    slurm.answer("scontrol", f"JobId=12 JobName={NAME} JobState=PENDING Partition=main,small NumNodes=4\n{PARTITIONS}")
    placement = place()
    with pytest.raises(MachinesBusy, match="PartitionNodeLimit"):
        placement.reserve(JOB_ID, 1, ["ml.m5.large"] * 4, title="four of the four nodes of main")
    with pytest.raises(
        CapacityError, match=r"asks for 5 nodes, and the partition main gives a job at most 4, small .*2"
    ):
        placement.reserve(JOB_ID, 2, ["ml.m5.large"] * 5, title="five")
    slurm.answer("scontrol", error="slurm_load_jobs error: Invalid job id specified")
    with pytest.raises(MachinesBusy):
        placement.reserve(JOB_ID, 2, ["ml.m5.large"] * 5, title="its job has just ended")


@pytest.mark.parametrize(
    ("state", "node", "certain"),
    [
        ("TIMEOUT|TimeLimit", "IDLE", True),
        ("CANCELLED|None", "IDLE", True),
        ("CANCELLED|None", "DOWN+NOT_RESPONDING", False),
        ("NODE_FAIL|None", "IDLE", False),
    ],
)
def test_processes_on_a_node_without_contact_may_still_run(
    state: str, node: str, certain: bool, slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    slurm.answer("sbatch", "12\n")
    slurm.answer("squeue", f"12|RUNNING|None|node1|{NAME}\n")
    slurm.answer("scontrol", NODE.format(name="node1", address="10.88.0.11", state="ALLOCATED"))
    placement = place()
    placement.reserve(JOB_ID, 1, ["ml.m5.large"], title="digits")
    placement.start({InstanceRef(JOB_ID, 0): b"assignment"})
    slurm.answer("squeue", f"12|{state}|node1|{NAME}\n")
    slurm.answer("scontrol", NODE.format(name="node1", address="10.88.0.11", state=node))
    assert placement.kill(InstanceRef(JOB_ID, 0)) is certain
    assert slurm.calls("scancel") == ["--quiet 12"]
    slurm.answer("squeue", error=AWAY)
    assert not placement.kill(InstanceRef(JOB_ID, 0))
    assert not placement.kill(InstanceRef("cd" * 16, 0)), "there is no such allocation"


def test_a_service_starts_without_the_controller_if_it_once_answered(
    slurm: Slurm, place: Callable[..., SlurmPlacement]
) -> None:
    slurm.answer("sinfo", error=AWAY)
    with pytest.raises(ConfigurationError, match="Unable to contact slurm controller"):
        place().capacity()
    slurm.answer("sinfo", CPUS)
    assert place().capacity().cpus == 6
    slurm.answer("sinfo", error=AWAY)
    assert place().capacity().cpus == 6


def test_missing_commands_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"sbatch, sbcast, .*apt install slurm-client"):
        SlurmPlacement(tmp_path)


def test_assignments_reach_a_node_complete_or_not_at_all(tmp_path: Path) -> None:
    file, content = tmp_path / "sent", batch.pack({0: b"one", 1: b"two"})
    assert all(batch.unpack(content[:length]) is None for length in range(len(content)))
    file.touch(mode=0o600)
    file.write_bytes(content)
    assert await_assignments(file, wait_s=60) == {0: b"one", 1: b"two"}
    assert not file.exists()
    begun_s = time.monotonic()
    assert await_assignments(file, wait_s=0.1) is None
    assert time.monotonic() - begun_s >= 0.1


def test_assignments_that_another_user_may_have_written_are_refused(tmp_path: Path) -> None:
    (tmp_path / "open").write_bytes(batch.pack({}))
    (tmp_path / "open").chmod(0o622)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(NotOurs, match="with mode 622; expected 600"):
        await_assignments(tmp_path / "open", wait_s=60)
    with pytest.raises(OSError, match="symbolic links"):
        await_assignments(tmp_path / "link", wait_s=60)
