"""The keys, GPUs, limits and shared links in specs of instances."""

import asyncio
from pathlib import Path
from typing import Any

from tidemill.control.plan import ServerPlanner
from tidemill.control.server_keys import ServerVariables
from tidemill.control.training.plan import TrainingPlanner
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.core.limits import InstanceLimits, LimitPolicy
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.executors.base import Capacity
from tidemill.instance.object_rows import row_of, rows_of
from tidemill.instance.spec import InstanceSpec
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.store import ObjectStore


def test_an_instance_that_serves_is_planned_with_its_keys_and_with_the_limits_of_its_type(tmp_path: Path) -> None:
    container: dict[str, Any] = {
        "Image": "tensorflow-inference:2.21.0-cpu",
        "ModelDataUrl": "s3://models/m.tar.gz",
        "Environment": {"MODE": "fast"},
    }
    variant = Variant(
        request={"VariantName": "all", "InstanceType": "ml.m5.large"},
        model={"PrimaryContainer": container, "ExecutionRoleArn": "arn:aws:iam::000000000000:role/R"},
    )
    endpoint = Endpoint(name="half", arn="arn", endpoint_id="0e", created_ms=1)
    instance = Instance(job_id="00ff", log_stream="all/i-0", created_ms=1)
    transform = TransformJob(
        name="job",
        arn="arn",
        job_id="0f",
        request={"TransformResources": {"InstanceType": "ml.c5.large", "InstanceCount": 1}},
        model=variant.model,
        created_ms=1,
        log_streams=("job/i-0",),
    )

    async def plan() -> tuple[InstanceSpec, InstanceSpec]:
        with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
            objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await objects.ensure_bucket("models")
            await objects.put_bytes("models", "m.tar.gz", b"model")
            planner = ServerPlanner(
                objects,
                region="us-west-2",
                grace_s=1,
                limits=LimitPolicy(by_type=True, processes=50),
            )
            agents = {"AWS_ACCESS_KEY_ID": "ASIA of the agent"}
            keys = ServerVariables({"AWS_ACCESS_KEY_ID": "ASIA", "MODE": "of the service"}, agents)
            specs = (
                planner.plan_endpoint(endpoint, variant, instance, variables=keys),
                planner.plan_transform(transform, 0, variables=keys),
            )
            await objects.close()
            return specs

    served, transformed = asyncio.run(plan())
    region = {"AWS_REGION": "us-west-2", "AWS_DEFAULT_REGION": "us-west-2", "AWS_EC2_METADATA_DISABLED": "true"}
    expected = {"MODE": "fast", "AWS_ACCESS_KEY_ID": "ASIA", **region}
    assert served.variables == expected
    assert served.agent_variables == {**region, "AWS_ACCESS_KEY_ID": "ASIA of the agent"}
    assert served.instance_types == ("ml.m5.large",)
    assert transformed.variables.items() >= expected.items()
    assert served.limits == InstanceLimits(memory_bytes=8 << 30, cpus=2, processes=50, source="ml.m5.large")
    assert transformed.limits == InstanceLimits(memory_bytes=4 << 30, cpus=2, processes=50, source="ml.c5.large")


def test_an_instance_of_a_job_gets_the_gpus_and_limits_of_its_type_and_shares_links_to_many_files(
    tmp_path: Path,
) -> None:
    source = {"S3DataType": "S3Prefix", "S3Uri": "s3://data/many/"}
    few = {"S3DataType": "S3Prefix", "S3Uri": "s3://data/many/00"}
    sharded = {**source, "S3DataDistributionType": "ShardedByS3Key"}
    sources = {"whole": source, "again": source, "few": few, "sharded": sharded}
    request: dict[str, Any] = {
        "TrainingJobName": "job",
        "AlgorithmSpecification": {
            "TrainingImage": "tensorflow-training:2.21.0-gpu-py311",
            "TrainingInputMode": "File",
        },
        "RoleArn": "arn:aws:iam::000000000000:role/R",
        "OutputDataConfig": {"S3OutputPath": "s3://data/out", "KmsKeyId": "alias/mine"},
        "ResourceConfig": {
            "VolumeSizeInGB": 2,
            "InstanceGroups": [
                {"InstanceGroupName": "learn", "InstanceType": "ml.g4dn.xlarge", "InstanceCount": 1},
                {"InstanceGroupName": "read", "InstanceType": "ml.m5.large", "InstanceCount": 1},
            ],
        },
        "InputDataConfig": [
            {"ChannelName": name, "DataSource": {"S3DataSource": each}} for name, each in sources.items()
        ],
    }
    job = TrainingJob(
        name="job", arn="arn", job_id="0a", request=request, created_ms=1, log_streams=("job/algo-1-1", "job/algo-2-1")
    )

    async def plan() -> tuple[InstanceSpec, ...]:
        with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
            objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await objects.ensure_bucket("data")
            await asyncio.gather(*(objects.put_bytes("data", f"many/{n:03}", b"x") for n in range(101)))
            planner = TrainingPlanner(
                objects,
                region="us-west-2",
                grace_s=1,
                warm=True,
                capacity=lambda: Capacity(instances=2, cpus=2, gpus=4),
                limits=LimitPolicy(by_type=True),
            )
            specs, _ = planner.plan(job, variables={})
            again, _ = planner.plan(job, variables={})
            await objects.put_bytes("data", "many/007", b"x")  # the same bytes, but other content
            replaced, _ = planner.plan(job, variables={})
            assert [channel.digest for channel in specs[0].channels] == [
                channel.digest for channel in again[0].channels
            ]
            assert replaced[0].channels[0].digest != specs[0].channels[0].digest
            await objects.close()
            return specs

    learn, read = asyncio.run(plan())
    assert (learn.gpus, learn.environment, learn.warm) == (1, "tf-2.21-gpu", False)
    assert (read.gpus, read.environment, read.warm) == (0, "tf-2.21", False)
    of_keys = [notice for notice in learn.notices if "nothing is encrypted" in notice]
    assert [notice.partition(": tidemill records")[0] for notice in of_keys] == [
        "tidemill: nothing is encrypted with OutputDataConfig.KmsKeyId alias/mine"
    ]
    assert not [notice for notice in read.notices if "encrypted" in notice]
    assert learn.limits == InstanceLimits(memory_bytes=16 << 30, cpus=4, disk_bytes=2 << 30, source="ml.g4dn.xlarge")
    whole, again, few_digest, sharded_digest = (channel.digest for channel in learn.channels)
    assert whole == again
    assert few_digest == ""
    assert sharded_digest not in ("", whole, read.channels[3].digest)
    for channel in (*learn.channels, read.channels[3]):
        rows = [tuple(row) for batch in rows_of(channel.objects) for row in batch]
        assert rows == [row_of(each) for each in channel.objects]
