"""Rows of CloudWatch."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, honored

_NAMESPACE = Honored(
    "`/aws/sagemaker/TrainingJobs` has the metrics of training jobs, and CPUUtilization, MemoryUtilization,"
    " DiskUtilization, GPUUtilization and GPUMemoryUtilization of their instances, as do"
    " `/aws/sagemaker/ProcessingJobs`, `/aws/sagemaker/TransformJobs` and `/aws/sagemaker/Endpoints`"
)
_DIMENSIONS = Honored(
    "all dimensions of the metric: `TrainingJobName` alone for those of training jobs; for those of instances `Host`,"
    " e.g. `JOB/algo-1`, or `EndpointName` and `VariantName`"
)
_PERIOD = Honored("1, 5, 10, 20, 30 or a multiple of 60 seconds")
_UNIT = Honored("the unit of the metrics of training jobs is `None`, of those of instances `Percent`")
_NOT_EVALUATED = Recorded("alarms are kept and shown, never evaluated: the state is INSUFFICIENT_DATA")
_ONE_ACCOUNT = "there is one account; leave it out"
_STATISTICS = "SampleCount, Average, Sum, Minimum, Maximum and percentiles such as p99.9"
_OF_ALARMS = (
    *("AlarmName", "AlarmDescription", "ActionsEnabled", "OKActions", "AlarmActions"),
    *("InsufficientDataActions", "MetricName", "Namespace", "Statistic", "ExtendedStatistic", "Dimensions"),
    *("Period", "Unit", "EvaluationPeriods", "DatapointsToAlarm", "Threshold", "ComparisonOperator"),
    *("TreatMissingData", "EvaluateLowSampleCountPercentile", "Metrics", "Tags", "ThresholdMetricId"),
    *("EvaluationWindow", "WarmUpConfiguration", "EvaluationCriteria", "EvaluationInterval", "ActionConfiguration"),
)

OPERATIONS: Mapping[str, Rows] = {
    "GetMetricStatistics": {
        "Namespace": _NAMESPACE,
        "MetricName": Honored(),
        "Dimensions": _DIMENSIONS,
        **honored("Dimensions[].Name", "Dimensions[].Value"),
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
        **honored("MetricDataQueries[].MetricStat.Metric.Dimensions[].Name"),
        **honored("MetricDataQueries[].MetricStat.Metric.Dimensions[].Value"),
        "MetricDataQueries[].MetricStat.Period": _PERIOD,
        "MetricDataQueries[].MetricStat.Stat": Honored(f"{_STATISTICS}; the other kinds are refused"),
        "MetricDataQueries[].MetricStat.Unit": _UNIT,
        "MetricDataQueries[].Expression": Refused("there is no metric math: ask for a MetricStat, and compute with it"),
        "MetricDataQueries[].Label": Honored("unchanged: `${...}` in it is not replaced"),
        "MetricDataQueries[].ReturnData": Honored(),
        "MetricDataQueries[].Period": Recorded("it is for expressions, as on CloudWatch; MetricStat has its own"),
        "MetricDataQueries[].AccountId": Refused(_ONE_ACCOUNT),
        "StartTime": Honored("rounded down to the minute, or to a Period below a minute"),
        **honored("EndTime", "NextToken", "ScanBy", "MaxDatapoints"),
        "LabelOptions": Recorded("it is for times in labels, which are not replaced"),
    },
    "ListMetrics": {
        "Namespace": _NAMESPACE,
        **honored("MetricName", "Dimensions", "Dimensions[].Name", "Dimensions[].Value", "NextToken"),
        "RecentlyActive": Honored("metrics that got points, or whose jobs ran, within three hours"),
        "IncludeLinkedAccounts": Refused(_ONE_ACCOUNT),
        "OwningAccount": Refused(_ONE_ACCOUNT),
    },
    "PutMetricData": {
        "Namespace": Honored("names that begin with `AWS/` are refused"),
        "MetricData": Honored("points are kept for 455 days, in the resolution in which they are put"),
        **honored("MetricData[].MetricName", "MetricData[].Dimensions", "MetricData[].Dimensions[].Name"),
        **honored("MetricData[].Dimensions[].Value"),
        "MetricData[].Timestamp": Honored("at most two weeks before and two hours after now; default: now"),
        "MetricData[].Value": Honored(),
        "MetricData[].StatisticValues": Refused("only values are kept; put Value, or Values with Counts"),
        "MetricData[].Values": Honored(),
        "MetricData[].Counts": Honored("whole numbers, together at most 10,000"),
        "MetricData[].Unit": Honored(),
        "MetricData[].StorageResolution": Recorded("points are kept in the resolution in which they are put"),
        "EntityMetricData": Refused("there are no entities; put the points as MetricData"),
        "StrictEntityValidation": Recorded("there are no entities"),
    },
    "PutMetricAlarm": dict.fromkeys(_OF_ALARMS, _NOT_EVALUATED),
    "DescribeAlarms": {
        **honored("AlarmNames", "AlarmNamePrefix"),
        "AlarmTypes": Honored("there are no composite alarms"),
        "ChildrenOfAlarmName": Refused("there are no composite alarms"),
        "ParentsOfAlarmName": Refused("there are no composite alarms"),
        "StateValue": Honored("every alarm is INSUFFICIENT_DATA"),
        "ActionPrefix": Refused("name the alarms, or a prefix of their names"),
        **honored("MaxRecords", "NextToken"),
    },
    "DeleteAlarms": {"AlarmNames": Honored()},
}
