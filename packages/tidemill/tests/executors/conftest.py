"""A local executor with real shims and sandboxes, and an environment without TensorFlow in which jobs start quickly."""

import asyncio
import hashlib
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tidemill.executors.base import ChannelSpec, InstanceExit, InstanceRef, InstanceSpec, ObjectFile
from tidemill.executors.build_lock import Built
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.environments import Environments
from tidemill.executors.local import LocalExecutor

HERE = Path(__file__).parent
BACKENDS = ("bubblewrap", "unshare", "plain")
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def environments_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environments directory in which tf-2.21 is complete, but holds only fakes of the in-job distributions."""
    directory = tmp_path_factory.mktemp("environments")
    environment = Environments(directory).describe("tf-2.21")
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (environment.prefix / "bin").mkdir(parents=True)
    environment.python.symlink_to(base)
    (environment.prefix / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    for name, source in (("tidemill_runtime", "fake_runtime.py"), ("tidemill_serving", "fake_serving.py")):
        package = environment.site_packages / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        shutil.copy(HERE / source, package / "__main__.py")
    Built(environment.prefix).complete(
        {"name": environment.name, "key": environment.key, "lock_sha256": environment.lock_sha256}
    )
    return directory


@dataclass
class Stage:
    """An executor, its directories, and short ways to run a script in it."""

    executor: LocalExecutor
    state_dir: Path
    environments_dir: Path
    refs: list[InstanceRef] = field(default_factory=list)

    def spec(self, script: str = "", **changes: Any) -> InstanceSpec:
        number = next(_numbers)
        ref = InstanceRef(f"{number:032x}", 0)
        self.refs.append(ref)
        defaults: dict[str, Any] = {
            "ref": ref,
            "kind": "training",
            "job_name": f"job-{number}",
            "hosts": ("algo-1", "algo-2"),
            "framework_version": "2.21",
            "log_directory": self.state_dir / "logs" / f"{number}",
            "config": {"hyperparameters": {"script": script}},
            "grace_s": 20.0,
        }
        return InstanceSpec(**{**defaults, **changes})

    def start(self, script: str = "", **changes: Any) -> InstanceRef:
        spec = self.spec(script, **changes)
        self.executor.launch(spec)
        return spec.ref

    def run(self, script: str = "", **changes: Any) -> tuple[InstanceRef, InstanceExit]:
        ref = self.start(script, **changes)
        return ref, self.ended(ref)

    def ended(self, ref: InstanceRef) -> InstanceExit:
        self.wait(ref, lambda: not self.executor.observe(ref).running)
        ended = self.executor.observe(ref).exit
        assert ended is not None, self.directory(ref).shim_log.read_text()
        return ended

    def wait(self, ref: InstanceRef, condition: Callable[[], bool], *, timeout_s: float = 60) -> None:
        """Wait, by the executor's own news, until a condition holds."""

        async def follow() -> None:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    await self.executor.changed(timeout_s=0.2)

        asyncio.run(follow())

    def wait_for_line(self, ref: InstanceRef, line: str) -> None:
        self.wait(ref, lambda: line in self.lines(ref) or not self.executor.observe(ref).running)
        assert line in self.lines(ref), (self.lines(ref), self.executor.observe(ref))

    def lines(self, ref: InstanceRef) -> list[str]:
        directory = self.state_dir / "logs" / f"{int(ref.job_id, 16)}"
        data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return [line.split(b" ", 1)[1].decode() for line in data.split(b"\n")[:-1]]

    def directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self.state_dir, ref)

    def stored(self, data: bytes, *, name: str, uri: str | None = None) -> ObjectFile:
        """An object of a store that keeps its files by digest."""
        digest = hashlib.sha256(data).hexdigest()
        file = self.state_dir / "objects" / digest
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return ObjectFile(
            uri=uri or f"s3://bucket/data/{name}", name=name, file=str(file), size_bytes=len(data), sha256=digest
        )

    def channel(self, name: str = "training", **objects: bytes) -> ChannelSpec:
        return ChannelSpec(name=name, objects=[self.stored(data, name=key) for key, data in objects.items()])

    def reopen(self) -> None:
        """A new executor on the same directories, as after a restart of the server."""
        backend = self.executor._detection.sandbox.name
        self.executor.close()
        self.executor = LocalExecutor(
            state_dir=self.state_dir, environments_dir=self.environments_dir, isolation=backend
        )

    def close(self) -> None:
        for ref in self.refs:
            self.executor.reap(ref.job_id)
        self.executor.close()


@pytest.fixture
def make_stage(tmp_path: Path, environments_dir: Path) -> Iterator[Callable[..., Stage]]:
    """Makes a stage with the isolation asked for."""
    made: list[Stage] = []

    def make(isolation: str, environments_dir: Path = environments_dir) -> Stage:
        state_dir = tmp_path / "state"
        executor = LocalExecutor(state_dir=state_dir, environments_dir=environments_dir, isolation=isolation)
        made.append(Stage(executor, state_dir, environments_dir))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    """A stage with the best sandbox that works here."""
    return make_stage("auto")


@pytest.fixture(params=BACKENDS)
def any_stage(request: pytest.FixtureRequest, make_stage: Callable[..., Stage]) -> Stage:
    """A stage of each backend."""
    return make_stage(request.param)
