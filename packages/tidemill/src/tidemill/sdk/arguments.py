"""The estimator's arguments: current names and deprecated aliases, merged into one frozen record.

The first SDK has ``train_instance_count``, the current one ``instance_count``; both are accepted, even together with
equal values. Arguments of legacy mode are refused with a hint at their replacement; unknown names are errors.
"""

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar

from tidemill.core import hyperparameters as hps
from tidemill.core.compatibility.hyperparameters import LEGACY_MODE, hyperparameter_refusal
from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.images import DEFAULT_TENSORFLOW, parse_image, training_image
from tidemill.core.legacy_script import legacy_refusal
from tidemill.sdk import distribution as distributions
from tidemill.sdk.compiler import compiler_hyperparameters
from tidemill.sdk.instance_group import groups_in_request
from tidemill.sdk.naming import check_name
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.variable import device_for, is_pipeline_variable

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PYTHON = "py3"

DEPRECATED_ALIASES = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_volume_size": "volume_size",
    "train_volume_kms_key": "volume_kms_key",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "image_name": "image_uri",
    "distributions": "distribution",
}

_WITHOUT_EFFECT = frozenset(LEGACY_MODE)
"""Arguments that are ignored if they are empty, and refused otherwise."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """An estimator's arguments by their current names. Times are in seconds, sizes in GB, as in SageMaker's API."""

    entry_point: str
    role: str = "SageMakerRole"
    instance_count: int = 1
    instance_type: str = "local"
    source_dir: str | None = None
    dependencies: Sequence[str] = ()
    git_config: Mapping[str, Any] | None = field(default=None, repr=False)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    framework_version: str | None = None
    py_version: str | None = None
    image_uri: str | None = None
    script_mode: bool | None = None
    model_dir: str | bool | None = None
    distribution: Mapping[str, Any] = field(default_factory=dict)
    compiler_config: Any = None
    base_job_name: str | None = None
    output_path: str | None = None
    output_kms_key: str | None = None
    code_location: str | None = None
    input_mode: str = "File"
    volume_size: int = 30
    volume_kms_key: str | None = None
    max_run: int = 24 * 60 * 60
    max_wait: int | None = None
    max_retry_attempts: int | None = None
    use_spot_instances: bool = False
    keep_alive_period_in_seconds: int | None = None
    instance_groups: Sequence[Any] | None = None
    environment: Mapping[str, str] | None = None
    tags: Any = None
    subnets: Sequence[str] | None = None
    security_group_ids: Sequence[str] | None = None
    encrypt_inter_container_traffic: bool = False
    enable_network_isolation: bool = False
    metric_definitions: Sequence[Mapping[str, str]] | None = None
    enable_sagemaker_metrics: bool | None = None
    checkpoint_s3_uri: str | None = None
    checkpoint_local_path: str | None = None
    model_uri: str | None = None
    model_channel_name: str = "model"
    container_log_level: int = 20
    container_entry_point: Sequence[str] | None = None
    container_arguments: Sequence[str] | None = None
    disable_output_compression: bool = False
    tensorboard_output_config: Any = None
    debugger_hook_config: Any = None
    profiler_config: Any = None
    rules: Sequence[Any] | None = None
    disable_profiler: bool | None = None

    def __post_init__(self) -> None:
        if self.base_job_name is not None:
            check_name("base_job_name", self.base_job_name)
        _positive("instance_count", self.instance_count)
        _positive("volume_size", self.volume_size)
        _positive("max_run", self.max_run)
        if self.input_mode not in ("File", "Pipe", "FastFile"):
            raise ValueError(f"input_mode={self.input_mode!r} is not allowed; expected File, Pipe or FastFile")
        are_known = not any(map(is_pipeline_variable, (self.max_wait, self.max_run)))
        if self.max_wait is not None and are_known and self.max_wait < self.max_run:
            raise ValueError(f"max_wait={self.max_wait} is less than max_run={self.max_run}; it has to cover the run")
        _check_mode(self)
        distributions.check(self.distribution)

    @property
    def mpi(self) -> bool:
        """Whether the job runs under MPI."""
        return bool(self.distribution.get("mpi", {}).get("enabled", False))

    def image(self, region: str) -> str:
        """Return the training image: ``image_uri``, or the image for the framework and Python version.

        Args:
            region: AWS region of the registry.
        """
        if self.image_uri is not None:
            return self.image_uri
        version = self.framework_version or DEFAULT_TENSORFLOW
        device = "gpu" if "gpu" in map(device_for, self.instance_types) else "cpu"
        return training_image(version, self.py_version or DEFAULT_PYTHON, region, device=device)

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance types of the job."""
        groups = groups_in_request(self.instance_groups or ())
        return tuple(group["InstanceType"] for group in groups) or (self.instance_type,)

    @property
    def instances_shown(self) -> str:
        """Number and type of the instances, for people."""
        if not self.instance_groups:
            return f"{self.instance_count or 1} x {self.instance_type or 'local'}"
        groups = groups_in_request(self.instance_groups)
        return ", ".join(f"{group['InstanceCount']} x {group['InstanceType']}" for group in groups)

    @property
    def shown(self) -> dict[str, Any]:
        """What notebooks show. Only the names of hyperparameters: a value may be a secret."""
        return {
            "entry point": self.entry_point,
            "source directory": self.source_dir,
            "instances": self.instances_shown,
            "TensorFlow": self.framework_version,
            "image": self.image_uri,
            "hyperparameters": ", ".join(self.hyperparameters),
        }

    @property
    def vpc_config(self) -> dict[str, Any] | None:
        """``VpcConfig`` of requests.

        Raises:
            ValueError: One of its two members is missing.
        """
        if bool(self.subnets) != bool(self.security_group_ids):
            raise ValueError("subnets and security_group_ids belong together; give both or neither")
        if not self.subnets or not self.security_group_ids:
            return None
        return {"Subnets": list(self.subnets), "SecurityGroupIds": list(self.security_group_ids)}

    @property
    def served_version(self) -> str:
        """TensorFlow version for serving the job's model."""
        of_image = parse_image(self.image_uri).tensorflow_version if isinstance(self.image_uri, str) else None
        return self.framework_version or of_image or DEFAULT_TENSORFLOW


def merge_arguments(given: Mapping[str, Any], *, stacklevel: int) -> Arguments:
    """Merge deprecated aliases into current names, refuse arguments that cannot be honored, and issue warnings.

    Args:
        given: Arguments by the names that the caller used.
        stacklevel: Stack level of the warnings, so that they point at the user's line.

    Raises:
        ValueError: Both names of one argument with different values, or a value that is not allowed.
        TypeError: An unknown argument.
    """
    refuse_arguments("TensorFlow", **given)
    today: dict[str, Any] = {}
    for name, value in given.items():
        current = DEPRECATED_ALIASES.get(name, name)
        if current in today and today[current] != value:
            earlier = next(old for old, new in DEPRECATED_ALIASES.items() if new == current)
            raise ValueError(
                f"{current}={given.get(current)!r} and {earlier}={given.get(earlier)!r} are two names of one argument"
                " with different values; give one of them"
            )
        today[current] = value
    _refuse_unknown(today)
    _check_groups(today)
    arguments = Arguments(**{name: value for name, value in today.items() if value is not None})
    for sentence in hps.surprising(arguments.hyperparameters):
        warnings.warn(sentence, UserWarning, stacklevel=stacklevel)
    return arguments


def _check_groups(today: Mapping[str, Any]) -> None:
    """Refuse instance groups together with arguments that describe instances without groups."""
    if not today.get("instance_groups"):
        return
    for name in ("instance_count", "instance_type"):
        if today.get(name) is not None:
            raise ValueError(
                f"{name}={today[name]!r} and instance_groups exclude each other: every group has its own; leave"
                f" {name} out"
            )


def check_offered(arguments: Arguments) -> None:
    """Refuse arguments whose hyperparameters the service would refuse: launchers and the training compiler.

    Raises:
        ValueError: The message names the argument, its value and what to do.
    """
    given = {
        "hyperparameters": arguments.hyperparameters,
        "distribution": distributions.to_hyperparameters(arguments.distribution, instance_type=arguments.instance_type),
        "compiler_config": compiler_hyperparameters(arguments.compiler_config),
    }
    for argument, hyperparameters in given.items():
        for name, value in hyperparameters.items():
            reason = hyperparameter_refusal(name, value)
            if reason is not None:
                raise ValueError(
                    f"{argument}={getattr(arguments, argument)!r} is not allowed, because it sets the hyperparameter"
                    f" {name}={value!r}: {reason}"
                )


def check_script_mode(arguments: Arguments, code: SourceCode) -> None:
    """Refuse a local script of legacy mode, unless the arguments ask for script mode.

    Raises:
        ValueError: The script would do nothing.
    """
    script = code.local_script
    if arguments.py_version is not None or arguments.script_mode or script is None or script.suffix != ".py":
        return
    reason = legacy_refusal(code.entry_point, script.read_text(errors="replace"))
    if reason is not None:
        raise ValueError(f"entry_point={arguments.entry_point!r}: {reason}")


def check_options(callee: str, given: Mapping[str, Any], known: Any) -> None:
    """Refuse keywords that a callable does not have; a dictionary with types checks nothing when it is called.

    Args:
        callee: Name of the callable.
        given: The keywords.
        known: The `TypedDict` of its options.

    Raises:
        TypeError: A keyword is unknown.
    """
    unknown = sorted(given.keys() - known.__annotations__.keys())
    if unknown:
        near = difflib.get_close_matches(unknown[0], known.__annotations__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; options are {', '.join(known.__annotations__)}"
        raise TypeError(f"{callee}() got an argument {unknown[0]!r} that it does not know{hint}")


def in_order(*names: str) -> Callable[[F], F]:
    """Let a method take its arguments by position in the order of AWS's SDK, which its own signature does not have.

    Options that are described once (`TypedDict`) can only be keywords in a signature.

    Args:
        *names: Names of arguments, in that order.

    Returns:
        A decorator. The signature that the method shows stays; the attribute ``order`` has the names.
    """

    def decorate(method: F) -> F:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names, args, strict=False))
            if len(args) > len(names):
                raise TypeError(
                    f"{method.__qualname__}() takes at most {len(names)} arguments by position, but {len(args)} were"
                    f" given: {', '.join(names)}"
                )
            if twice := sorted(given.keys() & kwargs.keys()):
                raise TypeError(f"{method.__qualname__}() got {twice[0]!r} by position and by keyword")
            return method(self, **given, **kwargs)

        call.order = names  # type: ignore[attr-defined] - functions have attributes
        return call  # type: ignore[return-value] - it takes more than the method

    return decorate


def present(**members: Any) -> dict[str, Any]:
    """Return the members of a request that have a value."""
    return {name: value for name, value in members.items() if value is not None}


def tags_of(tags: Any) -> list[dict[str, str]] | None:
    """Return tags as a list of ``{"Key": ..., "Value": ...}``, from such a list or from a dictionary.

    Args:
        tags: A list, a dictionary or None.

    Returns:
        None for None.
    """
    if tags is None:
        return None
    if isinstance(tags, Mapping):
        return [{"Key": str(key), "Value": str(value)} for key, value in tags.items()]
    return [dict(tag) for tag in tags]


def _refuse_unknown(today: dict[str, Any]) -> None:
    known = {each.name for each in fields(Arguments)}
    for name in list(today):
        if name in _WITHOUT_EFFECT:
            del today[name]
        elif name not in known:
            near = difflib.get_close_matches(name, sorted(known | set(DEPRECATED_ALIASES)), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"TensorFlow() got an argument {name!r} that it does not know{hint}")


def _check_mode(arguments: Arguments) -> None:
    python = arguments.py_version
    if python is not None and not python.startswith("py3") and python not in ("py2", "py27"):
        raise ValueError(
            f"py_version={python!r} is not a version; expected 'py3', for example 'py311', or 'py27' (TensorFlow 1.15)"
        )
    if arguments.script_mode is False and python is None and arguments.framework_version is None:
        raise ValueError(
            "script_mode=False asks for legacy mode, which ended with TensorFlow 1.12; leave it out or say True"
        )


def _positive(name: str, value: Any) -> None:
    if is_pipeline_variable(value):
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}={value!r} is not allowed; expected a whole number from 1")
