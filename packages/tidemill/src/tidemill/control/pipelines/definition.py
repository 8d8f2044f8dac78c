"""Parse and check a pipeline definition, the JSON text that AWS's SDK writes (schema version 2020-12-01)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn

from tidemill.control.pipelines.conditions import check_condition
from tidemill.control.pipelines.expressions import Get, Unresolved, found_in
from tidemill.control.pipelines.parameters import ParameterDefinition, parse_parameters
from tidemill.control.pipelines.repetition import StepRetry, parse_caching, parse_retries
from tidemill.control.pipelines.step_types import JOBS, REFUSED_TYPES, STEP_TYPES
from tidemill.errors import ValidationException

VARIABLES = (
    "PipelineName",
    "PipelineArn",
    "PipelineExecutionId",
    "PipelineExecutionArn",
    "StartDateTime",
    "CurrentDateTime",
    "TrainingJobName",
    "ProcessingJobName",
)
"""The variables that `Execution.NAME` reads. The last two are the name of the step's own job."""

_VERSION = "2020-12-01"
_MOST_STEPS = 50
_STEP_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MEMBERS = ("Version", "Metadata", "Parameters", "PipelineExperimentConfig", "Steps")
_STEP_MEMBERS = (
    *("Name", "Type", "Arguments", "DependsOn", "DisplayName", "Description"),
    *("CacheConfig", "RetryPolicies", "PropertyFiles"),
)


@dataclass(frozen=True, slots=True)
class PropertyFile:
    """A JSON file in an output of a Processing step.

    Attributes:
        output: OutputName.
        path: Path of the file in the output.
    """

    output: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """One step.

    Attributes:
        name: Unique in the definition.
        type: One of `STEP_TYPES`.
        arguments: Its arguments, with expressions; those of a Condition without its branches.
        after: Names of the steps that must have succeeded before.
        condition: Name of the Condition step in whose branch it is; empty outside of branches.
        branch: Outcome of that condition with which the step is executed: ``True`` or ``False``.
        caching: Age in seconds up to which the result of an earlier execution is reused; None for never.
        retries: When it is tried again.
        files: Its property files by name.
        display_name: StepDisplayName.
        description: StepDescription.
    """

    name: str
    type: str
    arguments: Mapping[str, Any]
    after: frozenset[str]
    condition: str = ""
    branch: str = ""
    caching: float | None = None
    retries: tuple[StepRetry, ...] = ()
    files: Mapping[str, PropertyFile]
    display_name: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineDefinition:
    """A checked definition.

    Attributes:
        parameters: By name.
        steps: By name, each after those that it needs.
        experiment: Expressions of the names of experiment and trial; empty without PipelineExperimentConfig.
    """

    parameters: Mapping[str, ParameterDefinition]
    steps: Mapping[str, StepDefinition]
    experiment: tuple[Any, ...]


def parse_definition(text: str) -> PipelineDefinition:
    """Return a definition after checking it.

    Args:
        text: The JSON text.

    Raises:
        ValidationException: It is no JSON, has a member, a type of step or a reference that does not exist, or a cycle.
    """
    try:
        return _parsed(json.loads(text, parse_constant=_no_number))
    except ValueError as error:
        _refuse("", text[:80], f"it is not JSON: {error}")
    except RecursionError:
        _refuse("", text[:80], "its values are nested too deep")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _parsed(document: Any) -> PipelineDefinition:
    _check_members(document, _MEMBERS, "")
    if document.get("Version") != _VERSION:
        _refuse("version", document.get("Version"), f"this service reads {_VERSION}")
    parameters = parse_parameters(document.get("Parameters") or [])
    steps = list(_steps(document.get("Steps"), "steps"))
    if not 1 <= len(steps) <= _MOST_STEPS:
        _refuse("steps", f"{len(steps)} steps", f"a pipeline has 1 to {_MOST_STEPS}")
    by_name: dict[str, StepDefinition] = {}
    for step in steps:
        if step.name in by_name:
            _refuse("steps", step.name, "names of steps are unique, also across branches; rename one of them")
        by_name[step.name] = step
    for step in steps:
        _check_references(step, by_name, parameters)
    experiment = _experiment(document.get("PipelineExperimentConfig"), parameters)
    return PipelineDefinition(parameters=parameters, steps=_sorted(by_name), experiment=experiment)


def _refuse(at: str, value: object, reason: str) -> NoReturn:
    member = f"pipelineDefinition.{at}".rstrip(".")
    raise ValidationException(f"Value {value!r} at '{member}' is not allowed: {reason}")


def _check_members(value: Any, allowed: Sequence[str], at: str) -> None:
    if not isinstance(value, dict):
        _refuse(at, value, "an object is expected")
    for name in value:
        # AWS's SDK v3 sends null for what a pipeline does not have, e.g. MlflowConfig.
        if name not in allowed and value[name] is not None:
            _refuse(f"{at}.{name}".strip("."), value[name], f"members here are {', '.join(allowed)}")


def _steps(found: Any, at: str, condition: str = "", branch: str = "") -> Iterator[StepDefinition]:
    """Yield the steps of a list, and those in the branches of its conditions."""
    if not isinstance(found, list):
        _refuse(at, found, "a list of steps is expected")
    for index, each in enumerate(found, start=1):
        here = f"{at}.{index}.member"
        step = _step(each, here, condition, branch)
        yield step
        if step.type == "Condition":
            for member, outcome in (("ifSteps", "True"), ("elseSteps", "False")):
                branches = each["Arguments"].get(f"{member[0].upper()}{member[1:]}") or []
                yield from _steps(branches, f"{here}.arguments.{member}", step.name, outcome)


def _step(value: Any, at: str, condition: str, branch: str) -> StepDefinition:
    name, kind = (value.get(each) if isinstance(value, dict) else None for each in ("Name", "Type"))
    if not isinstance(name, str) or not _STEP_NAME.fullmatch(name):
        _refuse(f"{at}.name", name, "a name has 1 to 64 letters, digits, '-' and '_'")
    if kind not in STEP_TYPES:
        reason = REFUSED_TYPES.get(str(kind), "it is no type of step of SageMaker")
        _refuse(f"{at}.type", kind, f"{reason}. The step {name!r} can be one of {', '.join(STEP_TYPES)}")
    _check_members(value, _STEP_MEMBERS, at)
    for member in ("DependsOn", "RetryPolicies", "PropertyFiles"):
        if not isinstance(value.get(member) or [], list):
            _refuse(f"{at}.{member[0].lower()}{member[1:]}", value[member], "a list is expected")
    arguments, depends_on = value.get("Arguments"), value.get("DependsOn") or []
    if not isinstance(arguments, dict):
        _refuse(f"{at}.arguments", arguments, "an object is expected")
    if not all(isinstance(each, str) for each in depends_on):
        why = "each is the name of a step, which must have succeeded; other outcomes cannot begin a step (Trigger) here"
        _refuse(f"{at}.dependsOn", depends_on, why)
    try:
        own = _own_arguments(kind, arguments)
        read = {path.name for path in found_in(own) if path.root == "Steps"}
        caching = parse_caching(value.get("CacheConfig"), allowed=kind in JOBS and bool(JOBS[kind].compared))
        retries = parse_retries(value.get("RetryPolicies") or [], allowed=kind in JOBS)
        files = _files(value.get("PropertyFiles") or [], kind)
    except Unresolved as error:
        _refuse(at, name, str(error))
    return StepDefinition(
        name=name,
        type=kind,
        arguments=own,
        after=frozenset({*depends_on, *read, *filter(None, [condition])}),
        condition=condition,
        branch=branch,
        caching=caching,
        retries=retries,
        files=files,
        display_name=str(value.get("DisplayName") or ""),
        description=str(value.get("Description") or ""),
    )


def _own_arguments(kind: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a step without the steps of its branches.

    Raises:
        Unresolved: The arguments of a Condition or Fail step are malformed.
    """
    if kind == "Condition":
        conditions = arguments.get("Conditions")
        if not isinstance(conditions, list) or not conditions:
            raise Unresolved(f"Conditions is a list of at least one condition; got {conditions!r}")
        for each in conditions:
            check_condition(each)
        return {"Conditions": conditions}
    if kind == "Fail" and arguments.keys() - {"ErrorMessage"}:
        raise Unresolved(f"a Fail step has the argument ErrorMessage; got {', '.join(arguments)}")
    return arguments


def _files(values: Any, kind: str) -> dict[str, PropertyFile]:
    members = ("PropertyFileName", "OutputName", "FilePath")
    if values and kind != "Processing":
        raise Unresolved("only Processing steps have PropertyFiles, because they are files in the outputs of a job")
    found = {}
    for each in values:
        if not isinstance(each, dict) or set(each) != set(members):
            raise Unresolved(f"an element of PropertyFiles has {', '.join(members)}; got {each!r}")
        name, output, path = (str(each[member]) for member in members)
        found[name] = PropertyFile(output, path)
    return found


def _experiment(value: Any, parameters: Mapping[str, ParameterDefinition]) -> tuple[Any, ...]:
    """Return the expressions of ExperimentName and TrialName."""
    if not value:
        return ()
    _check_members(value, ("ExperimentName", "TrialName"), "pipelineExperimentConfig")
    names = (value.get("ExperimentName"), value.get("TrialName"))
    try:
        for path in found_in(list(names)):
            if path.root == "Steps":
                raise Unresolved(f"{path} cannot be read before the first step")
            _check_outside(path, parameters)
    except Unresolved as error:
        _refuse("pipelineExperimentConfig", value, str(error))
    return names if all(names) else ()


def _check_references(
    step: StepDefinition, steps: Mapping[str, StepDefinition], parameters: Mapping[str, ParameterDefinition]
) -> None:
    at = f"steps.{step.name}"
    for name in sorted(step.after):
        if name not in steps:
            _refuse(at, name, f"there is no step of this name; steps are {', '.join(steps)}")
    try:
        for path in found_in(step.arguments):
            if path.root != "Steps":
                _check_outside(path, parameters)
            elif path.file and path.file not in steps[path.name].files:
                present = ", ".join(steps[path.name].files) or "none"
                raise Unresolved(f"the step {path.name!r} has no property file {path.file!r}; it has {present}")
    except Unresolved as error:
        _refuse(at, step.name, str(error))


def _check_outside(path: Get, parameters: Mapping[str, ParameterDefinition]) -> None:
    """Check a path to a parameter or a variable of the execution."""
    names = tuple(parameters) if path.root == "Parameters" else VARIABLES
    if path.name not in names:
        raise Unresolved(f"{path} does not exist; {path.root} has {', '.join(names) or 'nothing'}")


def _sorted(steps: Mapping[str, StepDefinition]) -> dict[str, StepDefinition]:
    """Return the steps, each after those that it needs, otherwise in their order."""
    try:
        order = list(TopologicalSorter({name: sorted(step.after) for name, step in steps.items()}).static_order())
    except CycleError as error:
        # graphlib names a step before those that need it; a reader expects the reverse.
        names = " needs ".join(reversed(error.args[1]))
        _refuse("steps", error.args[1][0], f"a step cannot need itself, directly or through others: {names}")
    return {name: steps[name] for name in order}
