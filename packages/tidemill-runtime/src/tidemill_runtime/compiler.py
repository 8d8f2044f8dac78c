"""The switch of the training compiler: sets variables that ``tidemill-tensorflow`` reads, from hyperparameters."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill_runtime.environment import Environment

ENABLED = "sagemaker_training_compiler_enabled"
DEBUG = "sagemaker_training_compiler_debug_mode"
MAX_COST = "sagemaker_training_compiler_max_cost"
"""tidemill's own: the share of a training's time that compiling may cost."""


def is_enabled(framework: Mapping[str, Any]) -> bool:
    """Return whether the job requests the compiler; SDKs send a boolean or its name.

    Args:
        framework: The job's framework hyperparameters, decoded.
    """
    return _is_true(framework.get(ENABLED))


def compiler_variables(environment: Environment) -> dict[str, str]:
    """Return the variables for a script if the compiler is on, else none.

    Returns:
        Variables for the script, by name; empty if the compiler is off.
    """
    framework = environment.hyperparameters.framework
    if not is_enabled(framework):
        return {}
    report = environment.layout.output_data / "compiler"
    variables = {"TIDEMILL_COMPILER": "1", "TIDEMILL_COMPILER_REPORT": str(report)}
    if _is_true(framework.get(DEBUG)):
        variables["TIDEMILL_COMPILER_DEBUG"] = "1"
    if framework.get(MAX_COST) is not None:
        variables["TIDEMILL_COMPILER_MAX_COST"] = str(framework[MAX_COST])
    return variables


def announce(environment: Environment) -> None:
    """Write the log lines that SageMaker writes for a job with the compiler.

    Args:
        environment: The job; nothing is written if the compiler is off.
    """
    framework = environment.hyperparameters.framework
    if not is_enabled(framework):
        return
    lines = ["Found configuration for Training Compiler", "Configuring SM Training Compiler..."]
    if _is_true(framework.get(DEBUG)):
        lines.append("Training Compiler set to debug mode")
    os.write(1, "".join(f"{line}\n" for line in lines).encode())
    if importlib.util.find_spec("tidemill_tensorflow") is None:
        # `tidemill status` shows the last line that begins so.
        os.write(2, b"training compiler: needs TensorFlow 2.12 or newer; the job runs without it\n")


def _is_true(value: Any) -> bool:
    return str(value).strip().lower() == "true"
