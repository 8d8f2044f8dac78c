"""What instances use, as metrics of CloudWatch: values, dimensions, lists, for each kind of job and for endpoints."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidemill.core.segments import create_stream
from tidemill.instance.samples import GpuSample, Sample, SampledInstance, SampleWriter
from tidemill.services.page import samples

START = datetime(2023, 11, 14, 22, 0, tzinfo=UTC)
GIB = 1 << 30
CPU = SampledInstance(cpus=4, memory_bytes=8 * GIB, disk_bytes=100 * GIB)
GPU = SampledInstance(
    cpus=4, memory_bytes=8 * GIB, disk_bytes=100 * GIB, gpus=("A", "A"), gpu_memory_bytes=(16 * GIB, 16 * GIB)
)
CONTAINER = {"Image": "x/tensorflow-inference:2.19.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"


def write(stage: Any, group: str, stream: str, instance: SampledInstance, **use: Any) -> None:
    """Write a sample of each ten seconds of the first minute after START."""
    writer = SampleWriter(create_stream(stage.logs, group, stream), instance)
    for number in range(6):
        at_ms = int(START.timestamp() * 1000) + number * 10_000
        members = {"cpu": 2.5, "memory": 2 * GIB, "disk": 25 * GIB, "gpus": (), **use}
        writer.add(
            Sample(
                *(at_ms, 10_000, members["cpu"], members["memory"], members["disk"], 0.0, 0.0, 0.0, 0.0),
                members["gpus"],
            )
        )


@pytest.fixture
def training(sagemaker: Any, stage: Any) -> Any:
    """Return a function that creates a training job and returns the log streams of its instances."""

    def create(name: str, count: int = 1) -> Any:
        sagemaker.create_training_job(
            TrainingJobName=name,
            AlgorithmSpecification={
                "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
                "TrainingInputMode": "File",
            },
            RoleArn=ROLE,
            OutputDataConfig={"S3OutputPath": "s3://data/out"},
            ResourceConfig={"InstanceType": "local", "InstanceCount": count, "VolumeSizeInGB": 1},
            StoppingCondition={"MaxRuntimeInSeconds": 60},
        )
        return stage.training.get(name).log_streams

    return create


def values(cloudwatch: Any, namespace: str, metric: str, dimensions: dict[str, str], **members: Any) -> list[float]:
    request: dict[str, Any] = {
        "Namespace": namespace,
        "MetricName": metric,
        "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
        "StartTime": START,
        "EndTime": START + timedelta(minutes=10),
        "Period": 60,
        "Statistics": ["Average"],
        **members,
    }
    points = cloudwatch.get_metric_statistics(**request)["Datapoints"]
    assert {each["Unit"] for each in points} <= {"Percent"}
    return [each["Average"] for each in points]


def test_a_busy_processor_and_a_busy_gpu_count_100_and_memory_and_disk_are_parts_of_the_whole(
    cloudwatch: Any, stage: Any, training: Any
) -> None:
    namespace = "/aws/sagemaker/TrainingJobs"
    first, second = training("digits", 2)
    write(stage, namespace, first, CPU)
    write(stage, namespace, second, GPU, cpu=4.0, gpus=(GpuSample(1.0, 8 * GIB), GpuSample(0.5, 4 * GIB)))
    host = {"Host": "digits/algo-1"}
    assert values(cloudwatch, namespace, "CPUUtilization", host) == [250.0]
    assert values(cloudwatch, namespace, "MemoryUtilization", host) == [25.0]
    assert values(cloudwatch, namespace, "DiskUtilization", host) == [25.0]
    assert values(cloudwatch, namespace, "GPUUtilization", host) == []
    assert values(cloudwatch, namespace, "CPUUtilization", host, Unit="None") == []
    with_gpus = {"Host": "digits/algo-2"}
    assert values(cloudwatch, namespace, "CPUUtilization", with_gpus) == [400.0]
    assert values(cloudwatch, namespace, "GPUUtilization", with_gpus) == [150.0]
    assert values(cloudwatch, namespace, "GPUMemoryUtilization", with_gpus) == [75.0]
    for strange in ({"Host": "digits/algo-3"}, {"Host": "other/algo-1"}, {"Host": "digits"}, {"TrainingJobName": "x"}):
        assert values(cloudwatch, namespace, "CPUUtilization", strange) == []
    assert values(cloudwatch, namespace, "Loss", host) == []
    late = values(cloudwatch, namespace, "CPUUtilization", host, StartTime=START + timedelta(seconds=30), Period=10)
    assert late == [250.0] * 3
    data = cloudwatch.get_metric_data(
        MetricDataQueries=[
            {
                "Id": "cpu",
                "MetricStat": {
                    "Metric": {
                        "Namespace": namespace,
                        "MetricName": "CPUUtilization",
                        "Dimensions": [{"Name": "Host", "Value": "digits/algo-2"}],
                    },
                    "Period": 60,
                    "Stat": "Maximum",
                },
            }
        ],
        StartTime=START,
        EndTime=START + timedelta(minutes=10),
    )
    assert data["MetricDataResults"][0]["Values"] == [400.0]


def test_instances_of_processing_and_transform_jobs_and_of_endpoints_have_the_metrics_of_their_namespaces(
    cloudwatch: Any, sagemaker: Any, stage: Any
) -> None:
    sagemaker.create_processing_job(
        ProcessingJobName="prepare",
        ProcessingResources={
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 10}
        },
        AppSpecification={"ImageUri": "tensorflow-training:2.21.0-cpu-py311", "ContainerEntrypoint": ["true"]},
        RoleArn=ROLE,
    )
    group = "/aws/sagemaker/ProcessingJobs"
    write(stage, group, stage.processing.get("prepare").log_streams[0], CPU)
    assert values(cloudwatch, group, "CPUUtilization", {"Host": "prepare/algo-1"}) == [250.0]

    sagemaker.create_model(ModelName="model", PrimaryContainer=CONTAINER, ExecutionRoleArn=ROLE)
    sagemaker.create_transform_job(
        TransformJobName="predict",
        ModelName="model",
        TransformInput={"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://data/in"}}},
        TransformOutput={"S3OutputPath": "s3://data/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    group = "/aws/sagemaker/TransformJobs"
    write(stage, group, stage.transform.get("predict").log_streams[0], CPU)
    assert values(cloudwatch, group, "MemoryUtilization", {"Host": "predict/algo-1"}) == [25.0]

    variant = {"ModelName": "model", "VariantName": "main", "InitialInstanceCount": 2, "InstanceType": "ml.m5.large"}
    sagemaker.create_endpoint_config(EndpointConfigName="config", ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName="serve", EndpointConfigName="config")
    stage.bring_up("serve")
    for number, instance in enumerate(stage.instances("serve", "main")):
        write(stage, "/aws/sagemaker/Endpoints/serve", instance.log_stream, CPU, cpu=1.0 + number)
    of_variant = {"EndpointName": "serve", "VariantName": "main"}
    assert values(cloudwatch, "/aws/sagemaker/Endpoints", "CPUUtilization", of_variant) == [150.0]
    assert values(cloudwatch, "/aws/sagemaker/Endpoints", "CPUUtilization", {"EndpointName": "serve"}) == []

    def listed(**members: Any) -> list[tuple[str, str]]:
        pages = cloudwatch.get_paginator("list_metrics").paginate(MetricName="CPUUtilization", **members)
        found = [metric for page in pages for metric in page["Metrics"]]
        return [(each["Namespace"].rpartition("/")[2], each["Dimensions"][0]["Value"]) for each in found]

    assert listed() == [
        ("ProcessingJobs", "prepare/algo-1"),
        ("TransformJobs", "predict/algo-1"),
        ("Endpoints", "serve"),
    ]
    assert listed(Namespace="/aws/sagemaker/Endpoints") == [("Endpoints", "serve")]
    assert listed(Dimensions=[{"Name": "Host"}]) == listed()[:2]


def test_instances_of_many_jobs_are_listed_page_by_page_and_only_recent_ones_if_asked(
    cloudwatch: Any, stage: Any, training: Any, refusal: Any
) -> None:
    namespace = "/aws/sagemaker/TrainingJobs"
    for number in range(45):
        write(stage, namespace, training(f"job-{number}")[0], GPU if number == 0 else CPU)
    training("unsampled")
    pages = list(cloudwatch.get_paginator("list_metrics").paginate(Namespace=namespace))
    found = [metric for page in pages for metric in page["Metrics"]]
    assert len(found) == 45 * 3 + 2
    assert len({(each["MetricName"], each["Dimensions"][0]["Value"]) for each in found}) == len(found)
    assert len(pages) > 2
    stage.clock.ms = int(datetime.now(UTC).timestamp() * 1000)  # the files of samples have times of the real clock
    recent = cloudwatch.get_paginator("list_metrics").paginate(Namespace=namespace, RecentlyActive="PT3H")
    assert sum(len(page["Metrics"]) for page in recent) == len(found)
    stage.clock.ms += 4 * 3600 * 1000
    recent = cloudwatch.get_paginator("list_metrics").paginate(Namespace=namespace, RecentlyActive="PT3H")
    assert sum(len(page["Metrics"]) for page in recent) == 0
    for token in ("resources:AWS/EC2:", f"resources:{namespace}:strange"):
        status, code, _ = refusal(cloudwatch.list_metrics, Namespace=namespace, NextToken=token)
        assert (status, code) == (400, "InvalidParameterValue"), token


def test_all_samples_of_a_job_are_returned_by_instance_reduced_to_a_limit_and_after_a_time(
    own: Any, stage: Any, training: Any, restricted: Any, refusal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = training("digits", 2)
    group = "/aws/sagemaker/TrainingJobs"
    write(stage, group, first, CPU)
    write(stage, group, second, GPU, gpus=(GpuSample(1.0, 8 * GIB), GpuSample(0.5, 4 * GIB)))
    asked = {"Kind": "training-job", "Name": "digits"}
    one, two = own.get_instance_samples(**asked)["Instances"]
    start_ms = int(START.timestamp() * 1000)
    assert one["TimesMs"] == [start_ms + number * 10_000 for number in range(6)]
    assert (one["Host"], one["Cpus"], one["MemoryBytes"], one["Network"]) == ("algo-1", 4, 8 * GIB, "machine")
    assert (one["Cpu"], one["Memory"], one["GpuSamples"]) == ([2.5] * 6, [2 * GIB] * 6, [])
    assert two["Gpus"] == [{"Name": "A", "MemoryBytes": 16 * GIB}] * 2
    assert two["GpuSamples"][1] == {"Busy": [0.5] * 6, "Memory": [4 * GIB] * 6}
    later = own.get_instance_samples(**asked, AfterMs=start_ms + 30_000)["Instances"][0]
    assert later["TimesMs"] == one["TimesMs"][4:]
    reduced = own.get_instance_samples(**asked, MaxSamples=3)["Instances"][0]
    assert reduced["SpansMs"] == [20_000] * 3 and reduced["Cpu"] == [2.5] * 3
    monkeypatch.setattr(samples, "_SAMPLES_MAX", 6)
    limited = own.get_instance_samples(**asked)["Instances"]
    assert [each["SpansMs"] for each in limited] == [[20_000] * 3] * 2, "the limit is one of all instances"
    assert own.get_instance_samples(Kind="endpoint", Name="digits")["Instances"] == []
    denied = refusal(restricted("tidemill").get_instance_samples, **asked)
    assert denied[:2] == (400, "AccessDeniedException") and "sagemaker:DescribeTrainingJob" in denied[2]


def test_what_runs_is_listed_with_the_last_sample_of_each_instance_that_the_caller_may_describe(
    own: Any, stage: Any, training: Any, restricted: Any
) -> None:
    write(stage, "/aws/sagemaker/TrainingJobs", training("sampled")[0], CPU)
    stage.clock.ms += 1
    training("queued")
    sampled, queued = own.list_running_instances()["Running"]
    assert (sampled["Kind"], sampled["Name"], sampled["Status"]) == ("training-job", "sampled", "InProgress")
    (instance,) = sampled["Instances"]
    assert (instance["Host"], instance["Cpus"], instance["Cpu"]) == ("algo-1", 4, [2.5])
    assert instance["TimesMs"] == [int(START.timestamp() * 1000) + 50_000]
    assert queued["Name"] == "queued" and queued["SecondaryStatus"] == "Starting"
    assert queued["Instances"][0]["TimesMs"] == [] and "Cpus" not in queued["Instances"][0]
    assert restricted("tidemill").list_running_instances()["Running"] == []
