"""The operations of CloudWatch: metrics from logs of training jobs, of requests, of instances, and put by clients."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.control.custom_metrics import CustomMetric, CustomMetrics
from tidemill.control.endpoints.call_history import CallHistory
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.training.metrics import JobMetric, TrainingMetrics
from tidemill.core.clock import Clock
from tidemill.errors import AwsError
from tidemill.services.cloudwatch.alarms import described, members_of
from tidemill.services.cloudwatch.calls import CallMetrics
from tidemill.services.cloudwatch.data import metric_data
from tidemill.services.cloudwatch.dimensions import DIMENSION, NAMESPACE, MetricSources
from tidemill.services.cloudwatch.putting import puts_of
from tidemill.services.cloudwatch.resources import ResourceMetrics
from tidemill.services.cloudwatch.statistics import Window, combination, statistic
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.wire.exchange import Context

_DATAPOINTS_MAX = 1440
_LISTED_MAX = 500
_JOBS_A_PAGE = 12
"""Number of jobs per page: a job has at most 40 metrics, so the metrics of this many fit into a reply."""
_RECENT_MS = 3 * 3600 * 1000
_CUSTOM = "custom:"
"""Begins the tokens of the pages of ListMetrics that come first: metrics that clients have put."""
_RESOURCES = "resources:"
"""Begins the tokens of the pages that come last: metrics of instances."""
_ALARMS_MAX = 100


class CloudWatchService(Operations):
    """Amazon CloudWatch: metrics of training jobs, endpoints and clients, and alarms without effect.

    Args:
        training: The metrics in the logs of training jobs.
        custom: What clients have put.
        calls: The requests to endpoints.
        clock: Source of time.
    """

    def __init__(
        self,
        training: TrainingMetrics,
        custom: CustomMetrics,
        calls: CallHistory,
        samples: InstanceSamples,
        *,
        region: str,
        clock: Clock,
    ) -> None:
        self._metrics = MetricSources(training, custom, CallMetrics(calls), ResourceMetrics(samples))
        self._region = region
        self._clock = clock

    async def get_metric_data(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await metric_data(self._metrics, request)

    async def get_metric_statistics(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        simple = {name: statistic(name, "statistics") for name in request.get("Statistics", ())}
        extended = {name: statistic(name, "extendedStatistics") for name in request.get("ExtendedStatistics", ())}
        if not simple and not extended:
            raise combination("At least one of the parameters Statistics and ExtendedStatistics must be specified.")
        window = Window.of(request["StartTime"], request["EndTime"], period_s=request["Period"])
        if window.periods > _DATAPOINTS_MAX:
            raise combination(
                f"You have requested up to {window.periods:,} datapoints, which exceeds the limit of"
                f" {_DATAPOINTS_MAX:,}. You may reduce the datapoints requested by increasing Period, or decreasing the"
                " time range."
            )
        by_unit = await self._metrics.points(request, window, unit=request.get("Unit"))
        datapoints: list[dict[str, Any]] = []
        for unit, points in by_unit.items():
            for at_ms, values in await asyncio.to_thread(window.grouped, points):
                shown: dict[str, Any] = {name: compute(values) for name, compute in simple.items()}
                if extended:
                    shown["ExtendedStatistics"] = {name: compute(values) for name, compute in extended.items()}
                datapoints.append({"Timestamp": when(at_ms), **shown, "Unit": unit})
        return {"Label": request["MetricName"], "Datapoints": datapoints}

    async def put_metric_data(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._metrics.custom.put(puts_of(request, now_ms=self._clock.now_ms()))
        return {}

    async def put_metric_alarm(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._metrics.custom.put_alarm(request["AlarmName"], members_of(request))
        return {}

    async def describe_alarms(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        types = request.get("AlarmTypes", ("MetricAlarm",))
        states = (request.get("StateValue", "INSUFFICIENT_DATA"), "INSUFFICIENT_DATA")
        if "MetricAlarm" not in types or len(set(states)) > 1:
            return {"CompositeAlarms": [], "MetricAlarms": []}
        try:
            found, token = await self._metrics.custom.alarms(
                names=request.get("AlarmNames", ()),
                prefix=request.get("AlarmNamePrefix", ""),
                after=request.get("NextToken"),
                limit=request.get("MaxRecords", _ALARMS_MAX),
            )
        except ValueError as error:
            raise AwsError(f"The NextToken is not valid: {error}", code="InvalidNextToken") from error
        shown = [described(record, region=self._region) for record in found]
        answer: dict[str, Any] = {"CompositeAlarms": [], "MetricAlarms": shown}
        return answer | ({"NextToken": token} if token else {})

    async def delete_alarms(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._metrics.custom.delete_alarms(request["AlarmNames"])
        return {}

    async def list_metrics(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        token: str | None = request.get("NextToken")
        try:
            if token is not None and token.startswith(_RESOURCES):
                return await self._of_instances(request, token)
            found: list[dict[str, Any]] = []
            if token is None or token.startswith(_CUSTOM):
                found, after = await self._of_clients(request, token)
                if after is not None:
                    return {"Metrics": found, "NextToken": _CUSTOM + after}
                found += [_of_client(metric) for metric in self._metrics.calls.names() if _fits(metric, request)]
                token = None
            answer = await self._of_jobs(request, token)
            found += answer["Metrics"]
            if "NextToken" not in answer:
                answer = await self._of_instances(request, None)
                found += answer["Metrics"]
        except ValueError as error:
            raise AwsError(f"The NextToken is not valid: {error}", code="InvalidParameterValue") from error
        return {**answer, "Metrics": found}

    async def _of_clients(
        self, request: Mapping[str, Any], token: str | None
    ) -> tuple[list[dict[str, Any]], str | None]:
        after = None if token is None else token.removeprefix(_CUSTOM)
        page, after = await self._metrics.custom.page(after=after, limit=_LISTED_MAX, since_ms=self._since_ms(request))
        return [_of_client(metric) for metric in page if _fits(metric, request)], after

    async def _of_jobs(self, request: Mapping[str, Any], token: str | None) -> dict[str, Any]:
        filters = {each["Name"]: each.get("Value") for each in request.get("Dimensions", ())}
        if request.get("Namespace", NAMESPACE) != NAMESPACE or filters.keys() - {DIMENSION}:
            return {"Metrics": []}
        metrics, since_ms = self._metrics.training, self._since_ms(request)
        name = request.get("MetricName")
        job = filters.get(DIMENSION)
        if job is not None and since_ms is None:
            return {"Metrics": [_wire(each) for each in await metrics.names(job) if name in (None, each.name)]}
        found: list[JobMetric] = []
        after = token
        async for page, after in metrics.pages(jobs=_JOBS_A_PAGE, after=token, ended_after_ms=since_ms):
            found += [each for each in page if name in (None, each.name) and job in (None, each.job)]
            if after is None or len(found) > _LISTED_MAX - _JOBS_A_PAGE * 40:
                break
        return {"Metrics": [_wire(each) for each in found]} | ({"NextToken": after} if after else {})

    async def _of_instances(self, request: Mapping[str, Any], token: str | None) -> dict[str, Any]:
        after = None if token is None else token.removeprefix(_RESOURCES)
        resources = self._metrics.resources
        page, after = await resources.page(request, after=after, since_ms=self._since_ms(request))
        found = [_of_client(metric) for metric in page if _fits(metric, request)]
        return {"Metrics": found} | ({"NextToken": _RESOURCES + after} if after else {})

    def _since_ms(self, request: Mapping[str, Any]) -> int | None:
        return self._clock.now_ms() - _RECENT_MS if "RecentlyActive" in request else None


def _fits(metric: CustomMetric, request: Mapping[str, Any]) -> bool:
    values = dict(metric.dimensions)
    return (
        request.get("Namespace") in (None, metric.namespace)
        and request.get("MetricName") in (None, metric.name)
        and all(
            each["Name"] in values and each.get("Value") in (None, values[each["Name"]])
            for each in request.get("Dimensions", ())
        )
    )


def _of_client(metric: CustomMetric) -> dict[str, Any]:
    dimensions = [{"Name": name, "Value": value} for name, value in metric.dimensions]
    return {"Namespace": metric.namespace, "MetricName": metric.name, "Dimensions": dimensions}


def _wire(metric: JobMetric) -> dict[str, Any]:
    dimensions = [{"Name": DIMENSION, "Value": metric.job}]
    return {"Namespace": NAMESPACE, "MetricName": metric.name, "Dimensions": dimensions}
