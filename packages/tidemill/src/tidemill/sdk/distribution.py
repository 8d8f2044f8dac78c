"""The ``distribution`` argument as hyperparameters, and back."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KINDS = ("parameter_server", "mpi", "smdistributed", "multi_worker_mirrored_strategy", "instance_groups")


def check(distribution: Mapping[str, Any]) -> None:
    """Refuse distributions that would have no effect.

    Raises:
        ValueError: The kind is unknown or has no dictionary of options, or strategies exclude each other.
    """
    for kind, options in distribution.items():
        if kind not in KINDS:
            raise ValueError(f"distribution: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
        if kind != "instance_groups" and not isinstance(options, Mapping):
            raise ValueError(
                f"distribution[{kind!r}]={options!r} is not a dictionary; expected for example {{'enabled': True}}"
            )
    if _enabled(distribution, "multi_worker_mirrored_strategy") and _enabled(distribution, "parameter_server"):
        raise ValueError(
            "distribution: multi_worker_mirrored_strategy and parameter_server are both enabled; choose one of them"
        )


def to_hyperparameters(distribution: Mapping[str, Any], *, instance_type: str | None) -> dict[str, Any]:
    """Return the distribution's hyperparameters as Python values, not yet encoded.

    Args:
        distribution: The argument ``distribution`` of the estimator.
        instance_type: Type of the instances; None with instance groups.

    Returns:
        Values by hyperparameter.

    Raises:
        ValueError: If a kind or an option is not allowed.
    """
    found: dict[str, Any] = {}
    if "instance_groups" in distribution:
        found["sagemaker_distribution_instance_groups"] = [
            getattr(group, "instance_group_name", group) for group in distribution["instance_groups"]
        ]
    if "parameter_server" in distribution:
        found["sagemaker_parameter_server_enabled"] = _enabled(distribution, "parameter_server")
    if "mpi" in distribution:
        found |= _mpi(distribution["mpi"])
    if "smdistributed" in distribution:
        found |= _smdistributed(distribution["smdistributed"], instance_type)
    if "multi_worker_mirrored_strategy" in distribution:
        found["sagemaker_multi_worker_mirrored_strategy_enabled"] = _enabled(
            distribution, "multi_worker_mirrored_strategy"
        )
    return found


def from_hyperparameters(hyperparameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the distribution for decoded hyperparameters: the inverse of `to_hyperparameters`.

    Args:
        hyperparameters: Decoded values by name.

    Returns:
        The argument ``distribution``; empty without one.
    """
    found: dict[str, Any] = {}
    if "sagemaker_distribution_instance_groups" in hyperparameters:
        found["instance_groups"] = hyperparameters["sagemaker_distribution_instance_groups"]
    if "sagemaker_parameter_server_enabled" in hyperparameters:
        found["parameter_server"] = {"enabled": hyperparameters["sagemaker_parameter_server_enabled"]}
    if "sagemaker_mpi_enabled" in hyperparameters:
        found["mpi"] = _named(
            enabled=hyperparameters["sagemaker_mpi_enabled"],
            processes_per_host=hyperparameters.get("sagemaker_mpi_num_of_processes_per_host"),
            custom_mpi_options=hyperparameters.get("sagemaker_mpi_custom_mpi_options") or None,
        )
    if "sagemaker_distributed_dataparallel_enabled" in hyperparameters:
        strategies: dict[str, Any] = {}
        if hyperparameters["sagemaker_distributed_dataparallel_enabled"]:
            strategies["dataparallel"] = _named(
                enabled=True,
                custom_mpi_options=hyperparameters.get("sagemaker_distributed_dataparallel_custom_mpi_options") or None,
            )
        if "mp_parameters" in hyperparameters:
            parameters = hyperparameters["mp_parameters"]
            strategies["modelparallel"] = {"enabled": True, "parameters": parameters}
        found["smdistributed"] = strategies
    if "sagemaker_multi_worker_mirrored_strategy_enabled" in hyperparameters:
        enabled = hyperparameters["sagemaker_multi_worker_mirrored_strategy_enabled"]
        found["multi_worker_mirrored_strategy"] = {"enabled": enabled}
    return found


def _mpi(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"sagemaker_mpi_enabled": options.get("enabled", False)}
    processes = options.get("processes_per_host")
    if processes:
        if not isinstance(processes, int) or processes < 1:
            raise ValueError(f"distribution['mpi']['processes_per_host']={processes!r}; expected a whole number from 1")
        found["sagemaker_mpi_num_of_processes_per_host"] = processes
    found["sagemaker_mpi_custom_mpi_options"] = options.get("custom_mpi_options", "")
    return found


def _smdistributed(options: Mapping[str, Any], instance_type: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    model = options.get("modelparallel", {})
    parameters = _parameters(model) if model.get("enabled") is True else None
    if parameters:
        found["mp_parameters"] = parameters
    data = options.get("dataparallel", {})
    found["sagemaker_distributed_dataparallel_enabled"] = data.get("enabled", False)
    found["sagemaker_instance_type"] = instance_type
    if data.get("enabled", False):
        found["sagemaker_distributed_dataparallel_custom_mpi_options"] = data.get("custom_mpi_options", "")
    return found


def _parameters(model: Mapping[str, Any]) -> Any:
    """Return the library's parameters, from a dictionary or from a JSON file."""
    given = model.get("parameters", {})
    if isinstance(given, Mapping):
        return dict(given)
    try:
        return json.loads(Path(given).read_text())
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"distribution['smdistributed']['modelparallel']['parameters']={given!r} is neither a dictionary nor the"
            f" path of a JSON file: {error}"
        ) from error


def _enabled(distribution: Mapping[str, Any], kind: str) -> bool:
    return distribution.get(kind, {}).get("enabled", False)


def _named(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
