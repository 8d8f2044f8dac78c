"""Rows of CloudWatch."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows

__all__ = ["OPERATIONS"]

_NAMESPACE = Honored("`/aws/sagemaker/TrainingJobs` has metrics; any other namespace has none")
_DIMENSIONS = Honored("`TrainingJobName` alone names metrics; no others have points")
_PERIOD = Honored("1, 5, 10, 20, 30 or a multiple of 60 seconds")
_UNIT = Honored("the unit of every metric is `None`; there are no points of another one")
_ONE_ACCOUNT = "there is one account; leave it out"
_STATISTICS = "SampleCount, Average, Sum, Minimum, Maximum and percentiles such as p99.9"

OPERATIONS: Mapping[str, Rows] = {
    "GetMetricStatistics": {
        "Namespace": _NAMESPACE,
        "MetricName": Honored(),
        "Dimensions": _DIMENSIONS,
        "Dimensions[].Name": Honored(),
        "Dimensions[].Value": Honored(),
        "StartTime": Honored("rounded down to the minute, or to a Period below a minute"),
        "EndTime": Honored("at most 1,440 periods after StartTime"),
        "Period": _PERIOD,
        "Statistics": Honored("either it or ExtendedStatistics"),
        "ExtendedStatistics": Honored("percentiles such as p99.9; the other kinds are refused"),
        "Unit": _UNIT,
    },
    "GetMetricData": {
        "MetricDataQueries": Honored("at most 500"),
        "MetricDataQueries[].Id": Honored(),
        "MetricDataQueries[].MetricStat": Honored("required"),
        "MetricDataQueries[].MetricStat.Metric": Honored(),
        "MetricDataQueries[].MetricStat.Metric.Namespace": _NAMESPACE,
        "MetricDataQueries[].MetricStat.Metric.MetricName": Honored(),
        "MetricDataQueries[].MetricStat.Metric.Dimensions": _DIMENSIONS,
        "MetricDataQueries[].MetricStat.Metric.Dimensions[].Name": Honored(),
        "MetricDataQueries[].MetricStat.Metric.Dimensions[].Value": Honored(),
        "MetricDataQueries[].MetricStat.Period": _PERIOD,
        "MetricDataQueries[].MetricStat.Stat": Honored(f"{_STATISTICS}; the other kinds are refused"),
        "MetricDataQueries[].MetricStat.Unit": _UNIT,
        "MetricDataQueries[].Expression": Refused("there is no metric math: ask for a MetricStat, and compute with it"),
        "MetricDataQueries[].Label": Honored("unchanged: `${...}` in it is not replaced"),
        "MetricDataQueries[].ReturnData": Honored(),
        "MetricDataQueries[].Period": Recorded("it is for expressions, as on CloudWatch; MetricStat has its own"),
        "MetricDataQueries[].AccountId": Refused(_ONE_ACCOUNT),
        "StartTime": Honored("rounded down to the minute, or to a Period below a minute"),
        "EndTime": Honored(),
        "NextToken": Honored(),
        "ScanBy": Honored(),
        "MaxDatapoints": Honored(),
        "LabelOptions": Recorded("it is for times in labels, which are not replaced"),
    },
    "ListMetrics": {
        "Namespace": _NAMESPACE,
        "MetricName": Honored(),
        "Dimensions": _DIMENSIONS,
        "Dimensions[].Name": Honored(),
        "Dimensions[].Value": Honored(),
        "NextToken": Honored(),
        "RecentlyActive": Honored("metrics of jobs that run, or ended within three hours"),
        "IncludeLinkedAccounts": Refused(_ONE_ACCOUNT),
        "OwningAccount": Refused(_ONE_ACCOUNT),
    },
}
