"""Experiments, their trials, and trial components, which have the parameters, artifacts and metrics of one run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tidemill.core.documents import Document


class Parent(NamedTuple):
    """A trial of a trial component, and the trial's experiment."""

    trial: str
    experiment: str


class MetricPoint(NamedTuple):
    """One value of a metric.

    Attributes:
        at_ms: Milliseconds since the epoch.
        step: Number of the iteration; None if it was not given.
    """

    at_ms: int
    value: float
    step: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked(Document):
    """An experiment or a trial.

    Attributes:
        members: The members that describe it, by botocore's names, without its name.
        created_by: ARN of the caller who created it.
        modified_by: ARN of the caller who updated it last; empty if nobody has.
        children: Number of trials of an experiment, or of components of a trial. It can be deleted without them only.
    """

    name: str
    arn: str
    members: Mapping[str, Any]
    created_ms: int
    created_by: str
    modified_by: str = ""
    children: int = 0

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show."""
        shown = ("DisplayName", "ExperimentName")
        return {"arn": self.arn, "shown": {name: self.members[name] for name in shown if name in self.members}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialComponent(Document):
    """A trial component: of a job, or of a run that a script tracks itself.

    Attributes:
        members: The members that describe it, by botocore's names, without its name. Times are in milliseconds since
            the epoch.
        source: ``{"SourceArn": ..., "SourceType": ...}`` of its job; empty without one.
        sources: ARNs of the jobs that were created within its run.
        parents: The trials that it is associated with.
        metrics: Statistics by the metric's name: ``count``, ``min``, ``max``, ``mean``, ``m2`` (the sum of the squared
            differences from the mean), ``last`` and ``at_ms``. A metric of a log that could not be read whole has only
            the last two.
        blocks: The blocks of values that clients have put, by the metric's name: number, first and last time of each.
    """

    name: str
    arn: str
    members: Mapping[str, Any]
    created_ms: int
    created_by: str
    modified_by: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    parents: tuple[Parent, ...] = ()
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    blocks: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show, and by which they are filtered."""
        shown = ("DisplayName", "Status", "StartTime", "EndTime")
        return {
            "arn": self.arn,
            "shown": {name: self.members[name] for name in shown if name in self.members},
            "created_by": self.created_by,
            "modified_by": self.modified_by,
            "source": dict(self.source),
            "sources": list(self.sources),
            "parents": [list(parent) for parent in self.parents],
        }

    def updated(self, request: Mapping[str, Any]) -> "TrialComponent":
        """Return the component after an update.

        Args:
            request: The members of UpdateTrialComponent. Entries of maps are added to those that it has, then those to
                remove are removed.
        """
        members = dict(self.members)
        members |= {
            name: request[name] for name in ("DisplayName", "Status", "StartTime", "EndTime") if name in request
        }
        for name in ("Parameters", "InputArtifacts", "OutputArtifacts"):
            removed = set(request.get(f"{name}ToRemove", ()))
            merged = {**members.get(name, {}), **request.get(name, {})}
            members[name] = {key: value for key, value in merged.items() if key not in removed}
        return replace(self, members=members)


def with_points(statistics: Mapping[str, float] | None, points: Iterable[MetricPoint]) -> dict[str, float]:
    """Return the statistics of a metric with further points.

    Args:
        statistics: Those so far, as in `TrialComponent.metrics`; None before the first point.
    """
    found = dict(statistics or {})
    for point in points:
        value = point.value
        count = int(found.get("count", 0)) + 1
        mean = found.get("mean", 0.0)
        moved = mean + (value - mean) / count
        found |= {
            "count": count,
            "mean": moved,
            "m2": found.get("m2", 0.0) + (value - mean) * (value - moved),
            "min": min(value, found.get("min", value)),
            "max": max(value, found.get("max", value)),
        }
        if point.at_ms >= found.get("at_ms", 0):
            found |= {"last": value, "at_ms": point.at_ms}
    return found


def joined_statistics(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return the statistics of a metric from those of two sets of points.

    Args:
        one: As in `TrialComponent.metrics`; empty for no points.
        other: As ``one``.
    """
    latest = max(one, other, key=lambda each: each.get("at_ms", -1))
    found = [each for each in (one, other) if "count" in each]
    if len(found) < 2:
        return {**(found[0] if found else {}), **{name: latest[name] for name in ("last", "at_ms") if name in latest}}
    first, second = found
    count = first["count"] + second["count"]
    apart = second["mean"] - first["mean"]
    return {
        "count": count,
        "mean": first["mean"] + apart * second["count"] / count,
        "m2": first["m2"] + second["m2"] + apart**2 * first["count"] * second["count"] / count,
        "min": min(first["min"], second["min"]),
        "max": max(first["max"], second["max"]),
        "last": latest["last"],
        "at_ms": latest["at_ms"],
    }
