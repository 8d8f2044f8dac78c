"""Rows of CloudWatch."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Rows

__all__ = ["OPERATIONS"]

_NAMESPACE = Honoured("`/aws/sagemaker/TrainingJobs` has metrics; any other namespace has none")
_DIMENSIONS = Honoured("`TrainingJobName` alone names metrics; no others have points")
_PERIOD = Honoured("1, 5, 10, 20, 30 or a multiple of 60 seconds")
_UNIT = Honoured("the unit of every metric is `None`; there are no points of another one")
_ONE_ACCOUNT = "there is one account; leave it out"
_STATISTICS = "SampleCount, Average, Sum, Minimum, Maximum and percentiles such as p99.9"

OPERATIONS: Mapping[str, Rows] = {
    "GetMetricStatistics": {
        "Namespace": _NAMESPACE,
        "MetricName": Honoured(),
        "Dimensions": _DIMENSIONS,
        "Dimensions[].Name": Honoured(),
        "Dimensions[].Value": Honoured(),
        "StartTime": Honoured("rounded down to the minute, or to a Period below a minute"),
        "EndTime": Honoured("at most 1,440 periods after StartTime"),
        "Period": _PERIOD,
        "Statistics": Honoured("either it or ExtendedStatistics"),
        "ExtendedStatistics": Honoured("percentiles such as p99.9; the other kinds are refused"),
        "Unit": _UNIT,
    },
    "GetMetricData": {
        "MetricDataQueries": Honoured("at most 500"),
        "MetricDataQueries[].Id": Honoured(),
        "MetricDataQueries[].MetricStat": Honoured("required"),
        "MetricDataQueries[].MetricStat.Metric": Honoured(),
        "MetricDataQueries[].MetricStat.Metric.Namespace": _NAMESPACE,
        "MetricDataQueries[].MetricStat.Metric.MetricName": Honoured(),
        "MetricDataQueries[].MetricStat.Metric.Dimensions": _DIMENSIONS,
        "MetricDataQueries[].MetricStat.Metric.Dimensions[].Name": Honoured(),
        "MetricDataQueries[].MetricStat.Metric.Dimensions[].Value": Honoured(),
        "MetricDataQueries[].MetricStat.Period": _PERIOD,
        "MetricDataQueries[].MetricStat.Stat": Honoured(f"{_STATISTICS}; the other kinds are refused"),
        "MetricDataQueries[].MetricStat.Unit": _UNIT,
        "MetricDataQueries[].Expression": Refused("there is no metric math: ask for a MetricStat, and compute with it"),
        "MetricDataQueries[].Label": Honoured("unchanged: `${...}` in it is not replaced"),
        "MetricDataQueries[].ReturnData": Honoured(),
        "MetricDataQueries[].Period": Recorded("it is for expressions, as on CloudWatch; MetricStat has its own"),
        "MetricDataQueries[].AccountId": Refused(_ONE_ACCOUNT),
        "StartTime": Honoured("rounded down to the minute, or to a Period below a minute"),
        "EndTime": Honoured(),
        "NextToken": Honoured(),
        "ScanBy": Honoured(),
        "MaxDatapoints": Honoured(),
        "LabelOptions": Recorded("it is for times in labels, which are not replaced"),
    },
    "ListMetrics": {
        "Namespace": _NAMESPACE,
        "MetricName": Honoured(),
        "Dimensions": _DIMENSIONS,
        "Dimensions[].Name": Honoured(),
        "Dimensions[].Value": Honoured(),
        "NextToken": Honoured(),
        "RecentlyActive": Honoured("metrics of jobs that run, or ended within three hours"),
        "IncludeLinkedAccounts": Refused(_ONE_ACCOUNT),
        "OwningAccount": Refused(_ONE_ACCOUNT),
    },
}
