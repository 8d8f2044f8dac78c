"""``python -m tidemill_runtime.mpi_driver PYTHON``: runs in place of the MPI driver of SDK v3's ModelTrainer.

It is called as that driver is, by the SDK's shell script, after ``scripts/environment.py`` has set the variables that
it reads: SM_ENTRY_SCRIPT, SM_HPS and SM_DISTRIBUTED_CONFIG. The ranks are started, watched and stopped as those of
``sagemaker_mpi_enabled``, so no instance needs ssh. It runs on every instance; only the first one starts mpirun.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.launchers import Script
from tidemill_runtime.launchers.mpi import MPILauncher
from tidemill_runtime.masking import masked_arguments
from tidemill_runtime.training import run, run_reporting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def main(python: str, variables: Mapping[str, str]) -> int:
    """Run the entry script under mpirun.

    Args:
        python: Interpreter of the script.
        variables: Environment of the driver, which the ranks inherit.

    Returns:
        0 if all ranks succeeded, else 1 (``output/failure`` has the reason).
    """
    return run_reporting(lambda: _main(python, variables), variables=variables)


def _main(python: str, variables: Mapping[str, str]) -> int:
    environment = Environment.read(variables)
    config = _read(variables, "SM_DISTRIBUTED_CONFIG")
    given = environment.hyperparameters
    framework: dict[str, Any] = {**given.framework, "sagemaker_mpi_enabled": True}
    if config.get("process_count_per_node"):
        count = config["process_count_per_node"]
        framework["sagemaker_mpi_num_of_processes_per_host"] = int(count) if str(count).isdecimal() else count
    framework["sagemaker_mpi_custom_mpi_options"] = _words(config.get("mpi_additional_options") or ())
    environment = replace(environment, hyperparameters=replace(given, framework=framework))
    arguments = _arguments(_read(variables, "SM_HPS"))
    argv = (python, "--", variables["SM_ENTRY_SCRIPT"], *arguments)
    script = Script(argv=argv, shown=masked_arguments(argv), directory=Path.cwd(), variables=variables)
    return run(MPILauncher(environment), script, layout=environment.layout, control_fd=None)


def _words(options: Sequence[str]) -> list[str]:
    """Return options as words; values keep their blanks, ``-x NAME=VALUE`` may be one item of the list or two."""
    return [word for each in options for word in (each.split() if each.startswith("-") else (each,))]


def _read(variables: Mapping[str, str], name: str) -> dict[str, Any]:
    try:
        value = json.loads(variables[name])
    except (KeyError, ValueError) as error:
        raise ConfigurationError(
            f"{name} of the SDK's sm_drivers is no JSON: {error!r}; a value with an apostrophe breaks its shell script"
        ) from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{name} of the SDK's sm_drivers is {value!r}; a JSON object is needed")
    return value


def _arguments(values: Mapping[str, Any]) -> list[str]:
    """Return hyperparameters as the SDK's drivers pass them: text as it is, everything else as JSON."""
    arguments: list[str] = []
    for name, given in values.items():
        value = given
        if isinstance(given, str):
            try:
                value = json.loads(given)
            except ValueError:
                value = given
        arguments += [f"--{name}", value if isinstance(value, str) else json.dumps(value)]
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], dict(os.environ)))
