"""Leases and attempts of instances on other machines, with real agents that use the service's own API."""

import asyncio
import io
import itertools
import os
import secrets
import signal
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster_service import ClusterService
from process_placement import ProcessPlacement

from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.core.segments import segment_path, segments_of, stream_directory
from tidemill.errors import LaunchError
from tidemill.executors.cluster.executor import ClusterExecutor
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK
from tidemill.instance.remote_s3 import upload, upload_client
from tidemill.instance.samples import SampleSeries
from tidemill.instance.spec import ChannelSpec, InstanceSpec
from tidemill.instance.status import InstanceExit, InstanceOutcome
from tidemill.node.service import AttemptOver, ServiceAway, ServiceClient
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore

LEASE_S = 60.0
SHORT_LEASE_S = 10.0
BASE = "import os, pathlib; base = pathlib.Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
WAIT = "import signal; print('ready', flush=True); signal.pause()\n"
WAIT_FOR_GO = (
    BASE + "import time\nprint('ready', flush=True)\nwhile not (base / 'output/data/go').exists(): time.sleep(0.05)\n"
)
SAVE = (
    "import signal, sys\n"
    "def save(*_):\n (base / 'model/saved').write_text('yes'); print('saved', flush=True); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
)
_numbers = itertools.count(1)
short_lease = pytest.mark.parametrize("cluster", [SHORT_LEASE_S], indirect=True)


class FastClock(SystemClock):
    """A clock that is an hour ahead."""

    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


class Cluster:
    """A service, an executor over it, and directories that simulate machines."""

    def __init__(self, root: Path, database: Database, objects: ObjectStore, *, lease_s: float) -> None:
        self.database = database
        self.objects = objects
        self.logs = root / "logs"
        self.placement = ProcessPlacement(root / "machines")
        self.service = ClusterService(objects, lambda: self.executor.instances)
        self.records = root / "cluster"
        self.lease_s = lease_s
        self.executor = self.open()
        self.executor.instances.begin_leases()
        self.jobs: list[str] = []
        asyncio.run(objects.ensure_bucket("bucket"))

    def open(self) -> ClusterExecutor:
        """Return an executor, as a service has it before agents can reach the service."""
        return ClusterExecutor(
            self.records,
            self.placement,
            logs=SegmentSink(self.logs),
            leases=SqlLeaseRecords(self.database),
            service_url=lambda: self.service.url,
            lease_s=self.lease_s,
            isolation="plain",
        )

    def spec(self, script: str, **changes: Any) -> InstanceSpec:
        number = next(_numbers)
        name = f"job-{number}"
        # Processes are found by the id of their job on the whole machine, where other tests may run.
        self.jobs.append(secrets.token_hex(16))
        members: dict[str, Any] = {
            "ref": InstanceRef(self.jobs[-1], 0),
            "kind": "training",
            "job_name": name,
            "hosts": ("algo-1",),
            "framework_version": "2.21",
            "log": StreamName("jobs", name),
            "config": {"hyperparameters": {"script": script}},
            "variables": self.service.variables(name),
            "artifacts_uri": f"s3://bucket/output/{name}/output",
            "grace_s": 20.0,
        }
        return InstanceSpec(**{**members, **changes})

    def start(self, script: str, **changes: Any) -> InstanceSpec:
        spec = self.spec(script, **changes)
        self.executor.launch([spec])
        return spec

    def wait(self, condition: Callable[[], bool], *, timeout_s: float = 60) -> None:
        async def follow() -> None:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self.executor.changed(timeout_s=0.2)

        asyncio.run(follow())

    def go(self) -> InstanceDirectory:
        """Let the script `WAIT_FOR_GO` continue. Return the directory of its instance."""
        for data in self.placement.directories("ml/output/data"):
            (data / "go").touch()
        return InstanceDirectory(data.parents[2])

    def ended(self, spec: InstanceSpec) -> InstanceExit | None:
        self.wait(lambda: not self.executor.observe(spec.ref).running)
        return self.executor.observe(spec.ref).exit

    def lines(self, spec: InstanceSpec) -> list[str]:
        directory = stream_directory(self.logs, spec.log.group, spec.log.stream)
        data = b"".join(segment_path(directory, number).read_bytes() for number in segments_of(directory))
        return [line.split(b" ", 1)[1].decode() for line in data.split(b"\n")[:-1]]

    def wait_for_line(self, spec: InstanceSpec, line: str) -> None:
        self.wait(lambda: line in self.lines(spec) or not self.executor.observe(spec.ref).running)
        assert line in self.lines(spec)

    def stored(self, key: str, data: bytes) -> ObjectReference:
        return reference(asyncio.run(self.objects.put_bytes("bucket", key, data)))

    def stored_in_parts(self, name: str, data: bytes) -> ObjectReference:
        client = upload_client(self.service.variables("uploader"))
        upload(client, io.BytesIO(data), bucket="bucket", key=f"output/uploader/{name}")
        return reference(self.objects.require("bucket", f"output/uploader/{name}"))

    def model_of(self, spec: InstanceSpec) -> ObjectInfo:
        return self.objects.require("bucket", f"output/{spec.job_name}/output/model.tar.gz")

    def files_of(self, info: ObjectInfo) -> dict[str, bytes]:
        """Return the files of an archive by name."""
        with tarfile.open(fileobj=io.BytesIO(asyncio.run(self.objects.read_bytes(info)))) as archive:
            opened = {member.name: archive.extractfile(member) for member in archive}
            return {name: file.read() for name, file in opened.items() if file is not None}


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, environments_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """Yield a cluster whose leases are long, or of the length that the test requests."""
    monkeypatch.setenv("TIDEMILL_ENVIRONMENTS_DIR", str(environments_dir))
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
        made = Cluster(tmp_path, database, objects, lease_s=getattr(request, "param", LEASE_S))
        with made.service.serving():
            try:
                yield made
            finally:
                made.service.away = made.placement.unreachable = False
                for job_id in made.jobs:
                    made.executor.reap(job_id)
                    made.placement.release(job_id)
                made.executor.close()
        asyncio.run(objects.close())


def reference(info: ObjectInfo) -> ObjectReference:
    return ObjectReference(
        uri=f"s3://{info.bucket}/{info.key}",
        name=info.key.rpartition("/")[2],
        content_id=info.content_id,
        size_bytes=info.size_bytes,
        sha256=info.sha256,
        etag=info.etag,
    )


def processes_of(spec: InstanceSpec) -> list[psutil.Process]:
    """Return the shim of an instance and all processes below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == spec.ref.mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


def agent_of(spec: InstanceSpec) -> psutil.Process:
    (agent,) = (
        each
        for each in psutil.process_iter()
        if "tidemill.node" in _command(each) and spec.ref.job_id in " ".join(_command(each))
    )
    return agent


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_code_and_data_come_from_s3_and_the_model_goes_there_in_parts_if_they_are_large(cluster: Cluster) -> None:
    code = io.BytesIO()
    with tarfile.open(fileobj=code, mode="w:gz"):
        pass
    content = os.urandom(9 << 20)  # boto3 uploads in parts of 8 MiB, and random bytes cannot be packed
    large = cluster.stored_in_parts("large", content)
    assert large.etag.endswith("-2")
    spec = cluster.start(
        BASE + "data = base / 'input/data/training'\n"
        "print((data / 'a').read_text(), (base / '.tidemill/sourcedir.tar.gz').stat().st_size)\n"
        "(base / 'model/weights').write_bytes((data / 'large').read_bytes())",
        code=cluster.stored("code/sourcedir.tar.gz", code.getvalue()),
        channels=(ChannelSpec(name="training", objects=[cluster.stored("data/a", b"first"), large]),),
    )
    ended = cluster.ended(spec)
    assert ended is not None, cluster.lines(spec)
    assert (ended.outcome, ended.failure) == (InstanceOutcome.COMPLETED, "")
    assert f"first {len(code.getvalue())}" in cluster.lines(spec)
    model = cluster.model_of(spec)
    assert model.etag.endswith("-2")
    assert cluster.files_of(model) == {"weights": content}


def test_data_of_another_s3_is_read_with_the_keys_of_the_machine_and_the_service_with_those_of_the_job(
    cluster: Cluster, remote: Any
) -> None:
    near, far = cluster.stored("data/near", b"near"), remote.put("far", b"far")
    spec = cluster.start(
        BASE + "read = lambda name: (base / 'input/data' / name).read_text()\n"
        "print(read('near/near'), read('far/far'), read('pipe_0'), 'AWS_SECRET_ACCESS_KEY' in os.environ)",
        channels=(
            ChannelSpec(name="near", objects=[near]),
            ChannelSpec(name="far", objects=[far]),
            ChannelSpec(name="pipe", input_mode="Pipe", objects=[far, near]),
        ),
        remotes=remote.remotes,
    )
    ended = cluster.ended(spec)
    assert ended is not None, cluster.lines(spec)
    assert (ended.outcome, ended.failure) == (InstanceOutcome.COMPLETED, "")
    assert "near far farnear True" in cluster.lines(spec)
    signed = "".join(remote.wire.requests)
    assert os.environ["AWS_ACCESS_KEY_ID"] in signed
    assert "ASIA" not in signed, "the keys of the job are for the service alone"


def test_a_processing_job_reports_although_a_training_job_has_its_name(cluster: Cluster) -> None:
    training = cluster.spec(WAIT)
    keys = cluster.service.variables(training.job_name, kind="processing")
    spec = cluster.start("print('processed')", kind="processing", job_name=training.job_name, variables=keys)
    ended = cluster.ended(spec)
    assert ended is not None, cluster.lines(spec)
    assert (ended.outcome, ended.failure) == (InstanceOutcome.COMPLETED, "")
    assert "processed" in cluster.lines(spec)
    with pytest.raises(AttemptOver, match="is not that of 'processing-job"):
        ServiceClient(cluster.start(WAIT).ref, keys).report()


def test_an_object_that_was_replaced_before_the_machine_read_it_fails_the_job_by_name(cluster: Cluster) -> None:
    old = cluster.stored("data/a", b"first")
    cluster.stored("data/a", b"second")
    ended = cluster.ended(cluster.start("", channels=(ChannelSpec(name="training", objects=[old]),)))
    assert ended is not None
    assert ended.outcome is InstanceOutcome.FAILED
    assert "s3://bucket/data/a" in ended.failure


def test_an_instance_whose_end_the_scheduler_reports_is_lost_at_once(cluster: Cluster) -> None:
    spec = cluster.start(WAIT)
    cluster.wait_for_line(spec, "ready")
    cluster.placement.kill(spec.ref)
    cluster.placement.ended(spec.ref.job_id, 2, "of another attempt")
    assert cluster.executor.observe(spec.ref).running
    cluster.placement.ended(spec.ref.job_id, 1, "InternalServerError: TIMEOUT")
    ended = cluster.ended(spec)
    assert ended is not None
    assert (ended.lost, ended.failure) == (True, "InternalServerError: TIMEOUT")
    cluster.placement.ended(spec.ref.job_id, 1, "again")
    assert cluster.executor.observe(spec.ref).exit == ended


def test_a_machine_that_is_taken_away_lets_the_script_save_before_the_instance_is_lost(cluster: Cluster) -> None:
    spec = cluster.start(BASE + SAVE + WAIT)
    cluster.wait_for_line(spec, "ready")
    agent_of(spec).terminate()
    ended = cluster.ended(spec)
    assert ended is not None
    assert ended.lost
    assert "has taken the machine away" in ended.failure
    assert "saved" in cluster.lines(spec)


@short_lease
def test_an_instance_whose_service_is_away_saves_and_ends_before_its_lease(cluster: Cluster) -> None:
    spec = cluster.start(BASE + SAVE + WAIT)
    cluster.wait_for_line(spec, "ready")
    assert processes_of(spec)
    cluster.service.away = True
    cluster.wait(lambda: not cluster.executor.observe(spec.ref).running)
    assert processes_of(spec) == [], "when the lease has ended, nothing of the instance runs"
    status = cluster.executor.observe(spec.ref)
    assert (status.launched, status.exit) == (True, None), "it is lost"


def test_an_instance_goes_on_under_a_service_that_starts_when_its_lease_seems_to_be_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = cluster.start(WAIT_FOR_GO)
    cluster.wait_for_line(spec, "ready")
    cluster.service.away = True
    cluster.executor.close()
    cluster.wait(lambda: cluster.service.turned_away > 0)
    for file in cluster.records.rglob("lease"):
        os.utime(file, (1_000_000, 1_000_000))  # the clock of the service has changed by decades
    cluster.executor = cluster.open()
    waits: list[float] = []
    await_stop = cluster.executor.instances.await_stop
    monkeypatch.setattr(
        cluster.executor.instances,
        "await_stop",
        lambda ref, *, timeout_s: waits.append(timeout_s) or await_stop(ref, timeout_s=timeout_s),
    )
    assert [known.ref for known in cluster.executor.recover(finished=lambda _: False)] == [spec.ref]
    assert cluster.executor.observe(spec.ref).running
    cluster.service.away = False
    cluster.executor.instances.begin_leases()
    cluster.wait(lambda: bool(waits))
    assert waits[0] == 0, "the agent learns at once that it may go on"
    cluster.go()
    ended = cluster.ended(spec)
    assert ended is not None
    assert ended.outcome is InstanceOutcome.COMPLETED


def test_an_agent_does_not_end_because_the_clock_of_the_service_is_wrong(cluster: Cluster) -> None:
    spec = cluster.spec("")
    cluster.executor.instances.add(spec)
    agent = ServiceClient(spec.ref, spec.variables)
    agent.report()
    cluster.service.clock = FastClock()
    with pytest.raises(ServiceAway, match="RequestTimeTooSkewed"):
        agent.report()
    cluster.service.clock = SystemClock()
    agent.report()


def test_a_short_absence_of_the_service_changes_nothing(cluster: Cluster) -> None:
    spec = cluster.start(WAIT_FOR_GO + "for i in range(2000): print(i)\n")
    cluster.wait_for_line(spec, "ready")
    cluster.service.away = True
    instance = cluster.go()
    # The script has ended, and its lines wait on the machine's disk.
    cluster.wait(lambda: any(phase.status == "Uploading" for phase in instance.read_phases()))
    cluster.service.away = False
    ended = cluster.ended(spec)
    assert ended is not None
    assert ended.outcome is InstanceOutcome.COMPLETED
    assert [line for line in cluster.lines(spec) if line.isdigit()] == [str(i) for i in range(2000)]


@short_lease
def test_a_machine_that_cannot_be_reached_keeps_its_instance_until_the_lease_ends(cluster: Cluster) -> None:
    spec = cluster.start(WAIT)
    cluster.wait_for_line(spec, "ready")
    cluster.service.away = cluster.placement.unreachable = True
    cluster.executor.kill(spec.ref)
    assert cluster.executor.observe(spec.ref).running, "who knows whether it still runs?"
    cluster.wait(lambda: not cluster.executor.observe(spec.ref).running)
    assert processes_of(spec) == []


@short_lease
def test_the_instance_of_a_killed_agent_ends_and_the_next_to_end_removes_its_files(
    cluster: Cluster,
) -> None:
    spec, other = cluster.start(WAIT), cluster.start(WAIT_FOR_GO)
    cluster.wait_for_line(spec, "ready")
    cluster.wait_for_line(other, "ready")
    os.kill(agent_of(spec).pid, signal.SIGKILL)
    cluster.wait(lambda: not cluster.executor.observe(spec.ref).running)
    assert processes_of(spec) == []
    assert len(cluster.placement.directories("ml")) == 2
    cluster.go()
    assert cluster.ended(other) is not None
    cluster.wait(lambda: cluster.placement.directories("ml") == [])


def test_reports_of_an_older_attempt_are_refused(cluster: Cluster) -> None:
    first = cluster.start(WAIT)
    cluster.wait_for_line(first, "ready")
    zombie = ServiceClient(first.ref, first.variables)
    zombie.report()
    second = replace(
        first,
        ref=InstanceRef(first.ref.job_id, 0, attempt=2),
        variables=cluster.service.variables(first.job_name, attempt=2),
        config={"hyperparameters": {"script": "print('second')"}},
    )
    cluster.executor.launch([second])
    with pytest.raises(AttemptOver):
        zombie.report()
    with pytest.raises(AttemptOver):
        zombie.deliver(b"1 forged\n", offset=0)
    ended = cluster.ended(second)
    assert ended is not None
    assert "second" in cluster.lines(second)
    assert "1 forged" not in cluster.lines(second)


def test_the_keys_of_one_job_report_nothing_for_another(cluster: Cluster) -> None:
    victim = cluster.start(WAIT)
    cluster.wait_for_line(victim, "ready")
    stranger = ServiceClient(victim.ref, cluster.service.variables("job-of-somebody"))
    with pytest.raises(AttemptOver, match="is not that of 'job-of-somebody', whose keys signed the request"):
        stranger.report(lost=True)
    assert cluster.executor.observe(victim.ref).running


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"channels": (ChannelSpec(name="a/b", objects=()),)}, "'a/b' cannot name a file"),
        ({"hosts": tuple(f"algo-{i}" for i in range(1, 5))}, "4 machines were asked for, and there are 3"),
    ],
)
def test_features_that_a_cluster_lacks_are_refused_by_name(
    cluster: Cluster, changes: dict[str, Any], words: str
) -> None:
    spec = cluster.spec("", **changes)
    with pytest.raises(LaunchError, match=words):
        cluster.executor.launch([spec])
    assert not cluster.executor.observe(spec.ref).launched


@short_lease
def test_an_instance_that_only_waits_keeps_its_lease(cluster: Cluster) -> None:
    spec = cluster.start("import time\nprint('ready', flush=True)\ntime.sleep(13)\n")
    ended = cluster.ended(spec)
    assert ended is not None, "its lease of 10 s has ended"
    assert ended.outcome is InstanceOutcome.COMPLETED


def test_the_last_words_of_a_shim_that_cannot_start_are_in_the_log_of_the_job(cluster: Cluster, tmp_path: Path) -> None:
    spec = cluster.spec("")
    job_id = spec.ref.job_id
    (tmp_path / "machines/machine-0" / f"{job_id}-0-1/jobs/{job_id}/algo-1/lock").mkdir(parents=True)
    cluster.executor.launch([spec])
    assert cluster.ended(spec) is None
    lines = cluster.lines(spec)
    assert any("instance agent lost; its log ends with: " in line for line in lines), lines
    assert "IsADirectoryError" in lines[-1]


def test_samples_of_instances_on_other_machines_come_to_the_service_each_once(cluster: Cluster) -> None:
    spec = cluster.start(WAIT_FOR_GO)
    cluster.wait_for_line(spec, "ready")
    stored = stream_directory(cluster.logs, spec.log.group, spec.log.stream)
    cluster.wait(lambda: bool(SampleSeries.read(stored).samples))
    before = len(SampleSeries.read(stored).samples)
    (data,) = cluster.placement.directories("ml/output/data")
    own = data.parents[5] / "logs" / stored.relative_to(cluster.logs)
    cluster.service.away = True
    cluster.wait(lambda: len(SampleSeries.read(own).samples) > before)
    cluster.service.away = False
    cluster.go()
    assert cluster.ended(spec) is not None
    series = SampleSeries.read(stored)
    assert series.instance is not None and series.instance.memory_bytes > 0
    assert len(series.samples) > before, "samples of the time without the service came later"
    times = [each.at_ms for each in series.samples]
    assert times == sorted(set(times))


def test_strange_samples_and_those_of_another_job_are_refused(cluster: Cluster) -> None:
    spec = cluster.spec("")
    cluster.executor.instances.add(spec)
    agent = ServiceClient(spec.ref, spec.variables)
    agent.report()
    with pytest.raises(AttemptOver, match="another form"):
        agent.deliver_samples(b"[1,2]\n")
    other = ServiceClient(spec.ref, cluster.service.variables("other"))
    with pytest.raises(AttemptOver, match="is not that of 'other'"):
        other.deliver_samples(b"[1,1,1,1,1,1,1,1,1]\n")
