"""What both kinds of instances do alike: directories, environment, sandbox, log, phases."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.errors import EnvironmentBuildError
from tidemill.executors.base import InstanceSpec, ObjectFile
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.environments import Environment, Environments, choose
from tidemill.executors.process_tree import MARK
from tidemill.executors.records import SpecRecord
from tidemill.executors.sandbox import Launch, Sandbox, View
from tidemill.executors.shim.failures import ClientFailure, InternalFailure, of_os_error
from tidemill.executors.shim.objects import copy_object, is_segment
from tidemill.executors.shim.report import JobLog, Reporter
from tidemill.executors.shim.stopping import StopSignal

__all__ = ["Session"]

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_TREE = ("input/config", "input/data", "model", "output/data", "checkpoints", "code")


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one instance, and the tools for it."""

    directory: InstanceDirectory
    task: SpecRecord
    sandbox: Sandbox
    report: Reporter
    log: JobLog
    stop: StopSignal
    clock: Clock

    @property
    def spec(self) -> InstanceSpec:
        return self.task.spec

    @property
    def base_dir(self) -> str:
        """``/opt/ml`` as the job sees it."""
        return self.sandbox.base_dir(self.view(None))

    def prepare(self) -> Environment:
        """Make the directories, say what is in force, and see to the environment.

        Raises:
            ClientFailure: The disk is full, or a name in the request cannot be a file name.
            InternalFailure: The environment cannot be built.
            Stopped: A stop was asked for.
        """
        self.report.enter("Starting", "Preparing the instance")
        self.stop.check()
        try:
            self._make_tree()
        except OSError as error:
            raise of_os_error(error, place=self.base_dir) from error
        choice = choose(self.spec.framework_version)
        environments = Environments(self.task.site.environments_dir)
        try:
            described = environments.describe(choice.name)
            self._introduce(described, choice.notice)
            self.report.enter("DownloadingTrainingImage", f"Preparing the environment {choice.name}")
            environment = environments.ensure(choice.name, log=self.log.note, poll=self.stop.check)
        except EnvironmentBuildError as error:
            if "No space left on device" in str(error):
                raise ClientFailure(f"no space left on device: {self.task.site.environments_dir}") from error
            raise InternalFailure(f"the environment {choice.name} cannot be built: {error}") from error
        self.stop.check()
        faults.point("shim.environment")
        return environment

    def view(self, environment: Environment | None) -> View:
        """What a command of this instance sees."""
        directory = self.directory
        return View(
            host_name=self.spec.hosts[self.spec.ref.instance_index],
            hosts_file=directory.hosts_file,
            ml=directory.ml,
            home=directory.home,
            tmp=directory.tmp,
            hidden=(self.task.site.state_dir,),
            read_only=environment.read_only_paths if environment else (),
        )

    def variables(self, environment: Environment, view: View, *, first_on_path: str = "") -> dict[str, str]:
        """The environment of a command, built from nothing: none of the service's own variables gets in."""
        path = f"{environment.prefix}/bin:{_SYSTEM_PATH}"
        return {
            "PATH": f"{first_on_path}:{path}" if first_on_path else path,
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **self.sandbox.variables(view),
            **self.spec.variables,
            MARK: self.mark,
        }

    @property
    def mark(self) -> str:
        ref = self.spec.ref
        return f"{ref.job_id}/{ref.instance_index}"

    def wrap(self, argv: Sequence[str], *, view: View, variables: Mapping[str, str]) -> Launch:
        """``argv`` in the sandbox.

        Raises:
            ClientFailure: A variable cannot be one.
        """
        for name, value in variables.items():
            if not name or "=" in name or "\0" in name + value:
                raise ClientFailure(f"environment variable {name!r} cannot be set: it has no name, or holds = or NUL")
        try:
            return self.sandbox.wrap(argv, view=view, variables=variables)
        except OSError as error:
            raise InternalFailure(f"the sandbox {self.sandbox.name} cannot be prepared: {error}") from error

    @property
    def warm_socket(self) -> Path | None:
        """Where to ask for a warm start; None where nobody listens."""
        socket = self.task.site.warm_socket
        return socket if socket is not None and socket.exists() else None

    def fetch(self, source: ObjectFile, name: str) -> None:
        """Copy an object into the private directory of shim and runtime."""
        copy_object(source, self.directory.private / name, place=self.base_dir, check=self.stop.check)

    def _make_tree(self) -> None:
        directory, spec = self.directory, self.spec
        for name in _TREE:
            (directory.ml / name).mkdir(parents=True, exist_ok=True)
        directory.private.mkdir(mode=0o700, exist_ok=True)
        directory.home.mkdir(mode=0o700, exist_ok=True)
        for name in ("tmp", "var"):
            (directory.tmp / name).mkdir(parents=True, mode=0o700, exist_ok=True)
        hosts = " ".join(spec.hosts)
        directory.hosts_file.write_text(f"127.0.0.1 localhost {hosts}\n::1 localhost ip6-localhost ip6-loopback\n")
        directory.hosts_file.chmod(0o644)
        for name, value in spec.config.items():
            if not is_segment(f"{name}.json"):
                raise ClientFailure(f"{name[:80]!r} cannot name a configuration file")
            text = json.dumps(value, ensure_ascii=False)
            (directory.ml / "input/config" / f"{name}.json").write_bytes(text.encode("utf-8", "surrogatepass"))

    def _introduce(self, environment: Environment, notice: str | None) -> None:
        sandbox = self.sandbox
        backend = "" if sandbox.isolation.value == sandbox.name else f" ({sandbox.name})"
        self.log.note(
            f"tidemill: isolation={sandbox.isolation}{backend}, environment={environment.name} ({environment.key})"
        )
        for line in filter(None, (*self.spec.notices, notice)):
            self.log.note(line)
        if self.spec.warm and self.warm_socket is None:
            self.log.note("tidemill: no process has TensorFlow imported yet; the script starts cold")
