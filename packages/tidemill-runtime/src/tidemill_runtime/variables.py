"""SM_* and the other variables of a script, in the format of SageMaker's training toolkit 5.1.4.

None becomes the empty string, a string is unchanged, other values are compact ASCII JSON with sorted keys. Names are
upper-cased and otherwise unchanged, so ``SM_HP_BATCH-SIZE`` exists although no shell can read it.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime.compiler import compiler_variables
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.tf_config import tf_config_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill_runtime.environment import Environment

SCRIPT_DEFAULTS = {"PYTHONUNBUFFERED": "1", "S3_USE_HTTPS": "1", "TF_CPP_MIN_LOG_LEVEL": "1"}
"""Variables that SageMaker's TensorFlow image sets, unless the container sets them."""

PRIVATE = frozenset(
    {
        "TIDEMILL_CONTROL_FD",
        "TIDEMILL_ENVIRONMENT",
        "TIDEMILL_NEEDS_FD",
        "TIDEMILL_OVERLAY",
        "TIDEMILL_WARM_SOCKET",
    }
)
"""Variables that shim and runtime exchange; the script does not get them."""


def encode(value: Any) -> str:
    """Return the text of a variable.

    Args:
        value: Any value that JSON can hold.

    Returns:
        The string itself, "" for None, else compact JSON with sorted keys.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def sm_variables(environment: Environment) -> dict[str, str]:
    """Return all SM_* variables.

    Raises:
        ConfigurationError: A name or value contains a NUL character or half a surrogate pair.
    """
    values: dict[str, Any] = {**_general(environment), "TRAINING_ENV": _training_env(environment)}
    if environment.resource_config.get("topology"):
        values["TOPOLOGY"] = environment.resource_config["topology"]
    for name, directory in environment.channel_input_dirs.items():
        values[f"CHANNEL_{name}"] = directory
    for name in environment.hyperparameters.user:  # if names differ in case only, the last one wins
        values[f"HP_{name}"] = environment.hyperparameters.user[name]
    variables = {f"SM_{name.upper()}": encode(value) for name, value in values.items()}
    for name, text in variables.items():
        _check_passable(name, text)
    # The name of a hyperparameter may contain "=", that of a variable may not; SM_HPS and the arguments still have it.
    return {name: text for name, text in variables.items() if "=" not in name}


def script_variables(environment: Environment, container: Mapping[str, str], *, prefixes: list[str]) -> dict[str, str]:
    """Return the whole environment of the script.

    Args:
        environment: The source of the SM_* variables.
        container: The runtime's own environment, which the script inherits.
        prefixes: Python environments whose ``bin`` directories come first in PATH, in this order.
    """
    variables = {name: value for name, value in container.items() if name not in PRIVATE}
    if importlib.util.find_spec("tidemill_tensorflow") is None:  # which brings s3:// from TensorFlow 2.6 on
        from tidemill_runtime.old_s3_client import old_s3_client_variables

        variables.update(old_s3_client_variables(container))
    for name, value in SCRIPT_DEFAULTS.items():
        variables.setdefault(name, value)
    # Behind the modules of the script: a module for each that Python 2 cannot import from the runtime's environment.
    for_python_2 = [str(Path(__file__).with_name("for_python_2"))] if _is_python_2(prefixes) else []
    paths = [str(environment.layout.code), container.get("PYTHONPATH", ""), *for_python_2]
    variables["PYTHONPATH"] = _joined(paths)
    variables["PATH"] = _joined([*(f"{prefix}/bin" for prefix in prefixes), container.get("PATH", os.defpath)])
    variables["TIDEMILL_REPORTS"] = str(environment.layout.reports)
    variables.setdefault("TIDEMILL_TENSORFLOW", "1")
    if environment.region:
        variables.setdefault("S3_REGION", environment.region)
    # No `|`: jobs on TensorFlow 1.15 run on Python 3.7, whose dictionaries do not have it.
    return {**variables, **({} if environment.layout.is_processing else _toolkit_variables(environment))}


def _toolkit_variables(environment: Environment) -> dict[str, str]:
    """Return the variables that SageMaker's training toolkit sets; the command of a processing job runs without it."""
    return {
        **sm_variables(environment),
        **compiler_variables(environment),
        **tf_config_variables(environment),
        "CURRENT_HOST": environment.current_host,
        "SAGEMAKER_JOB_NAME": environment.job_name or "",
        "SAGEMAKER_REGION": environment.region or "",
    }


def _general(environment: Environment) -> dict[str, Any]:
    """Return the SM_* variables without their prefix, except those whose names depend on the job."""
    layout = environment.layout
    return {
        "CHANNELS": sorted(environment.input_data_config),
        "CURRENT_HOST": environment.current_host,
        "CURRENT_INSTANCE_GROUP": environment.current_instance_group,
        "CURRENT_INSTANCE_GROUP_HOSTS": environment.current_instance_group_hosts,
        "CURRENT_INSTANCE_TYPE": environment.current_instance_type,
        "DISTRIBUTION_INSTANCE_GROUPS": environment.distribution_instance_groups,
        "FRAMEWORK_MODULE": environment.framework_module,
        "FRAMEWORK_PARAMS": environment.hyperparameters.framework,
        "HOSTS": environment.hosts,
        "HPS": environment.hyperparameters.user,
        "INPUT_CONFIG_DIR": str(layout.config),
        "INPUT_DATA_CONFIG": environment.input_data_config,
        "INPUT_DIR": str(layout.input),
        "INSTANCE_GROUPS": environment.instance_groups,
        "INSTANCE_GROUPS_DICT": environment.instance_groups_dict,
        "IS_HETERO": environment.is_hetero,
        "LOG_LEVEL": environment.log_level,
        "MODEL_DIR": str(layout.model),
        "MODULE_DIR": environment.module_dir,
        "MODULE_NAME": environment.module_name,
        "NETWORK_INTERFACE_NAME": environment.network_interface_name,
        "NUM_CPUS": environment.devices.num_cpus,
        "NUM_GPUS": environment.devices.num_gpus,
        "NUM_NEURONS": environment.devices.num_neurons,
        "OUTPUT_DATA_DIR": str(layout.output_data),
        "OUTPUT_DIR": str(layout.output),
        "OUTPUT_INTERMEDIATE_DIR": str(layout.output_intermediate),
        "RESOURCE_CONFIG": environment.resource_config,
        "USER_ARGS": list(environment.user_arguments),
        "USER_ENTRY_POINT": environment.entry_point,
    }


def _training_env(environment: Environment) -> dict[str, Any]:
    """Return every public property in one object, under the toolkit's attribute names, not the variables'."""
    layout = environment.layout
    return {
        "additional_framework_parameters": environment.hyperparameters.framework,
        "channel_input_dirs": environment.channel_input_dirs,
        "current_host": environment.current_host,
        "current_instance_group": environment.current_instance_group,
        "current_instance_group_hosts": environment.current_instance_group_hosts,
        "current_instance_type": environment.current_instance_type,
        "distribution_hosts": environment.distribution_hosts,
        "distribution_instance_groups": environment.distribution_instance_groups,
        "framework_module": environment.framework_module,
        "hosts": environment.hosts,
        "hyperparameters": environment.hyperparameters.user,
        "input_config_dir": str(layout.config),
        "input_data_config": environment.input_data_config,
        "input_dir": str(layout.input),
        "instance_groups": environment.instance_groups,
        "instance_groups_dict": environment.instance_groups_dict,
        "is_hetero": environment.is_hetero,
        "is_master": environment.is_master,
        "is_modelparallel_enabled": environment.is_modelparallel_enabled or None,
        "is_smddpmprun_installed": False,  # AWS's data parallelism library is not in the environments
        "is_smddprun_installed": False,
        "job_name": environment.job_name,
        "log_level": environment.log_level,
        "master_hostname": environment.master_hostname,
        "model_dir": str(layout.model),
        "module_dir": environment.module_dir,
        "module_name": environment.module_name,
        "network_interface_name": environment.network_interface_name,
        "num_cpus": environment.devices.num_cpus,
        "num_gpus": environment.devices.num_gpus,
        "num_neurons": environment.devices.num_neurons,
        "output_data_dir": str(layout.output_data),
        "output_dir": str(layout.output),
        "output_intermediate_dir": str(layout.output_intermediate),
        "resource_config": environment.resource_config,
        "topology": environment.resource_config.get("topology", []),
        "user_entry_point": environment.entry_point,
    }


def _is_python_2(prefixes: list[str]) -> bool:
    """Return whether the first environment, the script's own, is one of Python 2."""
    return any(Path(prefix, "lib", "python2.7").is_dir() for prefix in prefixes[:1])


def _joined(paths: list[str]) -> str:
    return os.pathsep.join(path for path in paths if path)


def _check_passable(name: str, text: str) -> None:
    for part in (name, text):
        try:
            bad = "\0" in part
            part.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            bad = True
        if bad:
            raise ConfigurationError(
                f"the variable {name!r} would hold a NUL character or half a surrogate pair, which no environment "
                "can carry: remove it from the hyperparameter or channel of that name"
            )
