"""kill -9 of the server at every stage of a job of two instances: the job ends correctly, both scripts run once, and no
process, mount or network namespace is left.

One job is hit by several kills, one per start of the server, so that a few jobs cover all stages. The kills come from
inside, at named fault points; only the one between the ends of the two instances comes from outside.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from victim import Victim

from tidemill.instance.directory import InstanceDirectory
from tidemill.sandbox.network import network_failure

WaitUntil = Callable[[Callable[[], Any], str], Any]
ProcessesOf = Callable[[str], list[Any]]

RESOURCES = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
# algo-1 ends first. algo-2 waits for the file `go`, and does what the file says.
SCRIPT = """
    import os, pathlib, time
    host = os.environ["SM_CURRENT_HOST"]
    shared = pathlib.Path(os.environ["TIDEMILL_JOB_DIRECTORY"])
    print("RUN", host, flush=True)
    (shared / f"{host}.up").touch()
    while len(list(shared.glob("*.up"))) < 2:
        time.sleep(0.02)
    while host == "algo-2" and not (shared / "go").exists():
        time.sleep(0.02)
    if host == "algo-2" and (shared / "go").read_text() == "fail":
        raise ValueError("no such layer")
    pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text(f"weights of {host}")
    print("END", host, flush=True)
"""

# Stage -> the fault point that the server passes at that stage, and how often it passes before it dies.
LAUNCHING = {
    "network announced": ("executor.network.before", 0),
    "network made, and not noted": ("executor.network.made", 0),
    "one of two instances written": ("executor.written", 0),
    "both written": ("executor.written", 1),
    "one of two instances started": ("executor.started", 0),
    "both started": ("executor.started", 1),
}
PUBLISHING = {
    "before publishing": ("control.publish.before", 0),
    "published object renamed": ("store.object.rename", 0),
    "after publishing": ("control.publish.after", 0),
    "before the end is committed": ("control.finalize.before", 0),
    "after the end is committed": ("control.finalize.after", 0),
}


class Gang:
    """A job of two instances, the starts of its server, and the traces that the job must not leave."""

    def __init__(self, victim: Victim, processes_of: ProcessesOf, wait_until: WaitUntil) -> None:
        self._victim = victim
        self._processes_of = processes_of
        self._wait_until = wait_until
        self._namespaces: dict[str, int] = {}
        self.name = ""
        self.job_id = ""

    def die_creating(self, point: str, skipping: int) -> None:
        """Create the job under a server that dies at a stage of its launch."""
        self._victim.start(point, skipping=skipping)
        jobs = self._victim.jobs
        known = {path.name for path in (self._victim.state_dir / "jobs").glob("*")}
        request = jobs.request(SCRIPT, ResourceConfig=RESOURCES)
        self.name = request["TrainingJobName"]
        self._victim.die_creating(request, point)
        (self.job_id,) = {path.name for path in (self._victim.state_dir / "jobs").glob("*")} - known
        self._note_namespaces()

    def die_again(self, point: str, skipping: int = 0) -> None:
        """Start the next server, which dies at a stage as well."""
        self._victim.die_again(point, skipping=skipping)
        self._note_namespaces()

    def run_until_one_has_ended(self) -> None:
        """Start the next server, and kill it when algo-1 has ended and algo-2 has not."""
        self._victim.revive()
        first, second = self._instances()
        self._wait_until(lambda: first.read_exit(), "the end of algo-1")
        assert second.read_exit() is None
        self._note_namespaces()
        self._victim.service.kill()

    def release(self, what: str = "end") -> None:
        """Let algo-2 end while no server runs."""
        _, second = self._instances()
        unfinished = second.shared / "go.new"
        unfinished.write_text(what)
        unfinished.rename(second.shared / "go")
        self._wait_until(lambda: second.read_exit(), "the end of algo-2")

    def check(self, status: str = "Completed") -> None:
        """Check the invariants of every job, and look for traces of this one."""
        job = self._victim.jobs.wait(self.name)
        assert job["TrainingJobStatus"] == status, job.get("FailureReason")
        log = [line for line in self._victim.jobs.log(self.name) if re.match("RUN|END", line)]
        if status == "Completed":
            assert sorted(log) == ["END algo-1", "END algo-2", "RUN algo-1", "RUN algo-2"], "each script ran once"
            assert self._victim.jobs.model_files(job)["weights"] == b"weights of algo-1"
        else:
            assert sorted(log) == ["END algo-1", "RUN algo-1", "RUN algo-2"]
            assert "ValueError: no such layer" in job["FailureReason"]
            assert job["FailureReason"].endswith("instance: algo-2")
            assert not job["ModelArtifacts"]["S3ModelArtifacts"]
        reached = [each["Status"] for each in job["SecondaryStatusTransitions"]]
        assert len(reached) == len(set(reached)), "each phase once: it is still the first attempt"
        directory = self._victim.state_dir / "jobs" / self.job_id
        self._wait_until((directory / "published.json").exists, "the clean-up of the job")
        self._check_nothing_left(directory)

    def _check_nothing_left(self, directory: Path) -> None:
        # A shim may still be exiting when the service reads its result.
        self._wait_until(lambda: not self._processes_of(self.job_id), "the end of the job's processes")
        assert not list(directory.glob("network.*")), "no network is recorded"
        assert not list(directory.rglob("*.tmp")), "nothing half written is left"
        # A process that is exiting has no environment any more when it leaves its mounts.
        self._wait_until(lambda: not users_of_mounts(str(directory)), "the end of the job's mounts")
        self._wait_until(lambda: not users_of_namespaces(set(self._namespaces)), "the end of the network namespaces")

    def _instances(self) -> list[InstanceDirectory]:
        def both() -> list[InstanceDirectory]:
            found = list(InstanceDirectory.all_below(self._victim.state_dir, self.job_id))
            return found if len(found) == 2 else []

        return self._wait_until(both, "both instances")

    def _note_namespaces(self) -> None:
        """Remember the network namespaces that processes of the job are in or hold open.

        The test opens each of them too. Otherwise the kernel would reuse its number, possibly for the network of
        another test on this machine.
        """
        own = str(Path("/proc/self/ns/net").readlink())
        for process in self._processes_of(self.job_id):
            for link in namespaces_of(Path("/proc") / str(process.pid)):
                with contextlib.suppress(OSError):  # the process may end meanwhile
                    descriptor = os.open(link, os.O_RDONLY)
                    name = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115
                    if name in self._namespaces or name == own:
                        os.close(descriptor)
                    else:
                        self._namespaces[name] = descriptor

    def check_namespaces_were_seen(self) -> None:
        """Fail if a job that should have had a separate network had none: its removal would not have been tested."""
        assert self._namespaces or network_failure() is not None

    def close(self) -> None:
        """Let go of the namespaces."""
        for descriptor in self._namespaces.values():
            os.close(descriptor)
        self._namespaces.clear()


def namespaces_of(process: Path) -> Iterator[Path]:
    """Yield the links to the network namespaces that a process is in or has open."""
    with contextlib.suppress(OSError):
        for link in (process / "ns/net", *(process / "fd").iterdir()):
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith("net:["):
                    yield link


def users_of_namespaces(names: set[str]) -> list[str]:
    """Return the ids of processes, beside this one, that are in one of the namespaces or hold it open."""

    def uses_one(process: Path) -> bool:
        for link in namespaces_of(process):
            with contextlib.suppress(OSError):
                if str(link.readlink()) in names:
                    return True
        return False

    return [each.name for each in Path("/proc").glob("[0-9]*") if int(each.name) != os.getpid() and uses_one(each)]


def users_of_mounts(path: str) -> list[str]:
    """Return the ids of processes that have something below ``path`` mounted."""
    found = []
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):
            if path in mounts.read_text(errors="replace"):
                found.append(mounts.parent.name)
    return found


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any) -> Iterator[Victim]:
    made = Victim(tmp_path, jobs_of, max_instances=2)
    try:
        yield made
    finally:
        made.service._clean_up()


@pytest.fixture
def gang_of(victim: Victim, processes_of: ProcessesOf, wait_until: WaitUntil) -> Iterator[Callable[[], Gang]]:
    with contextlib.ExitStack() as gangs:
        yield lambda: gangs.enter_context(contextlib.closing(Gang(victim, processes_of, wait_until)))


def test_jobs_of_two_instances_survive_deaths_of_the_server_at_every_stage(
    victim: Victim, gang_of: Callable[[], Gang]
) -> None:
    gang = gang_of()
    gang.die_creating(*LAUNCHING["network announced"])
    gang.die_again(*LAUNCHING["network made, and not noted"])
    gang.die_again(*LAUNCHING["one of two instances written"])
    gang.die_again(*LAUNCHING["both written"])
    gang.run_until_one_has_ended()
    gang.release()
    for stage in ("before publishing", "published object renamed", "after publishing", "before the end is committed"):
        gang.die_again(*PUBLISHING[stage])
    victim.revive()
    gang.check()
    gang.check_namespaces_were_seen()

    victim.service.kill()
    failing = gang_of()
    failing.die_creating(*LAUNCHING["one of two instances started"])
    failing.run_until_one_has_ended()
    failing.release("fail")
    failing.die_again(*PUBLISHING["after the end is committed"])
    victim.revive()
    failing.check("Failed")


@pytest.mark.matrix
@pytest.mark.parametrize("ending", ["end", "fail"])
@pytest.mark.parametrize("stage", [*LAUNCHING, *PUBLISHING])
def test_the_matrix_of_kills_of_gangs(stage: str, ending: str, victim: Victim, gang_of: Callable[[], Gang]) -> None:
    gang = gang_of()
    gang.die_creating(*LAUNCHING.get(stage, ("control.launch.after", 0)))
    gang.run_until_one_has_ended()
    gang.release(ending)
    # A failed job stores no object, so its server dies one step earlier.
    nothing_stored = ending == "fail" and stage == "published object renamed"
    gang.die_again(*PUBLISHING.get("before publishing" if nothing_stored else stage, PUBLISHING["before publishing"]))
    victim.revive()
    gang.check("Completed" if ending == "end" else "Failed")
    gang.check_namespaces_were_seen()
