"""What a monitor reads of the service: requests, jobs, endpoints, the queue, disk, database and the process itself."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from tidemill import __version__
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.resources import ENDPOINT, RUNS
from tidemill.control.webhooks.deliveries import Deliveries
from tidemill.core.exposition import Family, exposition
from tidemill.server.drivers import Drivers
from tidemill.server.executors import Executors
from tidemill.server.instance_metrics import instance_families
from tidemill.server.state import StateDirectory
from tidemill.server.stores import Stores
from tidemill.wire.observer import RequestObserver

_Counts = Mapping[tuple[str, str], int]


class Monitoring:
    """Collects the metrics when a monitor asks for them.

    Args:
        stores: Stores the jobs and endpoints.
        executors: Run the instances.
        drivers: Count the requests of endpoints, and the jobs that wait.
        requests: Counts the requests of the gateway.
        webhooks: Deliver state changes.
    """

    def __init__(
        self,
        state: StateDirectory,
        stores: Stores,
        executors: Executors,
        drivers: Drivers,
        requests: RequestObserver,
        webhooks: Deliveries,
    ) -> None:
        self._state = state
        self._stores = stores
        self._executors = executors
        self._drivers = drivers
        self._requests = requests
        self._webhooks = webhooks

    async def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        counts = await self._stores.records.counts((*RUNS, ENDPOINT))
        samples = InstanceSamples(self._stores.records, logs=self._state.logs)
        instances = await instance_families(samples, now_ms=self._stores.clock.now_ms())
        return await asyncio.to_thread(lambda: exposition((*self._families(counts), *instances)))

    def _families(self, counts: _Counts) -> Iterator[Family]:
        yield Family("tidemill_info", "gauge", "1; the label is the version.", [({"version": __version__}, 1)])
        yield from self._requests.families()
        yield from self._of_jobs(counts)
        yield from self._drivers.endpoints.counts.families()
        yield from self._webhooks.families()
        yield from self._of_database()
        yield from _of_disk(self._state)
        yield from _of_process()

    def _of_jobs(self, counts: _Counts) -> Iterator[Family]:
        slots, capacity = self._drivers.slots, self._executors.executor.capacity()
        by_kind = sorted(counts.items())
        yield Family(
            "tidemill_jobs",
            "gauge",
            "Stored jobs and executions of pipelines, by kind and status.",
            [({"kind": kind, "status": status}, n) for (kind, status), n in by_kind if kind != ENDPOINT],
        )
        yield Family(
            "tidemill_endpoints",
            "gauge",
            "Endpoints by status.",
            [({"status": status}, n) for (kind, status), n in by_kind if kind == ENDPOINT],
        )
        yield Family("tidemill_queue_jobs", "gauge", "Jobs that wait for instances.", [({}, slots.waiting)])
        yield Family("tidemill_job_instances", "gauge", "Instances that jobs hold.", [({}, slots.taken)])
        yield Family(
            "tidemill_job_instances_max",
            "gauge",
            "Instances that may run at the same time.",
            [({}, capacity.instances)],
        )
        yield Family("tidemill_gpus", "gauge", "GPUs for jobs.", [({}, capacity.gpus)])

    def _of_database(self) -> Iterator[Family]:
        commits = self._stores.database.commits
        yield Family(
            "tidemill_database_commit_duration_seconds",
            "histogram",
            "Seconds of the database's commits, each of a group of writes.",
            [({}, commits.durations)],
        )
        yield Family(
            "tidemill_database_writes_total",
            "counter",
            "Writes in the groups that were committed.",
            [({}, commits.works)],
        )


def _of_disk(state: StateDirectory) -> Iterator[Family]:
    usage = shutil.disk_usage(state.root)
    yield Family(
        "tidemill_disk_free_bytes", "gauge", "Free space of the state directory's file system.", [({}, usage.free)]
    )
    yield Family("tidemill_disk_size_bytes", "gauge", "Size of the state directory's file system.", [({}, usage.total)])
    database = state.database
    files = (database, database.with_name(f"{database.name}-wal"))
    size = sum(map(_size, files))
    if size:
        yield Family("tidemill_database_bytes", "gauge", "Size of the database's files.", [({}, size)])


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def _of_process() -> Iterator[Family]:
    """Yield what Prometheus's clients tell of their process, by the same names."""
    import psutil  # takes 15 ms, which the start does not need

    process = psutil.Process()
    with process.oneshot():
        times, memory = process.cpu_times(), process.memory_info()
        yield Family(
            "process_cpu_seconds_total", "counter", "CPU time of the service.", [({}, times.user + times.system)]
        )
        yield Family("process_resident_memory_bytes", "gauge", "Resident memory.", [({}, memory.rss)])
        yield Family("process_virtual_memory_bytes", "gauge", "Virtual memory.", [({}, memory.vms)])
        yield Family("process_threads", "gauge", "Threads of the service.", [({}, process.num_threads())])
        yield Family(
            "process_start_time_seconds",
            "gauge",
            "Start of the service since the epoch.",
            [({}, process.create_time())],
        )
        yield Family("process_open_fds", "gauge", "Open file descriptors.", [({}, process.num_fds())])
