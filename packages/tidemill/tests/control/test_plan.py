"""The keys in specs of instances."""

import asyncio
from pathlib import Path
from typing import Any

from tidemill.control.plan import InstancePlanner
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.instance.spec import InstanceSpec
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.objects.store import ObjectStore


def test_an_instance_of_an_endpoint_is_planned_without_keys(tmp_path: Path) -> None:
    container: dict[str, Any] = {
        "Image": "tensorflow-inference:2.21.0-cpu",
        "ModelDataUrl": "s3://models/m.tar.gz",
        "Environment": {"MODE": "fast"},
    }
    variant = Variant(
        request={"VariantName": "all"},
        model={"PrimaryContainer": container, "ExecutionRoleArn": "arn:aws:iam::000000000000:role/R"},
    )
    endpoint = Endpoint(name="half", arn="arn", endpoint_id="0e", created_ms=1)
    instance = Instance(job_id="00ff", log_stream="all/i-0", created_ms=1)

    async def plan() -> InstanceSpec:
        with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
            objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await objects.ensure_bucket("models")
            await objects.put_bytes("models", "m.tar.gz", b"model")
            planner = InstancePlanner(objects, logs=tmp_path / "logs", region="us-west-2", grace_s=1, warm=False)
            spec = planner.plan_endpoint(endpoint, variant, instance)
            await objects.close()
            return spec

    assert asyncio.run(plan()).variables == {"MODE": "fast", "AWS_REGION": "us-west-2"}
