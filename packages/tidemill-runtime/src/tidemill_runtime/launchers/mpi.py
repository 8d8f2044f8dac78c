"""Start the script under mpirun: one process per rank, supervised by `tidemill_runtime.mpi`."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.events import emit
from tidemill_runtime.launchers.python import ColdLauncher
from tidemill_runtime.mpi.network import Addresses
from tidemill_runtime.mpi.options import translate
from tidemill_runtime.mpi.plan import MpiPlan, Outcome
from tidemill_runtime.mpi.programs import find_mpi
from tidemill_runtime.process import ColdChild

if TYPE_CHECKING:
    from tidemill_runtime.environment import Environment
    from tidemill_runtime.launchers.base import Script
    from tidemill_runtime.process import Child, Ended

JOB_DIRECTORY = "TIDEMILL_JOB_DIRECTORY"


class MPIChild(ColdChild):
    """The supervisor, whose outcome names the rank that failed."""

    def __init__(self, *arguments: Any, outcome: Path, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._outcome = outcome

    def account(self, ended: Ended) -> Ended:
        """Return the end of the rank that failed first, unless the supervisor itself was killed."""
        with contextlib.suppress(OSError, ValueError):
            outcome = Outcome.read(self._outcome)
            reports = Path(outcome.reports) if outcome.reports else None
            return replace(
                ended,
                exit_code=outcome.exit_code,
                stderr_tail=outcome.tail,
                pid=outcome.pid or ended.pid,
                where=outcome.where,
                reports=reports,
            )
        return ended


class MPILauncher:
    """Starts the supervisor, which starts mpirun.

    Raises:
        ConfigurationError: The job's distribution cannot be run.
    """

    def __init__(self, environment: Environment) -> None:
        framework = environment.hyperparameters.framework
        self._environment = environment
        devices = environment.devices
        default = devices.num_gpus or devices.num_neurons or 1
        self._per_host = _count(framework, "sagemaker_mpi_num_of_processes_per_host", default=default)
        in_all = self._per_host * len(environment.distribution_hosts or environment.hosts)
        self._num_processes = _count(framework, "sagemaker_mpi_num_processes", default=in_all)
        given = framework.get("sagemaker_mpi_custom_mpi_options") or ""
        self._options = given if isinstance(given, list) else str(given)

    def _shared(self, script: Script) -> str:
        """Return the directory of notices that several instances of one machine share; empty with one instance."""
        environment = self._environment
        if len(environment.distribution_hosts) < 2:
            return ""
        if environment.layout.peers.is_file():
            shared = environment.layout.private / "mpi-peers"
            shared.mkdir(mode=0o700, exist_ok=True)
            return str(shared)
        directory = script.variables.get(JOB_DIRECTORY)
        if not directory:
            raise ConfigurationError(
                f"distribution mpi on {len(environment.hosts)} instances: {JOB_DIRECTORY} names no directory "
                "that they share; take instance_count=1 and a larger processes_per_host"
            )
        for host in environment.distribution_hosts:
            with contextlib.suppress(OSError):  # mpirun itself resolves names that cannot be resolved here
                address = socket.gethostbyname(host)
                if address.startswith("127."):
                    raise ConfigurationError(
                        f"distribution mpi on several instances: {host} is {address} here, since the instances share "
                        "the network of this machine; it needs isolation mode full (see `tidemill doctor`)"
                    )
        shared = Path(directory) / "mpi"
        shared.mkdir(mode=0o700, exist_ok=True)
        return str(shared)

    def _network(self) -> Addresses | None:
        """Return the addresses of the instances on other machines; None if all are on this machine."""
        environment = self._environment
        if len(environment.distribution_hosts) < 2 or not environment.layout.peers.is_file():
            return None
        return Addresses.read(environment.layout.peers)

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start the script in its own session and process group.

        Raises:
            ConfigurationError: There is no mpirun, or it does not support the options.
        """
        environment = self._environment
        if environment.current_host not in environment.distribution_hosts:  # its group does not take part
            return ColdLauncher().start(script, stderr_fd=stderr_fd)
        mpi = find_mpi(script.variables["PATH"])
        options = translate(self._options, vendor=mpi.vendor)
        if options.ignored:
            emit("mpi.options_without_effect", options=list(options.ignored), mpi=mpi.vendor)
        directory = environment.layout.private / "mpi"
        directory.mkdir(mode=0o700, exist_ok=True)
        hosts = environment.distribution_hosts
        shared, network = self._shared(script), self._network()
        command = mpi.command(
            hosts=hosts,
            address=network.addresses[environment.current_host] if network else "",
            per_host=self._per_host,
            num_processes=self._num_processes,
            options=options,
            reach=str(directory / "reach"),
        )
        if shared:
            _write_reach(directory / "reach", directory / "plan.json")
        if environment.is_master:
            emit("mpi.started", mpi=mpi.vendor, ranks=self._num_processes, command=command)
        else:
            emit("mpi.awaited", mpi=mpi.vendor, leader=environment.master_hostname)
        interface = environment.network_interface_name
        plan = MpiPlan(
            argv=_under_mpi(script.argv),
            directory=str(script.directory),
            mpirun=command if environment.is_master else (),
            host=environment.current_host,
            reports=str(environment.layout.reports),
            variables={
                "NCCL_MIN_NRINGS": "4",
                "NCCL_SOCKET_IFNAME": interface,
                "NCCL_DEBUG": "INFO",
                **mpi.variables(script.variables),
                **(_for_libraries(network, environment.current_host) if network else {}),
                **options.variables,
            },
            shared=shared,
            network=str(environment.layout.peers) if network else "",
            others=[host for host in hosts if host != environment.current_host] if shared else (),
        )
        plan.write(directory / "plan.json")
        return MPIChild(
            (sys.executable, "-I", "-m", "tidemill_runtime.mpi.supervisor", str(directory / "plan.json")),
            directory=script.directory,
            variables=script.variables,
            stderr_fd=stderr_fd,
            outcome=directory / "outcome.json",
        )


def _for_libraries(network: Addresses, host: str) -> dict[str, str]:
    """Return this machine's address for other machines, and the secret and encryption, of smp's and Horovod's ranks."""
    return {
        "SMP_HOST": network.addresses[host],
        "SMP_SECRET": network.secret_for("smp").hex(),
        "SMP_ENCRYPTION": str(int(network.encrypted)),
    }


def _write_reach(path: Path, plan: Path) -> None:
    """Write the program that mpirun calls instead of ssh: a shell script, since ``#!`` limits the length of paths."""
    command = (sys.executable, "-I", "-m", "tidemill_runtime.mpi.reach", str(plan))
    path.write_text(f'#!/bin/sh\nexec {" ".join(map(shlex.quote, command))} "$@"\n', encoding="utf-8")
    path.chmod(0o700)


def _count(framework: Any, name: str, *, default: int) -> int:
    value = framework.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name}={value!r}: expected a whole number from 1")
    return value


def _under_mpi(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return a command that runs a Python script under mpi4py, as SageMaker does: uncaught exceptions then abort MPI.

    Without it, an interpreter that ends with an exception would wait in MPI_Finalize for ranks that wait for it.
    """
    if importlib.util.find_spec("mpi4py") is None or argv[1:2] not in (("--",), ("-m",)):
        return argv
    rest = argv[2:] if argv[1] == "--" else argv[1:]
    return (argv[0], "-m", "mpi4py", *rest)
