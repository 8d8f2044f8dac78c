"""Reports of agents, while the service has more work than threads."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import Phase
from tidemill.services.instances import InstancesService
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink
from tidemill.wire.exchange import Caller, Context

LEASE_S = 10.0
SPEC = InstanceSpec(
    ref=InstanceRef("0" * 32, 0),
    kind="training",
    job_name="job",
    hosts=("algo-1",),
    framework_version="2.21",
    log=StreamName("jobs", "job"),
    config={},
    variables={},
    channels=(),
    artifacts_uri="s3://bucket/output/job/output",
)
CONTEXT = Context(
    request_id="r",
    service="tidemill-instances",
    operation="ReportInstance",
    caller=Caller("key", "arn:aws:sts::000000000000:assumed-role/SageMakerRole/job"),
    region="us-west-2",
    headers={},
)


def test_a_report_in_time_renews_the_lease_although_a_thread_is_free_only_after_the_lease(tmp_path: Path) -> None:
    now_s = 0.0
    database = SqliteDatabase.open(tmp_path / "state.db", metadata=metadata)
    instances = ClusterInstances(
        tmp_path / "cluster",
        logs=SegmentSink(tmp_path / "logs"),
        leases=SqlLeaseRecords(database),
        lease_s=LEASE_S,
        now_s=lambda: now_s,
    )
    instances.begin_leases()
    service = InstancesService(instances)
    report = {
        "JobId": SPEC.ref.job_id,
        "InstanceIndex": 0,
        "Attempt": SPEC.ref.attempt,
        "Phases": [{"Status": "Downloading", "StartedMs": 1, "Message": "Data"}],
    }

    async def report_with_busy_threads() -> Mapping[str, Any]:
        nonlocal now_s
        loop, busy = asyncio.get_running_loop(), threading.Event()
        loop.set_default_executor(ThreadPoolExecutor(1))
        launch = asyncio.create_task(asyncio.to_thread(busy.wait))
        instances.add(SPEC)
        now_s += LEASE_S * 0.6
        reported = asyncio.create_task(service.report_instance(report, CONTEXT))
        await asyncio.sleep(0)  # the report has arrived
        now_s += LEASE_S * 0.6  # the first lease ends meanwhile
        busy.set()
        await launch
        return await reported

    assert asyncio.run(report_with_busy_threads()) == {"LeaseSeconds": LEASE_S}
    database.close()
    assert instances.status(SPEC.ref).phases == (Phase("Downloading", 1, "Data"),)
