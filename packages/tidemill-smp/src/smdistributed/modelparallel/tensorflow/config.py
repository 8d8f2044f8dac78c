"""Parameters of `smp.init`: reads and checks them, and fills in their defaults.

They come from a dict or, if none is given, from the JSON object that SageMaker training puts into
`SM_HP_MP_PARAMETERS`. Unknown keys are accepted and kept in `extras`.
"""

import json
import numbers
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError

PARAMETERS_VARIABLE = "SM_HP_MP_PARAMETERS"


@dataclass(frozen=True)
class _OneOf:
    """Any of a few strings."""

    choices: tuple[str, ...]

    def __call__(self, name: str, value: object) -> str:
        if value not in self.choices:
            raise _refused(f"'{name}'", value, "one of " + ", ".join(map(repr, self.choices)))
        return value


@dataclass(frozen=True)
class _AtLeast:
    """An integer, of Python or NumPy."""

    least: int

    def __call__(self, name: str, value: Any) -> int:
        allowed = f"an int >= {self.least}"
        if isinstance(value, bool):
            raise _refused(f"'{name}'", value, allowed)
        try:
            number = operator.index(value)
        except TypeError as error:
            raise _refused(f"'{name}'", value, allowed) from error
        if number < self.least:
            raise _refused(f"'{name}'", value, allowed)
        return number


@dataclass(frozen=True)
class _Between:
    """A number from `least` to `most`, both included."""

    least: float
    most: float
    allowed: str

    def __call__(self, name: str, value: object) -> float:
        is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not is_number or not self.least <= float(value) <= self.most:
            raise _refused(f"'{name}'", value, self.allowed)
        return float(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, numbers.Number) or value not in (0, 1):
        raise _refused(f"'{name}'", value, "True or False (or 1 or 0)")
    return bool(value)


def _text(name: str, value: Any) -> str:
    try:
        return str(os.fspath(value))
    except TypeError as error:
        raise _refused(f"'{name}'", value, "a string") from error


_Count = Annotated[int, _AtLeast(1)]
_Index = Annotated[int, _AtLeast(0)]
_Flag = Annotated[bool, _flag]
_Text = Annotated[str, _text]
_Seconds = Annotated[float, _Between(1e-3, float("inf"), "a number of seconds > 0")]
_Fraction = Annotated[float, _Between(0.0, 1.0, "a number from 0 to 1")]

IDLE_PARAMETERS: Mapping[str, str] = {
    "memory_weight": "a parameter of SageMaker's library for PyTorch",
    "ddp_port": "a parameter of SageMaker's library for PyTorch; ranks meet through their launcher",
    "ddp_dist_backend": "a parameter of SageMaker's library for PyTorch; `transport` chooses how tensors travel",
    "xla": "compile the parts with tf.config.optimizer.set_jit(True)",
    "fork": "a parameter of SageMaker's library; the launcher starts the ranks",
    "deterministic_server": "a parameter of SageMaker's library for PyTorch; here all ranks follow one schedule, "
    "without a server",
}
"""Parameters of `smp.init` that are accepted for SageMaker's scripts and have no effect, with the reason that
`smp.init` logs. All other parameters are honored."""


@dataclass(frozen=True)
class Config:
    """Validated parameters of a job: the one definition of each parameter's type, check, default and meaning.

    A parameter whose default is None may be given as None. `IDLE_PARAMETERS` lists the parameters without effect.
    """

    partitions: _Count
    """Number of partitions of the model: a replica runs on as many ranks."""
    microbatches: _Count = 1
    """Number of microbatches into which a step splits its batch."""
    pipeline: Annotated[str, _OneOf(("interleaved", "simple", "_only_forward"))] = "interleaved"
    """`interleaved` (backward passes run as soon as they can) or `simple` (all forward, then all backward passes)."""
    optimize: Annotated[str, _OneOf(("memory", "speed"))] = "memory"
    """Objective of automatic partitioning: `memory` or `speed`."""
    placement_strategy: Annotated[str, _OneOf(("cluster", "spread"))] = "cluster"
    """`cluster`: the ranks of a replica are consecutive. `spread`: the ranks that hold the same partition are."""
    auto_partition: _Flag = True
    """Whether the library places the layers; if False, `smp.partition` does."""
    default_partition: _Index | None = None
    """Partition of ops outside every `smp.partition`; required if `auto_partition` is False."""
    contiguous: _Flag = True
    """Whether each partition must be connected."""
    horovod: _Flag = False
    """Whether Horovod averages gradients over the replicas; `smp.init` initializes it."""
    ddp: _Flag = False
    """Whether the library averages gradients over the replicas."""
    shard_optimizer_state: _Flag = False
    """Whether each replica holds only its shard of the optimizer's slots; requires `ddp`."""
    active_microbatches: _Count | None = None
    """Largest number of microbatches in flight; None leaves it to the schedule."""
    partition_file: _Text | None = None
    """File to which the partitioning is saved or, if `load_partition` is True, from which it is loaded."""
    measure_layers: _Flag = True
    """Whether automatic partitioning measures the time of each layer on the first microbatch, if its values are known
    before the first step; if False, it uses estimates."""
    load_partition: _Flag = False
    """Whether to load the partitioning from `partition_file` instead of searching for one."""
    recompute: tuple[int, ...] = ()
    """Partitions that recompute their activations in the backward pass instead of keeping them."""
    timeline: _Text | None = None
    """File to which a timeline of the last steps is written when the job ends; None writes none."""
    strict: _Flag = False
    """Whether step results that are not tensors must be equal in all microbatches."""
    check_inputs: _Flag = True
    """Whether the ranks of a replica compare checksums of their inputs on the first steps."""
    hang_timeout_s: _Seconds = 300.0
    """Seconds that a rank waits for another rank before it raises `SMPDeadlockError`."""
    transport: Annotated[str, _OneOf(("auto", "native", "python"))] = "auto"
    """Transport of tensors: `native`, `python`, or `auto` for `native` if all ranks have it."""
    bind_cores: _Flag = True
    """Whether to divide the cores of a machine among its ranks and bind each rank to its own."""
    memory_weight: _Fraction | None = None
    """A parameter of SageMaker's library for PyTorch; accepted without effect."""
    ddp_port: _Index | None = None
    """A parameter of SageMaker's library for PyTorch; accepted without effect."""
    ddp_dist_backend: _Text | None = None
    """A parameter of SageMaker's library for PyTorch; accepted without effect."""
    xla: _Flag = False
    """Accepted without effect; use `tf.config.optimizer.set_jit(True)`."""
    fork: _Flag = False
    """Accepted without effect."""
    deterministic_server: _Flag = False
    """Accepted without effect."""
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Unknown keys and their values."""


def read_config(given: Mapping[str, Any] | None = None) -> Config:
    """Read and check the parameters of `smp.init`.

    Args:
        given: The parameters. Default: the JSON object in `SM_HP_MP_PARAMETERS`.

    Returns:
        The parameters, completed with their defaults.

    Raises:
        SMPConfigurationError: If a parameter is missing or not allowed.
    """
    parameters = dict(given) if isinstance(given, Mapping) else _from_environment(given)
    known = {one.name for one in fields(Config)} - {"extras"}
    values = {name: value for name, value in parameters.items() if name in known}
    extras = {name: value for name, value in parameters.items() if name not in known}
    for name in [one.name for one in fields(Config) if one.default is None]:
        if values.get(name, ...) is None:
            del values[name]  # None means the default, as if the parameter were missing
    _require_partitions(values)
    checks = _checks()
    checked = {name: checks[name](name, value) for name, value in values.items() if name != "recompute"}
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


def _checks() -> dict[str, Callable[[str, Any], Any]]:
    """Return the check of each parameter, from its annotation or from the annotated member of its union with None."""
    found: dict[str, Callable[[str, Any], Any]] = {}
    for name, hint in get_type_hints(Config, include_extras=True).items():
        for part in (hint, *get_args(hint)):
            if get_origin(part) is Annotated:
                found[name] = part.__metadata__[0]
                break
    return found


def _partitions_to_recompute(value: object, partitions: int) -> tuple[int, ...]:
    allowed = f"True, False, or a list of partitions from 0 to {partitions - 1}"
    if isinstance(value, numbers.Number) and value in (0, 1):
        return tuple(range(partitions)) if value else ()
    if not isinstance(value, (list, tuple, set, frozenset)):
        raise _refused("'recompute'", value, allowed)
    indices = {_AtLeast(0)("recompute", index) for index in value}
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
