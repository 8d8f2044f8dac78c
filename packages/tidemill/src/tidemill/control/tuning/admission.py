"""Check a CreateHyperParameterTuningJob request beyond AWS's model and the table of refused members.

The requests of its trainings are checked as those of CreateTrainingJob, so that a tuning job whose trainings could not
run is refused and does not fail later.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.control.admission import refusal
from tidemill.control.tuning.completion import LARGEST_TUNING
from tidemill.control.tuning.definition import OBJECTIVE_HYPERPARAMETER, Definition
from tidemill.control.tuning.search import grid_points

_KINDS = ("IntegerParameterRanges", "ContinuousParameterRanges", "CategoricalParameterRanges", "AutoParameters")
_INTEGERS = 2**53


def check_tuning_request(request: Mapping[str, Any]) -> None:
    """Refuse a request whose members do not fit together.

    Args:
        request: The members of CreateHyperParameterTuningJob.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
    """
    config = request["HyperParameterTuningJobConfig"]
    one, several = request.get("TrainingJobDefinition"), request.get("TrainingJobDefinitions") or []
    if (one is None) == (not several):
        given = None if one is None else "given"
        raise refusal("trainingJobDefinition", given, "give it or TrainingJobDefinitions, not both")
    if one is not None and "HyperParameterTuningJobObjective" not in config:
        at = "hyperParameterTuningJobConfig.hyperParameterTuningJobObjective"
        raise refusal(at, None, "an objective is needed: Type and MetricName")
    for number, given in enumerate([one] if one else several, start=1):
        at = "trainingJobDefinition" if one else f"trainingJobDefinitions.{number}.member"
        if ("ResourceConfig" in given) == ("HyperParameterTuningResourceConfig" in given):
            raise refusal(f"{at}.resourceConfig", None, "give it or HyperParameterTuningResourceConfig, not both")
        if one:
            at, ranges = "hyperParameterTuningJobConfig.parameterRanges", config.get("ParameterRanges", {})
        else:
            _check_one_of(several, given, at)
            at, ranges = f"{at}.hyperParameterRanges", given["HyperParameterRanges"]
        _check_ranges(at, ranges, strategy=config["Strategy"])
        _check_names(at, ranges, given.get("StaticHyperParameters", {}))
        if ranges.get("AutoParameters") and "Autotune" not in request:
            raise refusal(f"{at}.autoParameters", ranges["AutoParameters"], "they need Autotune with Mode Enabled")
    _check_strategy(config)
    _check_limits(config)


def check_search(config: Mapping[str, Any], definitions: Sequence[Definition]) -> None:
    """Refuse an objective without MetricDefinition, and a number of trainings that no grid of the request has.

    Args:
        config: ``HyperParameterTuningJobConfig``.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
    """
    for each in definitions:
        metrics = [metric["Name"] for metric in each.given["AlgorithmSpecification"].get("MetricDefinitions", ())]
        if each.metric not in metrics:
            allowed = f"one of {', '.join(metrics)}" if metrics else "the definition has no MetricDefinitions; add some"
            at = "hyperParameterTuningJobConfig.hyperParameterTuningJobObjective.metricName"
            raise refusal(at, each.metric, f"the objective is read from the log by a MetricDefinition: {allowed}")
    given = config["ResourceLimits"].get("MaxNumberOfTrainingJobs")
    if config["Strategy"] == "Grid":
        count = sum(grid_points(each.ranges) for each in definitions)
        at = "hyperParameterTuningJobConfig.resourceLimits.maxNumberOfTrainingJobs"
        if given not in (None, count):
            raise refusal(at, given, f"the grid has {count} combinations; give this number, or leave it out")
        if count > LARGEST_TUNING:
            raise refusal(at, count, f"a grid has at most {LARGEST_TUNING} combinations; give fewer Values")


def _check_one_of(several: Sequence[Mapping[str, Any]], given: Mapping[str, Any], at: str) -> None:
    """Check a definition that is one of several."""
    for member in ("DefinitionName", "TuningObjective", "HyperParameterRanges"):
        if member not in given:
            raise refusal(_inside(at, member), None, f"each of several definitions needs {member}")
    kind, first = given["TuningObjective"]["Type"], several[0]["TuningObjective"]["Type"]
    if kind != first:
        raise refusal(f"{at}.tuningObjective.type", kind, f"all definitions are compared by one Type, {first}")
    name = given["DefinitionName"]
    if sum(each.get("DefinitionName") == name for each in several) > 1:
        raise refusal(f"{at}.definitionName", name, "names of definitions are unique; rename one of them")


def _inside(at: str, member: str) -> str:
    return f"{at}.{member[0].lower()}{member[1:]}"


def _check_ranges(at: str, ranges: Mapping[str, Any], *, strategy: str) -> None:
    if not any(ranges.get(kind) for kind in _KINDS):
        raise refusal(at, None, "nothing is tuned: give at least one range")
    for kind in _KINDS[:2]:
        if strategy == "Grid" and ranges.get(kind):
            why = "a grid has CategoricalParameterRanges only; list the values, or choose another Strategy"
            raise refusal(_inside(at, kind), [each["Name"] for each in ranges[kind]], why)
        for number, each in enumerate(ranges.get(kind, ()), start=1):
            member = f"{_inside(at, kind)}.{number}.member"
            _check_numbers(member, each, number_of=int if kind.startswith("Integer") else float)
    for number, each in enumerate(ranges.get("CategoricalParameterRanges", ()), start=1):
        if len(set(each["Values"])) < len(each["Values"]):
            member = f"{at}.categoricalParameterRanges.{number}.member.values"
            raise refusal(member, each["Values"], "each value once")


def _check_numbers(at: str, given: Mapping[str, str], *, number_of: Callable[[str], float]) -> None:
    ends: dict[str, float] = {}
    for member in ("MinValue", "MaxValue"):
        place = _inside(at, member)
        try:
            ends[member] = number_of(given[member])
        except ValueError as error:
            kind = "an integer" if number_of is int else "a number"
            raise refusal(place, given[member], f"it is not {kind}") from error
        if not math.isfinite(ends[member]) or (number_of is int and abs(ends[member]) > _INTEGERS):
            raise refusal(place, given[member], f"a finite number, and an integer within {_INTEGERS}")
    low, high = ends["MinValue"], ends["MaxValue"]
    if low > high:
        raise refusal(f"{at}.minValue", given["MinValue"], f"at most MaxValue, which is {given['MaxValue']}")
    scale = given.get("ScalingType", "Auto")
    if scale == "Logarithmic" and low <= 0:
        raise refusal(f"{at}.scalingType", scale, "MinValue must be above 0")
    if scale == "ReverseLogarithmic" and (number_of is int or not low >= 0 or not high < 1):
        raise refusal(f"{at}.scalingType", scale, "it is for ContinuousParameterRanges from 0 to below 1")


def _check_names(at: str, ranges: Mapping[str, Any], static: Mapping[str, str]) -> None:
    names = [each["Name"] for kind in _KINDS for each in ranges.get(kind, ())]
    for name in names:
        if names.count(name) > 1:
            raise refusal(at, name, "the hyperparameter has several ranges; give one")
        if name in static:
            raise refusal(at, name, "the hyperparameter is one of StaticHyperParameters, too; leave it out of one")
    if OBJECTIVE_HYPERPARAMETER in names:
        raise refusal(at, OBJECTIVE_HYPERPARAMETER, "the name of the objective is set by the service")


def _check_strategy(config: Mapping[str, Any]) -> None:
    at, strategy = "hyperParameterTuningJobConfig", config["Strategy"]
    hyperband = config.get("StrategyConfig", {}).get("HyperbandStrategyConfig")
    if hyperband is not None and strategy != "Hyperband":
        raise refusal(f"{at}.strategyConfig.hyperbandStrategyConfig", strategy, "it belongs to Strategy Hyperband")
    if hyperband and hyperband.get("MaxResource", math.inf) <= hyperband.get("MinResource", 1):
        member = f"{at}.strategyConfig.hyperbandStrategyConfig.maxResource"
        raise refusal(member, hyperband["MaxResource"], "it must be above MinResource")
    if strategy == "Hyperband" and config.get("TrainingJobEarlyStoppingType", "Off") != "Off":
        member = f"{at}.trainingJobEarlyStoppingType"
        raise refusal(member, config["TrainingJobEarlyStoppingType"], "Hyperband stops trainings itself: give Off")


def _check_limits(config: Mapping[str, Any]) -> None:
    limits = config["ResourceLimits"]
    at, most = "hyperParameterTuningJobConfig.resourceLimits", limits.get("MaxNumberOfTrainingJobs")
    ends = most is not None or "MaxRuntimeInSeconds" in limits or config.get("TuningJobCompletionCriteria")
    if config["Strategy"] != "Grid" and not ends:
        why = "give it, MaxRuntimeInSeconds or TuningJobCompletionCriteria: otherwise the job would not end"
        raise refusal(f"{at}.maxNumberOfTrainingJobs", None, why)
    if most is not None and most > LARGEST_TUNING:
        raise refusal(f"{at}.maxNumberOfTrainingJobs", most, f"at most {LARGEST_TUNING}")
