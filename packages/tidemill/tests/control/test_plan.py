"""Specs of instances, as far as they are about keys."""

import asyncio
from pathlib import Path
from typing import Any

from tidemill.control.plan import InstancePlanner
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Endpoint
from tidemill.executors.base import InstanceSpec
from tidemill.store.database import Database
from tidemill.store.objects import ObjectStore
from tidemill.store.schema import metadata


def test_an_instance_of_an_endpoint_is_planned_without_keys(tmp_path: Path) -> None:
    container: dict[str, Any] = {
        "Image": "tensorflow-inference:2.21.0-cpu",
        "ModelDataUrl": "s3://models/m.tar.gz",
        "Environment": {"MODE": "fast"},
    }
    endpoint = Endpoint(
        name="half",
        arn="arn",
        config_name="half",
        instance_id="00ff",
        variant={"VariantName": "all"},
        model={"PrimaryContainer": container, "ExecutionRoleArn": "arn:aws:iam::000000000000:role/R"},
        log_streams=("all/i-0",),
        created_ms=1,
    )

    async def plan() -> InstanceSpec:
        with Database.open(tmp_path / "state.db", metadata=metadata) as database:
            objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
            await objects.ensure_bucket("models")
            await objects.put_bytes("models", "m.tar.gz", b"model")
            planner = InstancePlanner(objects, logs=tmp_path / "logs", region="us-west-2", grace_s=1, warm=False)
            spec = planner.plan_endpoint(endpoint, 0)
            await objects.close()
            return spec

    assert asyncio.run(plan()).variables == {"MODE": "fast", "AWS_REGION": "us-west-2"}
