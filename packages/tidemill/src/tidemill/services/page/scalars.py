"""ListScalars and GetScalars: TensorBoard's scalars of training jobs, also while they run."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.control.scalars.scalars import JobScalars, ScalarSeries, TrainingScalars
from tidemill.errors import ResourceNotFound
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context

_POINTS = 1000
_POINTS_MAX = 100_000
"""Most points of all series in an answer."""
_SHOWN_MAX = 1000
"""Most series in an answer: a job with more has them in several requests of GetScalars, which names them."""


class ScalarOperations(Operations):
    """Shows scalars.

    Args:
        scalars: The scalars of jobs.
    """

    def __init__(self, scalars: TrainingScalars) -> None:
        self._scalars = scalars

    async def list_scalars(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return which scalars there are, with the last value of each."""
        found = await self._of(request, context)
        return {"Scalars": [_summary(each) for each in found.series[:_SHOWN_MAX]], **_state(found)}

    async def get_scalars(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the points of scalars: of those that the request names, or of all."""
        found = await self._of(request, context)
        named = {(each["Run"], each["Tag"]) for each in request.get("Scalars") or ()}
        series = [each for each in found.series if not named or (each.run, each.tag) in named][:_SHOWN_MAX]
        most = min(request.get("MaxPoints", _POINTS), _POINTS_MAX // max(len(series), 1))
        return {"Scalars": await asyncio.to_thread(_shown, series, most), **_state(found)}

    async def _of(self, request: Mapping[str, Any], context: Context) -> JobScalars:
        name = request["TrainingJobName"]
        found = await self._scalars.of(name, may_read=lambda arn: context.permits("s3:GetObject", arn))
        if found is None:
            raise ResourceNotFound(f"Requested resource not found: there is no training job {name!r}")
        return found


def _shown(series: Sequence[ScalarSeries], most: int) -> list[dict[str, Any]]:
    return [_summary(each) | _columns(each, most) for each in series]


def _state(found: JobScalars) -> dict[str, Any]:
    return {"Complete": found.complete, "Damage": list(found.damage)}


def _summary(series: ScalarSeries) -> dict[str, Any]:
    members: dict[str, Any] = {
        "Run": series.run,
        "Tag": series.tag,
        "Count": series.count,
        "NotFinite": series.not_finite,
    }
    if series.points:
        step, time_s, value = series.points[-1]
        members |= {"LastStep": step, "LastTimeMs": round(time_s * 1000), "LastValue": value}
    return members


def _columns(series: ScalarSeries, most: int) -> dict[str, Any]:
    points = downsampled(series.points, most=most)
    return {
        "Steps": [step for step, _, _ in points],
        "TimesMs": [round(time_s * 1000) for _, time_s, _ in points],
        "Values": [value for _, _, value in points],
    }


def downsampled(points: Sequence[tuple[int, float, float]], *, most: int) -> Sequence[tuple[int, float, float]]:
    """Return at most ``most`` points: of each part of the sequence the least and the greatest value, and the last one.

    Args:
        points: In order of time.
        most: At least 3.
    """
    if len(points) <= most:
        return points
    parts = max(1, (most - 1) // 2)
    kept: set[int] = {len(points) - 1}
    for part in range(parts):
        places = range(part * len(points) // parts, (part + 1) * len(points) // parts)
        kept.add(min(places, key=lambda place: points[place][2]))
        kept.add(max(places, key=lambda place: points[place][2]))
    return [points[place] for place in sorted(kept)]
