"""The parameters of `smp.init`: read, checked, and completed with their defaults.

They come as a dict or, with no argument, from `SM_HP_MP_PARAMETERS`, where a job finds them as JSON. Keys that the
library does not know are accepted and kept in `extras`.
"""

from __future__ import annotations

import json
import numbers
import operator
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError

__all__ = ["PARAMETERS_VARIABLE", "Config", "read_config"]

PARAMETERS_VARIABLE = "SM_HP_MP_PARAMETERS"

_CHOICES = {
    "pipeline": ("interleaved", "simple", "_only_forward"),
    "optimize": ("memory", "speed"),
    "placement_strategy": ("cluster", "spread"),
    "transport": ("auto", "native", "python"),
}
_POSITIVE_INTS = ("partitions", "microbatches", "active_microbatches")
_BOOLS = (
    "auto_partition",
    "contiguous",
    "horovod",
    "load_partition",
    "ddp",
    "shard_optimizer_state",
    "strict",
    "check_inputs",
    "bind_cores",
    "xla",
    "fork",
    "deterministic_server",
)
_STRINGS = ("partition_file", "ddp_dist_backend", "timeline")
_OPTIONAL = frozenset(("active_microbatches", "default_partition", "partition_file", "memory_weight", "timeline"))


@dataclass(frozen=True)
class Config:
    """The parameters of a job, all of them checked."""

    partitions: int
    """Number of model parts, which is the number of ranks that hold one replica."""
    microbatches: int = 1
    """Pieces into which a step cuts its batch."""
    pipeline: str = "interleaved"
    """`interleaved` (a backward goes first when it can) or `simple` (all forwards, then all backwards)."""
    optimize: str = "memory"
    """What the automatic cut balances: `memory` or `speed`."""
    placement_strategy: str = "cluster"
    """Whether the ranks of a replica are neighbours (`cluster`) or those of a partition are (`spread`)."""
    auto_partition: bool = True
    """Whether the library finds the cut; else `smp.partition` does."""
    default_partition: int | None = None
    """Where ops outside any `smp.partition` go; needed if `auto_partition` is False."""
    contiguous: bool = True
    """Whether each part must be connected."""
    horovod: bool = False
    """Whether Horovod does the data parallelism; `smp.init` starts it."""
    ddp: bool = False
    """Whether the library averages gradients over the replicas by itself."""
    shard_optimizer_state: bool = False
    """With `ddp`: whether each replica holds only its share of the optimizer's slots."""
    active_microbatches: int | None = None
    """Microbatches in flight at most; None leaves it to the schedule."""
    partition_file: str | None = None
    """Where the cut is saved or, with `load_partition`, read."""
    load_partition: bool = False
    """Whether the cut is read from `partition_file` instead of being searched for."""
    recompute: tuple[int, ...] = ()
    """Partitions that compute their forward again in the backward instead of keeping activations."""
    timeline: str | None = None
    """Where a timeline of the last steps is written when the job ends; None for none."""
    strict: bool = False
    """Whether step results that are no tensors must agree between microbatches."""
    check_inputs: bool = True
    """Whether the ranks of a replica compare their inputs on the first steps."""
    hang_timeout_s: float = 300.0
    """How long a rank waits for another one before it says that there is a deadlock."""
    transport: str = "auto"
    """How tensors travel: `native`, `python`, or `auto` for the best that all ranks have."""
    bind_cores: bool = True
    """Whether ranks share the cores of a machine among them, each bound to its own."""
    memory_weight: float | None = None
    """Accepted as AWS's library does for PyTorch; without effect."""
    ddp_port: int | None = None
    """Accepted as AWS's library does for PyTorch; without effect."""
    ddp_dist_backend: str | None = None
    """Accepted as AWS's library does for PyTorch; without effect."""
    xla: bool = False
    """Accepted; use `tf.config.optimizer.set_jit(True)`."""
    fork: bool = False
    """Accepted; without effect."""
    deterministic_server: bool = False
    """Accepted; without effect."""
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Keys that the library does not know."""


def read_config(given: Mapping[str, Any] | None = None) -> Config:
    """Check the parameters of `smp.init`.

    Args:
        given: The parameters; None reads them from `SM_HP_MP_PARAMETERS`.

    Raises:
        SMPConfigurationError: If one of them is not allowed.
    """
    parameters = dict(given) if isinstance(given, Mapping) else _from_environment(given)
    known = {one.name for one in fields(Config)} - {"extras"}
    values = {name: value for name, value in parameters.items() if name in known}
    extras = {name: value for name, value in parameters.items() if name not in known}
    for name in _OPTIONAL | {"ddp_port", "ddp_dist_backend"}:
        if values.get(name, ...) is None:
            del values[name]  # the same as not given
    _require_partitions(values)
    checked = {name: _check(name, value) for name, value in values.items() if name != "recompute"}
    checked["recompute"] = _partitions_to_recompute(values.get("recompute", False), checked["partitions"])
    config = Config(**checked, extras=extras)
    _check_together(config, given=frozenset(values))
    return config


def _from_environment(given: object) -> dict[str, Any]:
    if given is not None:
        raise _refused("the configuration", given, "a dict of parameters, or None to read " + PARAMETERS_VARIABLE)
    text = os.environ.get(PARAMETERS_VARIABLE)
    if text is None:
        raise SMPConfigurationError(
            f"smp.init() got no configuration and {PARAMETERS_VARIABLE} is not set: "
            'call it with a dict, for example smp.init({"partitions": 2, "microbatches": 4})'
        )
    try:
        parameters = json.loads(text)
    except ValueError as error:
        raise _refused(PARAMETERS_VARIABLE, text, f"a JSON object ({error})") from error
    if not isinstance(parameters, dict):
        raise _refused(PARAMETERS_VARIABLE, text, "a JSON object")
    return parameters


def _require_partitions(values: Mapping[str, Any]) -> None:
    if "partitions" not in values:
        raise SMPConfigurationError(
            f"'partitions' is missing from the configuration, which has {sorted(values) or 'nothing'}: "
            "give the number of model parts, an int >= 1 (1 keeps the model in one piece)"
        )


def _check(name: str, value: Any) -> Any:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise _refused(f"'{name}'", value, "one of " + ", ".join(map(repr, _CHOICES[name])))
        return value
    if name in _BOOLS:
        if not isinstance(value, numbers.Number) or value not in (0, 1):
            raise _refused(f"'{name}'", value, "True or False (or 1 or 0)")
        return bool(value)
    if name in _POSITIVE_INTS:
        return _int(name, value, least=1)
    if name in ("default_partition", "ddp_port"):
        return _int(name, value, least=0)
    if name in _STRINGS:
        return _string(name, value)
    if name == "hang_timeout_s":
        return _number(name, value, "a number of seconds > 0", least=1e-3, most=float("inf"))
    return _number(name, value, "a number from 0 to 1", least=0.0, most=1.0)


def _int(name: str, value: Any, *, least: int) -> int:
    allowed = f"an int >= {least}"
    if isinstance(value, bool):
        raise _refused(f"'{name}'", value, allowed)
    try:
        number = operator.index(value)
    except TypeError as error:
        raise _refused(f"'{name}'", value, allowed) from error
    if number < least:
        raise _refused(f"'{name}'", value, allowed)
    return number


def _string(name: str, value: Any) -> str:
    try:
        return str(os.fspath(value))
    except TypeError as error:
        raise _refused(f"'{name}'", value, "a string") from error


def _number(name: str, value: Any, allowed: str, *, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= float(value) <= most:
        raise _refused(f"'{name}'", value, allowed)
    return float(value)


def _partitions_to_recompute(value: Any, partitions: int) -> tuple[int, ...]:
    allowed = f"True, False, or a list of partitions from 0 to {partitions - 1}"
    if isinstance(value, numbers.Number) and value in (0, 1):
        return tuple(range(partitions)) if value else ()
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _refused("'recompute'", value, allowed)
    indices = {_int("recompute", index, least=0) for index in value}
    if any(index >= partitions for index in indices):
        raise _refused("'recompute'", value, allowed)
    return tuple(sorted(indices))


def _check_together(config: Config, *, given: frozenset[str]) -> None:
    last = config.partitions - 1
    if config.default_partition is not None and config.default_partition > last:
        raise _refused("'default_partition'", config.default_partition, f"less than 'partitions', so 0 to {last}")
    if not config.auto_partition and config.default_partition is None:
        raise SMPConfigurationError(
            "'auto_partition' is False but 'default_partition' is missing: say which partition, "
            f"0 to {last}, holds the ops outside any smp.partition"
        )
    if config.horovod and config.ddp:
        raise SMPConfigurationError(
            "'horovod' and 'ddp' are both True: only one of them can average gradients, so set one to False"
        )
    for name in ("ddp_port", "ddp_dist_backend", "shard_optimizer_state"):
        if name in given and getattr(config, name) not in (None, False) and not config.ddp:
            raise SMPConfigurationError(
                f"'{name}' is {getattr(config, name)!r} but 'ddp' is not True: set 'ddp', or leave '{name}' out"
            )
    if config.load_partition and config.partition_file is None:
        raise SMPConfigurationError(
            "'load_partition' is True but 'partition_file' is missing: give the file that an earlier run has saved"
        )


def _refused(what: str, received: object, allowed: str) -> SMPConfigurationError:
    return SMPConfigurationError(f"{what} is {received!r}; allowed is {allowed}")
