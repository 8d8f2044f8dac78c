"""Which launcher starts a job's script."""

from __future__ import annotations

import json

import pytest

from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.launchers.mpi import MPILauncher
from tidemill_runtime.launchers.parameter_server import ParameterServerLauncher
from tidemill_runtime.launchers.python import ColdLauncher
from tidemill_runtime.launchers.selection import launcher_for
from tidemill_runtime.launchers.warm import WarmLauncher

SERVERS = "sagemaker_parameter_server_enabled"
MPI = "sagemaker_mpi_enabled"
COMPILER = "sagemaker_training_compiler_enabled"
WARM = {"TIDEMILL_WARM_SOCKET": "/run/warm.sock"}


@pytest.mark.parametrize(
    ("framework", "hosts", "variables", "launcher"),
    [
        ({}, 1, {}, ColdLauncher),
        ({}, 1, WARM, WarmLauncher),
        ({}, 2, WARM, WarmLauncher),
        ({COMPILER: True}, 1, WARM, ColdLauncher),
        ({COMPILER: "true"}, 1, WARM, ColdLauncher),
        ({COMPILER: False}, 1, WARM, WarmLauncher),
        ({MPI: True}, 1, WARM, MPILauncher),
        ({MPI: False}, 1, WARM, WarmLauncher),
        ({SERVERS: True}, 2, WARM, ParameterServerLauncher),
        ({SERVERS: True}, 1, WARM, WarmLauncher),
        ({SERVERS: True, MPI: True}, 2, {}, ParameterServerLauncher),
        ({SERVERS: True, MPI: True}, 1, {}, MPILauncher),
    ],
)
def test_the_distribution_decides_and_only_plain_scripts_are_forked(job, framework, hosts, variables, launcher):
    names = [f"algo-{number + 1}" for number in range(hosts)]
    job.config("hyperparameters", {name: json.dumps(value) for name, value in framework.items()})
    job.config("resourceconfig", {"current_host": "algo-1", "hosts": names})
    environment = Environment.read({"SAGEMAKER_BASE_DIR": str(job.base)}, devices=Devices(1, 0, 0))
    assert type(launcher_for(environment, variables)) is launcher
