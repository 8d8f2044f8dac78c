"""A server reduced to its executor, which a test can kill: launches the given spec, and waits."""

import asyncio
import sys
from pathlib import Path

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.executors.local import LocalExecutor
from tidemill.instance.spec import InstanceSpec

state_dir, environments_dir, job_id, script = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
executor = LocalExecutor(
    state_dir=state_dir,
    environments_dir=environments_dir,
    isolation="auto",
    content_file=lambda content_id: state_dir / "objects" / content_id,
    logs=state_dir / "logs",
)
spec = InstanceSpec(
    ref=InstanceRef(job_id, 0),
    kind="training",
    job_name="job",
    hosts=("algo-1",),
    framework_version="2.21",
    log=StreamName("jobs", job_id),
    config={"hyperparameters": {"script": script}},
)
executor.launch([spec])
print("launched", flush=True)


async def follow() -> None:
    while True:
        await executor.changed(timeout_s=60)


asyncio.run(follow())
