"""The contract of every executor (`tidemill.executors.base.Executor`): one suite, run for each executor.

The service's side is the same for all: a real object store, real log segments, the invoker of endpoints. A new
executor gets a `Rig` here, and must pass the unchanged suite.
"""

import asyncio
import io
import itertools
import secrets
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import Mock

import pytest
import uvloop
from cluster_service import ClusterService
from process_placement import ProcessPlacement
from separate_executor import SeparateExecutor

from tidemill.control.invoker import Invoker
from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.core.segments import segment_path, segments_of, stream_directory
from tidemill.errors import LaunchError
from tidemill.executors.base import Executor
from tidemill.executors.cluster.executor import ClusterExecutor
from tidemill.executors.local import LocalExecutor
from tidemill.executors.split import SplitExecutor
from tidemill.instance.spec import ChannelSpec, InstanceSpec
from tidemill.instance.status import InstanceExit, InstanceOutcome, StopReason
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.store import ObjectStore

BASE = "import os, pathlib; base = pathlib.Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
WAIT = "import signal; print('ready', flush=True); signal.pause()\n"
SAVE = BASE + (
    "import signal, sys\n"
    "def save(*_):\n (base / 'model/saved').write_text('yes'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, save)\n"
)
SERVE = """
import http.server, socketserver, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self): return "client"
    def do_GET(self):
        body = f"pong {self.path}".encode()
        if self.path == "/archive":
            with open(sys.argv[sys.argv.index("--archives") + 1] + "/m.tar.gz", "rb") as file: body = file.read()
        self.send_response(200); self.send_header("content-length", str(len(body))); self.end_headers()
        self.wfile.write(body)

path = sys.argv[sys.argv.index("--unix-socket") + 1]
socketserver.UnixStreamServer(path, Handler).serve_forever()
"""

_numbers = itertools.count(1)


class Closable(Executor, Protocol):
    """An executor that a test can close as the end of the service does."""

    def close(self) -> None: ...


@dataclass
class Rig:
    """An executor under test, and the service around it."""

    open: Callable[[], Closable]
    objects: ObjectStore
    logs: Path
    jobs: list[str] = field(default_factory=list)
    service: ClusterService | None = None

    def __post_init__(self) -> None:
        self.executor = self.open()
        asyncio.run(self.objects.ensure_bucket("bucket"))

    def restart(self) -> None:
        """Replace the executor by a new one, as a restart of the service does."""
        self.executor.close()
        self.executor = self.open()

    def close(self) -> None:
        for job_id in self.jobs:
            self.executor.reap(job_id)
        self.executor.close()

    def specs(self, script: str = "", *, count: int = 1, **changes: Any) -> list[InstanceSpec]:
        """Return the specs of a new job with ``count`` instances."""
        number = next(_numbers)
        # Processes are found by the id of their job on the whole machine, where other tests may run.
        self.jobs.append(secrets.token_hex(16))
        job_name = changes.get("job_name", f"job-{number}")
        members: dict[str, Any] = {
            "kind": "training",
            "job_name": job_name,
            "variables": self.service.variables(job_name, attempt=number, kind=changes.get("kind", "training"))
            if self.service
            else {},
            "artifacts_uri": f"s3://bucket/output/{job_name}/output",
            "hosts": tuple(f"algo-{i + 1}" for i in range(count)),
            "framework_version": "2.21",
            "config": {"hyperparameters": {"script": script}},
            "grace_s": 20.0,
        }
        return [
            InstanceSpec(
                **{
                    "ref": InstanceRef(self.jobs[-1], index),
                    "log": StreamName("jobs", f"{number}/algo-{index + 1}"),
                    **members,
                    **changes,
                }
            )
            for index in range(count)
        ]

    def start(self, script: str = "", **changes: Any) -> InstanceSpec:
        (spec,) = self.specs(script, **changes)
        self.executor.launch([spec])
        return spec

    def run(self, script: str = "", **changes: Any) -> tuple[InstanceSpec, InstanceExit]:
        spec = self.start(script, **changes)
        return spec, self.ended(spec.ref)

    def ended(self, ref: InstanceRef) -> InstanceExit:
        self.wait(lambda: not self.executor.observe(ref).running)
        ended = self.executor.observe(ref).exit
        assert ended is not None
        return ended

    def wait(
        self, condition: Callable[[], bool], *, news_of: InstanceRef | None = None, timeout_s: float = 60
    ) -> set[InstanceRef]:
        """Wait, by the executor's own news, until a condition holds and, if given, until there was news of an instance.

        Return the news.
        """

        async def follow() -> set[InstanceRef]:
            news: set[InstanceRef] = set()
            async with asyncio.timeout(timeout_s):
                while not condition() or (news_of is not None and news_of not in news):
                    news |= await self.executor.changed(timeout_s=0.2)
            return news

        return asyncio.run(follow())

    def wait_for_line(self, spec: InstanceSpec, line: str) -> None:
        def logged() -> bool:
            return not self.executor.observe(spec.ref).running or line in self.lines(spec)

        self.wait(logged)
        assert line in self.lines(spec)

    def lines(self, spec: InstanceSpec) -> list[str]:
        """Return the lines of an instance's own output in the service's log store."""
        directory = stream_directory(self.logs, spec.log.group, spec.log.stream)
        data = b"".join(segment_path(directory, number).read_bytes() for number in segments_of(directory))
        lines = [line.split(b" ", 1)[1].decode() for line in data.split(b"\n")[:-1]]
        return [line for line in lines if not line.startswith("tidemill: ")]

    def stored(self, key: str, data: bytes, *, name: str) -> ObjectReference:
        """Return an object of the service's store."""
        info = asyncio.run(self.objects.put_bytes("bucket", key, data))
        return ObjectReference(
            uri=f"s3://bucket/{key}",
            name=name,
            content_id=info.content_id,
            size_bytes=info.size_bytes,
            sha256=info.sha256,
            etag=info.etag,
        )

    def model(self, script: str) -> ObjectReference:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            info = tarfile.TarInfo("serve.py")
            info.size = len(script.encode())
            archive.addfile(info, io.BytesIO(script.encode()))
        return self.stored("model.tar.gz", buffer.getvalue(), name="model.tar.gz")

    def publish(self, ref: InstanceRef, name: str, ended: InstanceExit) -> bytes:
        """Take an artifact over into the object store, as the control plane does, and return its bytes."""
        artifact, publication = ended.artifacts[name], self.executor.publication(ref, name)
        if self.service:
            assert publication is None, "it has been uploaded already"
            job_name = self.executor.instances.spec(ref).job_name  # type: ignore[attr-defined]
            info = self.objects.require("bucket", f"output/{job_name}/output/{name}.tar.gz")
            assert (info.sha256, info.size_bytes) == (artifact.sha256, artifact.size_bytes)
            return asyncio.run(self.objects.read_bytes(info))
        assert publication is not None

        async def adopt() -> bytes:
            info = await self.objects.adopt(
                "bucket",
                f"{name}.tar.gz",
                publication,
                sha256=artifact.sha256,
                md5=artifact.md5,
                size_bytes=artifact.size_bytes,
            )
            return await self.objects.read_bytes(info)

        return asyncio.run(adopt())


class Split(SplitExecutor):
    """Both executors, closed together."""

    def __init__(self, local: Any, cluster: Any) -> None:
        super().__init__(local, cluster)
        self.instances = cluster.instances
        self._parts = (local, cluster)

    def close(self) -> None:
        for each in self._parts:
            each.close()


@pytest.fixture(params=["local", "separate", "cluster"])
def rig(
    request: pytest.FixtureRequest, tmp_path: Path, environments_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rig]:
    """Return a rig for each executor in turn."""
    service = tmp_path / "service"
    service.mkdir()
    logs = service / "logs"
    with SqliteDatabase.open(service / "state.db", metadata=metadata) as database:
        objects = ObjectStore(database, service / "objects", clock=SystemClock())

        def local() -> Closable:
            return LocalExecutor(
                state_dir=service,
                environments_dir=environments_dir,
                isolation="plain",
                content_file=objects.contents.location,
                logs=logs,
            )

        def separate() -> Closable:
            return SeparateExecutor(tmp_path / "elsewhere", objects=objects, logs=SegmentSink(logs))

        def cluster() -> Closable:
            executor = ClusterExecutor(
                service / "cluster",
                ProcessPlacement(tmp_path / "machines"),
                logs=SegmentSink(logs),
                leases=SqlLeaseRecords(database),
                service_url=lambda: made.service.url if made.service else "",
                lease_s=30,
                isolation="plain",
            )
            executor.instances.begin_leases()
            return executor

        def split() -> Closable:
            return Split(local(), cluster())

        with ExitStack() as stack:
            parts = None
            if request.param in ("cluster", "split"):
                monkeypatch.setenv("TIDEMILL_ENVIRONMENTS_DIR", str(environments_dir))
                parts = ClusterService(objects, lambda: made.executor.instances)  # type: ignore[attr-defined]
                stack.enter_context(parts.serving())
            executors = {"local": local, "separate": separate, "cluster": cluster, "split": split}
            made = Rig(executors[request.param], objects, logs, service=parts)
            try:
                yield made
            finally:
                made.close()
                asyncio.run(objects.close())


def unfinished(job_id: str) -> bool:
    return False


def test_a_script_runs_to_its_end_and_its_phases_are_reported_in_order(rig: Rig) -> None:
    spec, ended = rig.run("print('hello')")
    assert (ended.outcome, ended.failure, dict(ended.artifacts)) == (InstanceOutcome.COMPLETED, "", {})
    status = rig.executor.observe(spec.ref)
    assert (status.launched, status.running, status.attempt) == (True, False, 1)
    reported = [phase.status for phase in status.phases if phase.status != "DownloadingTrainingImage"]
    assert reported == ["Starting", "Downloading", "Training", "Uploading"]


def test_a_script_that_fails_has_a_reason_and_no_model(rig: Rig) -> None:
    _, ended = rig.run(BASE + "(base / 'model/m').touch(); (base / 'output/data/d').touch(); raise SystemExit(3)")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("AlgorithmError: ")
    assert list(ended.artifacts) == ["output"]


@pytest.mark.parametrize("rig", ["local", "cluster"], indirect=True)  # the separate executor has no shim
def test_packages_are_shared_if_a_job_only_names_them_and_else_its_own(rig: Rig) -> None:
    script = "import os; print(os.environ['TIDEMILL_OVERLAY'])"
    for requirements, is_shared in (("one==1", True), ("one==1\n--index-url file:///opt/ml/code", False)):
        _, ended = rig.run(config={"hyperparameters": {"script": script, "requirements": requirements}})
        assert ended.outcome is InstanceOutcome.COMPLETED, ended
        assert bool(ended.record["overlay_key"]) is is_shared
        assert len(ended.record["overlay_sha256"]) == (64 if is_shared else 0)


@pytest.mark.parametrize("rig", ["local", "separate"], indirect=True)  # another machine asks S3 for it by name
def test_objects_are_found_by_reference_though_their_names_have_been_given_to_others(rig: Rig) -> None:
    objects = [rig.stored("data/a", b"first", name="a"), rig.stored("data/deep/b", b"second", name="deep/b")]
    spec = rig.start(
        BASE + "data = base / 'input/data/training'\n"
        "print((data / 'a').read_text(), (data / 'deep/b').read_text(), sum(p.is_file() for p in data.rglob('*')))",
        channels=(ChannelSpec(name="training", objects=objects),),
    )
    rig.stored("data/a", b"replaced", name="a")
    assert rig.ended(spec.ref).outcome is InstanceOutcome.COMPLETED
    assert rig.lines(spec) == ["first second 2"]


def test_the_whole_log_is_in_the_service_when_the_end_is_seen_every_line_once(rig: Rig) -> None:
    spec = rig.start("for i in range(3000): print(i)")
    rig.wait(lambda: rig.executor.observe(spec.ref).exit is not None)
    assert rig.lines(spec) == [str(i) for i in range(3000)]


def test_an_artifact_becomes_an_object_with_the_digests_that_were_reported(rig: Rig) -> None:
    spec, ended = rig.run(BASE + "(base / 'model/weights').write_text('42' * 5000)")
    data = rig.publish(spec.ref, "model", ended)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["weights"]
        member = archive.extractfile("weights")
        assert member is not None
        assert member.read() == b"42" * 5000
    assert rig.executor.publication(spec.ref, "output") is None


def test_launching_again_does_nothing_twice(rig: Rig) -> None:
    spec = rig.start("print('once', flush=True)\n" + WAIT)
    rig.wait_for_line(spec, "ready")
    rig.executor.launch([spec])
    rig.executor.relaunch(spec.ref)
    rig.executor.kill(spec.ref)
    rig.executor.launch([spec])
    assert not rig.executor.observe(spec.ref).running
    assert rig.lines(spec).count("once") == 1


def test_an_instance_that_was_never_launched_is_not_there(rig: Rig) -> None:
    ref = InstanceRef("00ff", 0)
    rig.executor.relaunch(ref)
    rig.executor.stop(ref, reason=StopReason.STOPPED)
    rig.executor.kill(ref)
    rig.executor.reap(ref.job_id)
    status = rig.executor.observe(ref)
    assert (status.launched, status.running, status.phases, status.exit) == (False, False, (), None)
    assert rig.executor.publication(ref, "model") is None
    assert rig.executor.recover(finished=unfinished) == []


def test_a_stopped_script_has_time_to_save(rig: Rig) -> None:
    spec = rig.start(SAVE + WAIT)
    rig.wait_for_line(spec, "ready")
    rig.executor.stop(spec.ref, reason=StopReason.STOPPED)
    ended = rig.ended(spec.ref)
    assert (ended.outcome, list(ended.artifacts)) == (InstanceOutcome.STOPPED, ["model"])


def test_a_killed_instance_is_lost_and_not_started_again(rig: Rig) -> None:
    spec = rig.start(WAIT)
    rig.wait_for_line(spec, "ready")
    rig.executor.kill(spec.ref)
    rig.executor.relaunch(spec.ref)
    status = rig.executor.observe(spec.ref)
    assert (status.launched, status.running, status.exit) == (True, False, None)
    assert rig.lines(spec) == ["ready"]


def test_changed_returns_the_instances_with_changes_and_is_empty_on_timeout(rig: Rig) -> None:
    spec = rig.start("print('x')")
    assert rig.wait(lambda: not rig.executor.observe(spec.ref).running, news_of=spec.ref) == {spec.ref}

    async def drain() -> None:
        while await rig.executor.changed(timeout_s=0.5):
            pass
        assert await rig.executor.changed(timeout_s=0) == set()

    asyncio.run(drain())


def test_after_a_restart_everything_is_found_as_it_was_and_goes_on(rig: Rig) -> None:
    done, ended = rig.run("print('done')")
    finished, _ = rig.run("")
    running = rig.start("print('before', flush=True)\n" + SAVE + WAIT)
    rig.wait_for_line(running, "ready")
    rig.restart()
    recovered = rig.executor.recover(finished=lambda job_id: job_id == finished.ref.job_id)
    assert {(each.ref, each.kind, each.job_name) for each in recovered} == {
        (spec.ref, "training", spec.job_name) for spec in (done, running)
    }
    assert rig.executor.observe(done.ref).exit == ended
    assert rig.executor.observe(running.ref).running
    rig.executor.stop(running.ref, reason=StopReason.STOPPED)
    rig.wait(lambda: not rig.executor.observe(running.ref).running, news_of=running.ref)
    assert rig.ended(running.ref).outcome is InstanceOutcome.STOPPED
    assert rig.lines(running) == ["before", "ready"]


def test_reaping_kills_what_runs_and_keeps_what_was_last_reported(rig: Rig) -> None:
    done, ended = rig.run(BASE + "(base / 'model/m').touch()")
    running = rig.start(WAIT)
    rig.wait_for_line(running, "ready")
    for _ in range(2):
        for spec in (done, running):
            rig.executor.reap(spec.ref.job_id)
    assert rig.executor.observe(done.ref).exit == ended
    assert rig.executor.publication(done.ref, "model") is None
    status = rig.executor.observe(running.ref)
    assert (status.launched, status.running) == (True, False)


@pytest.mark.parametrize("rig", ["local", "separate"], indirect=True)  # agents of a cluster remove files
def test_reaping_can_keep_the_files(rig: Rig) -> None:
    done, _ = rig.run(BASE + "(base / 'model/m').touch()")
    running = rig.start(WAIT)
    rig.wait_for_line(running, "ready")
    for spec in (done, running):
        rig.executor.reap(spec.ref.job_id, keep_files=True)
    assert rig.executor.publication(done.ref, "model") is not None
    status = rig.executor.observe(running.ref)
    assert (status.launched, status.running) == (True, False)


@pytest.mark.parametrize("rig", ["local", "separate", "cluster", "split"], indirect=True)
def test_a_model_server_answers_at_its_address(rig: Rig) -> None:
    spec = rig.start(kind="endpoint", model=rig.model(SERVE))

    async def get(path: str) -> bytes:
        async with asyncio.timeout(60):
            while True:
                address = rig.executor.server_address(spec.ref)
                if address is not None:
                    invoker = Invoker(address)
                    try:
                        return (await invoker.get(path, timeout_s=5)).body
                    except Exception:  # noqa: BLE001 - it does not listen yet
                        assert rig.executor.observe(spec.ref).running
                    finally:
                        invoker.close()
                await rig.executor.changed(timeout_s=0.1)

    assert uvloop.run(get("/ping")) == b"pong /ping"
    assert rig.executor.observe(spec.ref).phases[-1].status == "Serving"
    for content in (b"one", b"another"):
        rig.executor.deliver(spec.ref, rig.stored("models/m.tar.gz", content, name="model.tar.gz"), name="m.tar.gz")
        assert uvloop.run(get("/archive")) == content
    rig.restart()
    assert [each.ref for each in rig.executor.recover(finished=unfinished)] == [spec.ref]
    assert uvloop.run(get("/ping")) == b"pong /ping"
    rig.executor.stop(spec.ref, reason=StopReason.STOPPED)
    rig.wait(lambda: not rig.executor.observe(spec.ref).running)
    ended = rig.executor.observe(spec.ref).exit
    assert ended is not None
    assert ended.outcome is InstanceOutcome.STOPPED


def test_of_several_instances_all_are_launched_or_none(rig: Rig) -> None:
    specs = rig.specs(WAIT, count=3)
    broken = rig.specs(WAIT, count=3, channels=(ChannelSpec(name="a/b", objects=()),))[0]
    with pytest.raises(LaunchError, match="'a/b' cannot name a file"):
        rig.executor.launch([*specs[:2], broken])
    for spec in specs:
        status = rig.executor.observe(spec.ref)
        assert (status.launched, status.running) == (False, False)
    assert rig.executor.recover(finished=unfinished) == []
    rig.executor.launch(specs)
    for spec in specs:
        rig.wait_for_line(spec, "ready")


def test_a_launch_that_was_cut_short_is_completed(rig: Rig) -> None:
    specs = rig.specs("print('ran', flush=True)\n" + WAIT, count=2)
    rig.executor.launch(specs[:1])
    rig.wait_for_line(specs[0], "ready")
    rig.restart()
    rig.executor.launch(specs)
    rig.wait_for_line(specs[1], "ready")
    assert [rig.lines(spec) for spec in specs] == [["ran", "ready"]] * 2


def test_a_new_attempt_ends_the_older_one_whose_reports_count_no_more(rig: Rig) -> None:
    first = rig.start("print('first', flush=True)\n" + WAIT)
    rig.wait_for_line(first, "ready")
    ref = InstanceRef(first.ref.job_id, 0, attempt=2)
    (second,) = rig.specs("print('second', flush=True)\n" + SAVE + WAIT, ref=ref, job_name=first.job_name)
    rig.executor.launch([second])
    assert not rig.executor.observe(first.ref).running
    rig.wait_for_line(second, "ready")
    status = rig.executor.observe(ref)
    assert (status.attempt, status.running, status.exit) == (2, True, None)
    assert "first" not in rig.lines(second)
    rig.executor.relaunch(first.ref)
    assert not rig.executor.observe(first.ref).running
    with pytest.raises(LaunchError, match="attempt 1"):
        rig.executor.launch([first])
    assert rig.executor.observe(first.ref).launched, "a refusal changes nothing"
    assert rig.executor.observe(ref).running
    rig.restart()
    assert ref in {each.ref for each in rig.executor.recover(finished=unfinished)}
    rig.executor.kill(first.ref)
    assert rig.executor.observe(ref).running, "the older attempt is another one"
    rig.executor.stop(ref, reason=StopReason.STOPPED)
    rig.wait(lambda: not rig.executor.observe(ref).running, news_of=ref)
    assert rig.ended(ref).outcome is InstanceOutcome.STOPPED
    rig.executor.reap(ref.job_id)
    assert rig.executor.publication(ref, "model") is None


@pytest.mark.parametrize("rig", ["split"], indirect=True)
def test_training_jobs_run_on_the_cluster_and_endpoints_on_this_machine(rig: Rig) -> None:
    training, endpoint = rig.start(SAVE + WAIT), rig.start(kind="endpoint", model=rig.model(SERVE))
    rig.wait_for_line(training, "ready")
    rig.wait(lambda: any(phase.status == "Serving" for phase in rig.executor.observe(endpoint.ref).phases))
    assert rig.executor.server_address(training.ref) is None
    rig.restart()
    recovered = rig.executor.recover(finished=unfinished)
    assert {(each.ref, each.kind) for each in recovered} == {(training.ref, "training"), (endpoint.ref, "endpoint")}
    for spec in (training, endpoint):
        rig.executor.stop(spec.ref, reason=StopReason.STOPPED)
    rig.wait(lambda: not any(rig.executor.observe(spec.ref).running for spec in (training, endpoint)))
    assert rig.ended(training.ref).outcome is InstanceOutcome.STOPPED
    assert rig.executor.capacity().instances == 3, "those of the cluster"


@pytest.mark.parametrize(
    ("kind", "types", "servers", "on_cluster"),
    [
        ("training", ("ml.m5.large",), False, True),
        ("processing", ("ml.m5.large",), False, True),
        ("endpoint", ("ml.m5.large",), False, False),
        ("endpoint", ("ml.m5.large",), True, True),
        ("transform", ("ml.m5.large",), True, True),
        ("endpoint", (), True, False),  # serverless
    ],
)
def test_the_setting_decides_where_model_servers_run(
    kind: str, types: tuple[str, ...], servers: bool, on_cluster: bool
) -> None:
    local, cluster = Mock(spec=LocalExecutor), Mock(spec=ClusterExecutor)
    local.observe.return_value.launched = False
    spec = InstanceSpec(
        ref=InstanceRef("00ff", 0),
        kind=kind,
        job_name="job",
        hosts=("algo-1",),
        framework_version="2.21",
        log=StreamName("jobs", "job"),
        instance_types=types,
    )
    SplitExecutor(local, cluster, servers=servers).launch([spec])
    assert (cluster.launch.called, local.launch.called) == (on_cluster, not on_cluster)


def test_the_capacity_is_that_of_the_executor(rig: Rig) -> None:
    capacity = rig.executor.capacity()
    assert capacity.instances >= 1
    assert capacity.cpus >= 1
    assert capacity.gpus >= 0


@pytest.mark.parametrize("rig", ["local"], indirect=True)
def test_on_one_machine_an_artifact_is_adopted_without_a_copy(rig: Rig) -> None:
    spec, ended = rig.run(BASE + "(base / 'model/m').write_text('x')")
    file = rig.executor.publication(spec.ref, "model")
    assert isinstance(file, Path)
    number = file.stat().st_ino
    rig.publish(spec.ref, "model", ended)
    info = rig.objects.require("bucket", "model.tar.gz")
    assert rig.objects.file_of(info).stat().st_ino == number
    assert not file.exists()


@pytest.mark.parametrize("rig", ["separate"], indirect=True)
def test_a_stream_that_is_not_what_was_announced_is_not_stored(rig: Rig) -> None:
    spec, ended = rig.run(BASE + "(base / 'model/m').write_text('x')")
    other = replace(ended, artifacts={"model": replace(ended.artifacts["model"], sha256="0" * 64)})
    with pytest.raises(ValueError, match="the stream is not the file announced for s3://bucket/model"):
        rig.publish(spec.ref, "model", other)
    assert rig.objects.head("bucket", "model.tar.gz") is None
