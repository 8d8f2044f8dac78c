"""The common part of training and endpoint instances: directories, environment, sandbox, log, phases."""

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.container_credentials import located
from tidemill.core.instances import Isolation
from tidemill.core.state_directories import known_state_directories
from tidemill.environments.builder import Environments, JobEnvironment
from tidemill.errors import EnvironmentBuildError, MissingInterpreterError
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import MARK
from tidemill.instance.records import SpecRecord
from tidemill.instance.spec import InstanceSpec
from tidemill.sandbox import Launch, Sandbox, View, secret_file
from tidemill.sandbox.network import JobNetwork
from tidemill.shim.failures import ClientFailure, InstanceLost, InternalFailure, of_os_error
from tidemill.shim.gpus import visible_gpus
from tidemill.shim.needed_process import end_of_needed_process
from tidemill.shim.report import Log, Reporter
from tidemill.shim.stopping import StopRequest
from tidemill.shim.tree import make_tree

_JOB_DIRECTORY = "TIDEMILL_JOB_DIRECTORY"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class InstanceSession:
    """One run of one instance, and the tools for it.

    Attributes:
        sandbox: Runs the commands of the instance.
        report: Reports phases.
        log: Log stream of the instance.
        stop: Requests the end of the instance.
        visible: Paths below a hidden directory that the instance's commands may read nevertheless.
        network: Separate network of the job, in isolation mode full; else None.
        covers: Directories that are mounted read-only over directories of ``/opt/ml``: the outside path, and the path
            below ``/opt/ml``.
    """

    directory: InstanceDirectory
    task: SpecRecord
    sandbox: Sandbox
    report: Reporter
    log: Log
    stop: StopRequest
    clock: Clock
    visible: tuple[Path, ...] = ()
    network: JobNetwork | None = None
    covers: tuple[tuple[Path, str], ...] = ()

    @property
    def spec(self) -> InstanceSpec:
        """The spec of the instance."""
        return self.task.spec

    @property
    def isolation(self) -> Isolation:
        """The isolation mode of the instance."""
        return Isolation.FULL if self.network else self.sandbox.isolation

    @property
    def base_dir(self) -> str:
        """``/opt/ml`` as the job sees it."""
        return self.sandbox.base_dir(self.view(None))

    def prepare(self) -> JobEnvironment:
        """Create the directories, log the isolation mode, and build the environment if it does not exist.

        Raises:
            ClientFailure: The disk is full, a name in the request cannot be a file name, or the framework version
                needs a Python that is missing.
            InternalFailure: The environment cannot be built.
            Stopped: A stop was requested.
        """
        self.report.enter("Starting", "Preparing the instance")
        self.stop.check()
        try:
            make_tree(self.directory, self.spec, self.network)
        except OSError as error:
            raise of_os_error(error, place=self.base_dir) from error
        name, python = self.spec.environment, self.spec.python
        environments = Environments(self.task.site.environments_dir)
        try:
            self._introduce(name, environments)
            self.report.enter("DownloadingTrainingImage", f"Preparing the environment {name}")
            environment = environments.ensure(
                name,
                python=python,
                log=self.log.note,
                poll=self.stop.check,
                writable=self.isolation is Isolation.PLAIN,
            )
        except MissingInterpreterError as error:
            raise ClientFailure(str(error)) from error
        except EnvironmentBuildError as error:
            if "No space left on device" in str(error):
                raise ClientFailure(f"no space left on device: {self.task.site.environments_dir}") from error
            raise InternalFailure(f"the environment {name} cannot be built: {error}") from error
        self.stop.check()
        faults.point("shim.environment")
        return environment

    def view(self, environment: JobEnvironment | None) -> View:
        """Return the file system view of a command of this instance.

        Args:
            environment: Environment of the job; None before it is built.
        """
        directory, site = self.directory, self.task.site
        return View(
            host_name=self.spec.hosts[self.spec.ref.instance_index],
            hosts_file=directory.hosts_file,
            ml=directory.ml,
            home=directory.home,
            tmp=directory.tmp,
            hidden=(
                site.hidden or site.state_dir,
                *(path for path in known_state_directories(site.environments_dir) if path != site.state_dir),
                *site.private,
            ),
            readable=site.readable,
            mounted=tuple(
                (directory.root_of(each) / each.path, each.mounted_at) for each in self.spec.synced if each.mounted_at
            ),
            writable=(directory.shared,) if directory.shared.is_dir() else (),
            read_only=(*(environment.read_only_paths if environment else ()), *self.visible),
            covers=self.covers,
        )

    def variables(self, environment: JobEnvironment, view: View, *, first_on_path: str = "") -> dict[str, str]:
        """Return all environment variables of a command, which inherits none of the service's variables.

        Args:
            environment: The environment in which the command runs.
            view: The command's view of the file system.
            first_on_path: A directory to put first on PATH. Default: none.
        """
        own = self.own_variables(environment, view)
        return {
            **own,
            "PATH": f"{first_on_path}:{own['PATH']}" if first_on_path else own["PATH"],
            "PYTHONUNBUFFERED": "1",
            **located(self.spec.variables),
            **visible_gpus(self.task.devices, self.spec.variables),
            **({_JOB_DIRECTORY: str(self.directory.shared)} if self.directory.shared.is_dir() else {}),
            MARK: self.spec.ref.mark,
        }

    def own_variables(self, environment: JobEnvironment, view: View) -> dict[str, str]:
        """Return the variables of a command that runs no code of the user, so it gets no variables of the request.

        Args:
            view: The command's view of the file system.
        """
        return {
            "PATH": f"{environment.prefix}/bin:{_SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            **self.sandbox.variables(view),
            MARK: self.spec.ref.mark,
        }

    def wrap_module(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        environment: JobEnvironment,
        view: View,
        variables: Mapping[str, str],
        machine_network: bool = False,
    ) -> Launch:
        """Return the launch of an in-job distribution that gets the job's variables as data.

        ``PYTHONPATH`` or ``LD_PRELOAD`` of the request therefore run no code of the user in it.

        Args:
            module: The distribution, e.g. ``tidemill_runtime``.
            environment: The environment whose Python runs the module.
            view: The module's view of the file system.
            variables: The job's variables, readable at the descriptor ``TIDEMILL_VARIABLES_FD``.

        Raises:
            ClientFailure: The operating system does not allow the name or value of a variable.
            InternalFailure: The sandbox cannot be prepared, or the job's network is gone.
        """
        _check(variables)
        argv = [str(environment.python), "-I", "-u", "-m", module, *arguments]
        fd = secret_file(json.dumps(dict(variables)).encode())
        own = {**self.own_variables(environment, view), "TIDEMILL_VARIABLES_FD": str(fd)}
        try:
            launch = self.wrap(argv, view=view, variables=own, machine_network=machine_network)
        except BaseException:
            os.close(fd)
            raise
        return replace(launch, descriptors=(*launch.descriptors, fd))

    def wrap(
        self, argv: Sequence[str], *, view: View, variables: Mapping[str, str], machine_network: bool = False
    ) -> Launch:
        """Return the launch of ``argv`` in the sandbox.

        Args:
            argv: The command.
            view: The command's view of the file system.
            variables: The command's environment variables.
            machine_network: Use the machine's network even if the job has a separate network. Default: false.

        Raises:
            ClientFailure: The operating system does not allow the name or value of a variable.
            InstanceLost: The job's network is gone.
            InternalFailure: The sandbox cannot be prepared.
        """
        _check(variables)
        try:
            launch = self.sandbox.wrap(argv, view=view, variables=variables)
            if self.network is None or machine_network:
                return launch
            return replace(launch, namespaces=self.network.open(self.spec.ref.instance_index))
        except OSError as error:
            if self.network and not self.network.holder.alive:
                raise InstanceLost(end_of_needed_process(self.task.site, self.network)) from error
            raise InternalFailure(f"the sandbox {self.sandbox.name} cannot be prepared: {error}") from error

    def compiler_cache(self) -> Path | None:
        """Return the cache directory of the training compiler, created if missing; None without the compiler."""
        if not self.spec.compiler_cache:
            return None
        directory = self.task.site.state_dir / "compiler" / self.spec.compiler_cache
        try:
            directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        except OSError as error:
            self.log.note(f"tidemill: the training compiler keeps no decisions: {error}")
            return None
        return directory

    @property
    def warm_socket(self) -> Path | None:
        """Return the socket that takes requests for a warm start; None if nothing listens there."""
        socket = self.task.site.warm_socket
        return socket if socket is not None and socket.exists() else None

    def _introduce(self, name: str, environments: Environments) -> None:
        sandbox = self.sandbox
        backend = "" if self.isolation.value == sandbox.name else f" ({sandbox.name})"
        shown = name
        with contextlib.suppress(MissingInterpreterError):  # it may be downloaded
            environment = environments.describe(name, python=self.spec.python)
            interpreter = (environment.script or environment).interpreter
            shown = f"{name} ({environment.key}), Python {interpreter.version}"
        for line in self.spec.notices:
            self.log.note(line)
        self.log.note(f"tidemill: isolation={self.isolation}{backend}, environment={shown}")
        if self.network:
            reached = "nothing else (EnableNetworkIsolation)" if self.spec.closed else "the service, and nothing else"
            self.log.note(f"tidemill: the script reaches the instances of its job, and {reached}")
        if self.task.devices:
            self.log.note(f"tidemill: the GPUs of this instance: {', '.join(self.task.devices)}")
        if self.spec.limits:
            self.log.note(f"tidemill: limits of this instance ({self.spec.limits.source}): {self.spec.limits}")
        if self.spec.warm and self.warm_socket is None:
            why = "its network is its own" if self.network else "no process has TensorFlow imported yet"
            self.log.note(f"tidemill: {why}; the script starts cold")


def _check(variables: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name + value:
            raise ClientFailure(f"environment variable {name!r} cannot be set: it has no name, or holds = or NUL")
