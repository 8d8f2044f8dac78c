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

__all__ = ["check_search", "check_tuning_request"]

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
    _check_definitions(request, config)
    for at, definition, ranges in _ranges(request, config):
        _check_ranges(at, ranges, strategy=config["Strategy"])
        _check_names(at, ranges, definition.get("StaticHyperParameters", {}))
        if ranges.get("AutoParameters") and "Autotune" not in request:
            raise refusal(f"{at}.autoParameters", ranges["AutoParameters"], "they need Autotune with Mode Enabled")
    _check_strategy(config)
    _check_limits(config)


def check_search(config: Mapping[str, Any], definitions: Sequence[Definition]) -> None:
    """Refuse an objective without MetricDefinition, and a number of trainings that no grid of the request has.

    Args:
        config: ``HyperParameterTuningJobConfig``.
        definitions: The definitions.

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


def _check_definitions(request: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    one, several = request.get("TrainingJobDefinition"), request.get("TrainingJobDefinitions") or []
    if (one is None) == (not several):
        raise refusal(
            "trainingJobDefinition", None if one is None else "given", "give it or TrainingJobDefinitions, not both"
        )
    if one is not None and "HyperParameterTuningJobObjective" not in config:
        at = "hyperParameterTuningJobConfig.hyperParameterTuningJobObjective"
        raise refusal(at, None, "an objective is needed: Type and MetricName")
    for number, given in enumerate(several, start=1):
        at = f"trainingJobDefinitions.{number}.member"
        for member in ("DefinitionName", "TuningObjective", "HyperParameterRanges"):
            if member not in given:
                why = f"each of several definitions needs {member}"
                raise refusal(f"{at}.{member[0].lower()}{member[1:]}", None, why)
        if given["TuningObjective"]["Type"] != several[0]["TuningObjective"]["Type"]:
            why = f"all definitions are compared by one Type, {several[0]['TuningObjective']['Type']}"
            raise refusal(f"{at}.tuningObjective.type", given["TuningObjective"]["Type"], why)
    names = [given["DefinitionName"] for given in several]
    for number, name in enumerate(names, start=1):
        if names.count(name) > 1:
            at = f"trainingJobDefinitions.{number}.member.definitionName"
            raise refusal(at, name, "names of definitions are unique; rename one of them")
    for number, given in enumerate([one] if one else several, start=1):
        at = "trainingJobDefinition" if one else f"trainingJobDefinitions.{number}.member"
        if ("ResourceConfig" in given) == ("HyperParameterTuningResourceConfig" in given):
            raise refusal(f"{at}.resourceConfig", None, "give it or HyperParameterTuningResourceConfig, not both")


def _ranges(
    request: Mapping[str, Any], config: Mapping[str, Any]
) -> list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
    """Return the place, the definition and the ranges of each definition."""
    if "TrainingJobDefinition" in request:
        at = "hyperParameterTuningJobConfig.parameterRanges"
        return [(at, request["TrainingJobDefinition"], config.get("ParameterRanges", {}))]
    return [
        (f"trainingJobDefinitions.{number}.member.hyperParameterRanges", given, given["HyperParameterRanges"])
        for number, given in enumerate(request["TrainingJobDefinitions"], start=1)
    ]


def _check_ranges(at: str, ranges: Mapping[str, Any], *, strategy: str) -> None:
    if not any(ranges.get(kind) for kind in _KINDS):
        raise refusal(at, None, "nothing is tuned: give at least one range")
    for kind in _KINDS[:2]:
        if strategy == "Grid" and ranges.get(kind):
            why = "a grid has CategoricalParameterRanges only; list the values, or choose another Strategy"
            raise refusal(f"{at}.{kind[0].lower()}{kind[1:]}", [each["Name"] for each in ranges[kind]], why)
        for number, each in enumerate(ranges.get(kind, ()), start=1):
            member = f"{at}.{kind[0].lower()}{kind[1:]}.{number}.member"
            _check_numbers(member, each, number_of=int if kind.startswith("Integer") else float)
    for number, each in enumerate(ranges.get("CategoricalParameterRanges", ()), start=1):
        if len(set(each["Values"])) < len(each["Values"]):
            member = f"{at}.categoricalParameterRanges.{number}.member.values"
            raise refusal(member, each["Values"], "each value once")


def _check_numbers(at: str, given: Mapping[str, str], *, number_of: Callable[[str], float]) -> None:
    ends: dict[str, float] = {}
    for member in ("MinValue", "MaxValue"):
        place = f"{at}.{member[0].lower()}{member[1:]}"
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
