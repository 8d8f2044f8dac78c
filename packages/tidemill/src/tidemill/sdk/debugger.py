"""Settings of SageMaker Debugger and its profiler. tidemill has neither: requests record them, scripts can read them.

Only what a request can hold is here. What would have to run besides the script is refused by name in `tidemill.compat`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.names import DEFAULT_REGION
from tidemill.sdk.arguments import present

_EVALUATOR = f"895741380848.dkr.ecr.{DEFAULT_REGION}.amazonaws.com/sagemaker-debugger-rules:latest"


@dataclass(frozen=True)
class CollectionConfig:
    """Tensors that a library in the script is to save.

    Attributes:
        name: Name of the collection.
        parameters: Settings of the collection.
    """

    name: str
    parameters: Mapping[str, str] | None = None

    def _to_request_dict(self) -> dict[str, Any]:
        return present(CollectionName=self.name, CollectionParameters=self.parameters)


@dataclass(frozen=True)
class DebuggerHookConfig:
    """What a library in the script is to save, sent as ``DebugHookConfig``. Recorded.

    Attributes:
        s3_output_path: S3 prefix of the tensors.
        container_local_output_path: Directory of the tensors inside the job.
        hook_parameters: Settings of the library.
        collection_configs: `CollectionConfig` objects.
    """

    s3_output_path: str | None = None
    container_local_output_path: str | None = None
    hook_parameters: Mapping[str, str] | None = None
    collection_configs: Sequence[CollectionConfig] | None = None

    def _to_request_dict(self) -> dict[str, Any]:
        collections = [each._to_request_dict() for each in self.collection_configs or ()]
        return present(
            S3OutputPath=self.s3_output_path,
            LocalPath=self.container_local_output_path,
            HookParameters=self.hook_parameters,
            CollectionConfigurations=collections or None,
        )


@dataclass(frozen=True)
class TensorBoardOutputConfig:
    """Where files for TensorBoard are copied while a job runs.

    Attributes:
        s3_output_path: S3 prefix of the files.
        container_local_output_path: Directory inside the job. Default: ``/opt/ml/output/tensorboard``.
    """

    s3_output_path: str
    container_local_output_path: str | None = None

    def _to_request_dict(self) -> dict[str, Any]:
        return present(S3OutputPath=self.s3_output_path, LocalPath=self.container_local_output_path)


@dataclass(frozen=True)
class ProfilerConfig:
    """Settings of the profiler, sent as ``ProfilerConfig``. Recorded: there is no profiler.

    Attributes:
        s3_output_path: S3 prefix of the profiles.
        system_monitor_interval_millis: Interval of measurements in milliseconds.
        framework_profile_params: Refused: TensorFlow's own profiler writes what TensorBoard shows.
        disable_profiler: Whether there is no profiler.

    Raises:
        ValueError: ``framework_profile_params`` is given.
    """

    s3_output_path: str | None = None
    system_monitor_interval_millis: int | None = None
    framework_profile_params: Any = None
    disable_profiler: bool | None = None

    def __post_init__(self) -> None:
        refuse_arguments("ProfilerConfig", framework_profile_params=self.framework_profile_params)

    def _to_request_dict(self) -> dict[str, Any]:
        return present(
            S3OutputPath=self.s3_output_path,
            ProfilingIntervalInMilliseconds=self.system_monitor_interval_millis,
            DisableProfiler=self.disable_profiler,
        )


@dataclass(frozen=True)
class _BuiltInRule:
    """A built-in rule. Recorded: none is evaluated.

    Attributes:
        name: Name of the rule in the request.
        parameters: Settings of the rule.
        s3_output_path: S3 prefix of its output.
        container_local_output_path: Directory of its output.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    s3_output_path: str | None = None
    container_local_output_path: str | None = None

    @classmethod
    def sagemaker(
        cls,
        base_config: Mapping[str, Any],
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        rule_parameters: Mapping[str, str] | None = None,
        **others: Any,
    ) -> Self:
        """Return a built-in rule.

        Args:
            base_config: What a function of `rule_configs` returned.
            name: Name of the rule in the request. Default: that of the configuration.
            container_local_output_path: Directory of its output.
            s3_output_path: S3 prefix of its output.
            rule_parameters: Settings that replace those of the configuration.
            **others: Further arguments of AWS's method, e.g. ``actions``. Ignored: no rule is evaluated.

        Returns:
            The rule.
        """
        del others
        known = base_config["RuleParameters"]
        name = name or base_config["RuleConfigurationName"]
        return cls(name, {**known, **(rule_parameters or {})}, s3_output_path, container_local_output_path)

    def _member(self) -> dict[str, Any]:
        return present(
            RuleConfigurationName=self.name,
            RuleEvaluatorImage=_EVALUATOR,
            RuleParameters=dict(self.parameters),
            S3OutputPath=self.s3_output_path,
            LocalPath=self.container_local_output_path,
        )


class Rule(_BuiltInRule):
    """A built-in rule, sent as a member of ``DebugRuleConfigurations``. Recorded: none is evaluated."""

    def to_debugger_rule_config_dict(self) -> dict[str, Any]:
        """Return the member of the request.

        Returns:
            The member in the API's form.
        """
        return self._member()


class ProfilerRule(_BuiltInRule):
    """A built-in rule of the profiler, sent as a member of ``ProfilerRuleConfigurations``. Recorded."""

    def to_profiler_rule_config_dict(self) -> dict[str, Any]:
        """Return the member of the request.

        Returns:
            The member in the API's form.
        """
        return self._member()


_ACTIONS = ("ActionList", "Email", "SMS", "StopTraining")


class _Action:
    """What AWS does when a rule is violated, for the ``actions`` of `Rule.sagemaker`. Without effect, as rules are."""

    def __init__(self, name: str, *given: Any, **named: Any) -> None:
        self.name, self.given, self.named = name, given, named


class _RuleConfigs:
    """Configurations of built-in rules: ``rule_configs.loss_not_decreasing()``, ``rule_configs.ProfilerReport()``."""

    def __getattr__(self, rule: str) -> Any:
        if rule.startswith("_"):
            raise AttributeError(rule)
        if rule in _ACTIONS:
            return partial(_Action, rule)
        name = rule if rule[0].isupper() else "".join(word.capitalize() for word in rule.split("_"))

        def configure(**parameters: Any) -> dict[str, Any]:
            texts = {key: str(value) for key, value in parameters.items()}
            return {"RuleConfigurationName": name, "RuleParameters": {"rule_to_invoke": name, **texts}}

        return configure


rule_configs = _RuleConfigs()
"""Functions that return the configuration of a built-in rule, by its name."""
