"""Measure the cost of a large cluster for the service: 10,000 simulated instances and 1,000,000 finished jobs.

    python benchmarks/scale.py [--instances 10000] [--finished 1000000] [--seconds 60] [--nice -15]

The benchmark runs the real service with the executor for clusters. Only the placement is simulated: instead of agents
on machines, one client process keeps a connection per instance and reports like an agent, by a signed request every ten
seconds that waits for orders. Each instance belongs to a separate job. Meanwhile another client describes and lists
jobs, and its latencies are printed. It sends a request every 10 ms. If the last answer comes later than that, the
latency of the next request counts from the time at which it was due. Then the service is killed and started again.

Both clients share the machine with the service; the printed CPU time is that of the service's process alone. On a busy
machine the latencies mostly show its scheduler: compare them with the row of empty requests, and with the CPU time per
request. ``--nice`` sets the priority of the service and of both clients.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from sqlalchemy import insert

from control_plane import cpu_s
from tidemill.control.jobs import TRAINING
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.instance.assignment import AgentAssignment
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.store import _checksum, _to_row
from tidemill.testing import Service

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
IMAGE = "tensorflow-training:2.21.0-cpu-py311"
REGION = "us-west-2"
BEAT_S = 10
REQUEST_S = 0.01
LIMIT_MS = 5.0
BLOCK = 10_000
STALL_S = 180
HOLLOW = Path(__file__).with_name("hollow")
STEPS = [
    SecondaryStatus.STARTING,
    SecondaryStatus.DOWNLOADING,
    SecondaryStatus.TRAINING,
    SecondaryStatus.UPLOADING,
    SecondaryStatus.COMPLETED,
]


def request_bytes(url: str, service: str, target: str, keys: Credentials, body: dict[str, Any]) -> bytes:
    """Return the bytes of a signed HTTP request."""
    data = json.dumps(body).encode()
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
    request = AWSRequest("POST", url + "/", headers=headers, data=data)
    SigV4Auth(keys, service, REGION).add_auth(request)
    lines = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    host = urlsplit(url).netloc
    return f"POST / HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(data)}\r\n{lines}\r\n".encode() + data


class Connection:
    """A persistent connection."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def ask(self, request: bytes) -> dict[str, Any]:
        """Send a request, and return the JSON of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._address.hostname, self._address.port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode() + body.decode())
        return dict(json.loads(body))


# The simulated agents, in a separate process that prints its progress on its standard output.


async def simulate(directory: Path, url: str) -> None:
    """Run an agent for every assignment that appears in a directory. Never returns."""
    counts = {"running": 0, "reports": 0, "failed": 0}
    tasks = []
    while True:
        for file in [each for each in directory.iterdir() if not each.suffix]:
            tasks.append(asyncio.create_task(hollow_agent(file.read_bytes(), url, counts)))
            file.unlink()
        print(json.dumps(counts), flush=True)
        await asyncio.sleep(0.5)


async def hollow_agent(data: bytes, url: str, counts: dict[str, int]) -> None:
    """Report the phases of one instance, then send heartbeats."""
    spec = AgentAssignment.from_bytes(data).spec
    keys = Credentials(
        spec.variables["AWS_ACCESS_KEY_ID"],
        spec.variables["AWS_SECRET_ACCESS_KEY"],
        spec.variables.get("AWS_SESSION_TOKEN"),
    )
    attempt = {"JobId": spec.ref.job_id, "InstanceIndex": 0, "Attempt": spec.ref.attempt}
    connection = Connection(url)

    def signed(**members: Any) -> bytes:
        return request_bytes(url, "tidemill", "TidemillInstances.ReportInstance", keys, {**attempt, **members})

    now_ms = int(time.time() * 1000)
    phases = [{"Status": each, "StartedMs": now_ms, "Message": ""} for each in ("Downloading", "Training")]
    first = True
    begun_s, beat = -1000.0, b""
    while True:
        try:
            if first:
                await connection.ask(signed(Lost=False, WaitSeconds=0, Phases=phases))
                first = False
                counts["running"] += 1
            if time.monotonic() - begun_s > 200:  # a signature is valid for five minutes
                begun_s, beat = time.monotonic(), signed(Lost=False, WaitSeconds=BEAT_S)
            await connection.ask(beat)
            counts["reports"] += 1
        except (OSError, EOFError, RuntimeError) as error:
            counts["failed"] += 1
            connection.close()
            if "409" in str(error)[:20]:
                counts["over"] = counts.get("over", 0) + 1
                return
            await asyncio.sleep(random.uniform(0.5, 1.5))


class Agents:
    """The process of the simulated agents."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.counts: dict[str, int] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, directory: Path, url: str) -> "Agents":
        command = [sys.executable, __file__, "--simulate", str(directory), "--url", url]
        return cls(await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.counts = json.loads(line)

    async def end(self) -> None:
        self._process.kill()
        await self._process.wait()


# The measurements.


class Client:
    """A user of the service, with one connection."""

    def __init__(self, service: Service) -> None:
        variables = service.environment
        self._url = service.url
        self._keys = Credentials(variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"])
        self._connection = Connection(service.url)

    async def ask(self, operation: str, **members: Any) -> tuple[dict[str, Any], float]:
        """Make a request; return its answer and its duration in milliseconds. Without an operation it is empty."""
        if operation:
            request = request_bytes(self._url, "sagemaker", f"SageMaker.{operation}", self._keys, members)
        else:
            request = f"GET /healthz HTTP/1.1\r\nhost: {urlsplit(self._url).netloc}\r\n\r\n".encode()
        begun = time.perf_counter()
        answer = await self._connection.ask(request)
        return answer, (time.perf_counter() - begun) * 1000


def job_request(name: str) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {"TrainingImage": IMAGE, "TrainingInputMode": "File"},
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "HyperParameters": {"epochs": "10", "batch_size": "32", "learning_rate": "0.001"},
    }


def finished_name(number: int) -> str:
    return f"finished-{number:08}"


def finished_job(number: int, *, created_ms: int) -> TrainingJob:
    name = finished_name(number)
    job = TrainingJob(
        name=name,
        arn=f"arn:aws:sagemaker:{REGION}:000000000000:training-job/{name}",
        job_id=f"{number:032x}",
        request=job_request(name),
        created_ms=created_ms,
        log_streams=(f"{name}/algo-1-{created_ms // 1000}",),
    )
    for status in STEPS:
        job = job.enter(status, at_ms=created_ms + 1000, message="")
    return replace(job, ended_ms=created_ms + 1000, model_artifacts=f"s3://bucket/out/{name}/output/model.tar.gz")


def store_finished(file: Path, count: int) -> None:
    """Store finished jobs in the service's format, one per second up to now."""
    begin_ms = int(time.time() * 1000) - count * 1000
    with SqliteDatabase.open(file, metadata=metadata) as database:
        for begin in range(0, count, BLOCK):
            rows = finished_rows(range(begin, min(count, begin + BLOCK)), begin_ms=begin_ms)
            database.write_sync(lambda connection, rows=rows: connection.execute(insert(records), rows))


def finished_rows(numbers: range, *, begin_ms: int) -> list[dict[str, Any]]:
    """Return the rows of finished jobs. The service's code makes the first only; for all it would take ten minutes."""

    def created_ms(number: int) -> int:
        return begin_ms + number * 1000

    def made(number: int) -> dict[str, Any]:
        return _to_row(TRAINING.write(finished_job(number, created_ms=created_ms(number))))

    first = made(numbers[0])
    times = [(f"{created_ms(numbers[0]) + late_ms}", late_ms) for late_ms in (0, 1000)]
    stream, job_id = f"algo-1-{created_ms(numbers[0]) // 1000}", f"{numbers[0]:032x}"

    def copied(number: int) -> dict[str, Any]:
        row = {**first, "name": finished_name(number)}
        row |= {"created_ms": created_ms(number), "modified_ms": created_ms(number)}
        head = tuple(row[column] for column in ("kind", "name", "status", "created_ms", "modified_ms"))
        for column, checksum in (("document", "checksum"), ("summary", "summary_checksum")):
            content = first[column].replace(finished_name(numbers[0]), finished_name(number))
            content = content.replace(job_id, f"{number:032x}")
            content = content.replace(stream, f"algo-1-{created_ms(number) // 1000}")
            for text, late_ms in times:
                content = content.replace(text, f"{created_ms(number) + late_ms}")
            row |= {column: content, checksum: _checksum((*head, content))}
        return row

    rows = [copied(number) for number in numbers]
    for at in (0, len(numbers) - 1):
        if rows[at] != made(numbers[at]):
            raise RuntimeError(f"the copied row {rows[at]} is not what the service stores: {made(numbers[at])}")
    return rows


async def create_jobs(service: Service, count: int, agents: Agents) -> float:
    """Create jobs and wait until all of them run; return the duration in seconds."""
    begun = time.monotonic()
    names = iter([f"running-{number:06}" for number in range(count)])

    async def create() -> None:
        client = Client(service)
        for name in names:
            await client.ask("CreateTrainingJob", **job_request(name))

    await asyncio.gather(*(create() for _ in range(8)))
    created_s = time.monotonic() - begun
    print(f"created {count} jobs in {created_s:.0f} s ({count / created_s:.0f}/s)", flush=True)
    running, progress_s = -1, time.monotonic()
    while (now_running := agents.counts.get("running", 0)) < count:
        if now_running > running:
            running, progress_s = now_running, time.monotonic()
        if time.monotonic() - progress_s > STALL_S:
            raise RuntimeError(f"no job has begun to run for {STALL_S} s: {agents.counts}; {service.log[-2000:]}")
        await asyncio.sleep(0.5)
    return time.monotonic() - begun


QUESTIONS: dict[str, Callable[[random.Random, argparse.Namespace], tuple[str, dict[str, Any]]]] = {
    "nothing": lambda chance, options: ("", {}),
    "Describe a finished job": lambda chance, options: (
        "DescribeTrainingJob",
        {"TrainingJobName": finished_name(chance.randrange(options.finished))},
    ),
    "Describe a running job": lambda chance, options: (
        "DescribeTrainingJob",
        {"TrainingJobName": f"running-{chance.randrange(options.instances):06}"},
    ),
    "List the newest 10": lambda chance, options: ("ListTrainingJobs", {}),
    "List 10 Completed": lambda chance, options: ("ListTrainingJobs", {"StatusEquals": "Completed"}),
    "List 100 InProgress": lambda chance, options: (
        "ListTrainingJobs",
        {"StatusEquals": "InProgress", "MaxResults": 100},
    ),
}


async def send_requests(service: Service, options: argparse.Namespace, *, idle: float) -> None:
    """Print the latencies of requests that are due at fixed times, and the service's CPU time per request.

    Args:
        idle: Number of cores that the service uses without these requests.
    """
    client, chance, pid = Client(service), random.Random(0), pid_of(service)
    for name, question in QUESTIONS.items():
        latencies = []
        due_s = begun = time.monotonic()
        used_s = cpu_s(pid)
        while (seconds := time.monotonic() - begun) < options.seconds / 2:
            operation, members = question(chance, options)
            late_s = time.monotonic() - due_s
            if late_s < 0:
                await asyncio.sleep(-late_s)
            latencies.append((await client.ask(operation, **members))[1] + max(0.0, late_s) * 1000)
            due_s += REQUEST_S
        cost_ms = (cpu_s(pid) - used_s - idle * seconds) / len(latencies) * 1000
        latencies.sort()
        p99_ms = latencies[int(len(latencies) * 0.99)]
        print(
            f"{name:24} p50 {statistics.median(latencies):5.1f} ms  p99 {p99_ms:5.1f} ms"
            f"  = {p99_ms / LIMIT_MS:.2f} x the limit of {LIMIT_MS:g} ms; CPU {cost_ms:.2f} ms"
            f" ({len(latencies)} requests, load {os.getloadavg()[0]:.1f})",
            flush=True,
        )


def prefer(pid: int, nice: int | None) -> None:
    """Set the priority of a process's session. Linux divides the CPU among sessions first, then among processes."""
    file = Path(f"/proc/{pid}/autogroup")
    if nice is not None and file.exists():
        file.write_text(str(nice))


def pid_of(service: Service) -> int:
    if service.pid is None:
        raise RuntimeError(f"the service has ended:\n{service.log}")
    return service.pid


def pss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024


async def measure(service: Service, agents: Agents, options: argparse.Namespace) -> None:
    """Print the CPU use of the idle instances, and then the latencies of requests."""
    pid = pid_of(service)
    await asyncio.sleep(2 * BEAT_S)
    begun, cpu, reports = time.monotonic(), cpu_s(pid), agents.counts["reports"]
    await asyncio.sleep(options.seconds)
    seconds, used = time.monotonic() - begun, cpu_s(pid) - cpu
    made = agents.counts["reports"] - reports
    share = used / seconds
    print(f"{made / seconds:.0f} reports/s, {agents.counts['failed']} failed; the service uses {share:.2f} of a core,")
    print(f"    {used / made * 1e6:.0f} us a report; PSS {pss_mb(pid):.0f} MB")
    for instances in (options.instances, 100_000):
        needed = share * instances / options.instances
        print(f"    {instances} instances: {share:.2f} x {instances} / {options.instances} = {needed:.2f} cores")
    await send_requests(service, options, idle=share)


async def collect(service: Service, assignments: Path) -> None:
    """Print the duration of a full collection of Python's garbage, during which the service answers nothing."""
    file = assignments / "collection.json"
    os.kill(pid_of(service), signal.SIGUSR2)
    while not file.exists():
        await asyncio.sleep(0.1)
    figures = json.loads(file.read_text())
    print(
        f"a full collection takes {figures['seconds'] * 1000:.0f} ms for {figures['objects']} objects; it frees"
        f" {figures['freed']} of them; PSS {pss_mb(pid_of(service)):.0f} MB",
        flush=True,
    )


async def restart(service: Service, agents: Agents, options: argparse.Namespace) -> None:
    """Kill the service and start it again; print the duration of the outage."""
    service.kill()
    begun = time.monotonic()
    starting = asyncio.create_task(asyncio.to_thread(service.start))
    while not starting.done():
        if service.pid is not None:
            prefer(service.pid, options.nice)
        await asyncio.sleep(0.05)
    await starting
    started_s = time.monotonic() - begun
    reports = agents.counts["reports"]
    while agents.counts["reports"] < reports + options.instances:
        await asyncio.sleep(0.2)
    print(f"after kill -9 it answers within {started_s:.1f} s, and has heard of all instances after", end=" ")
    print(
        f"{time.monotonic() - begun:.1f} s; lost: {agents.counts.get('over', 0)}; PSS {pss_mb(pid_of(service)):.0f} MB"
    )


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assignments = Path(directory) / "assignments"
        assignments.mkdir()
        service = Service(
            state_dir=Path(directory) / "state",
            settings={"executor": "ray", "ray_address": str(assignments), "lease_s": 60, "region": REGION},
            variables={"PYTHONPATH": str(HOLLOW)},
        )
        with service:
            pass
        begun = time.monotonic()
        store_finished(service.state_dir / "state.db", options.finished)
        size_gb = (service.state_dir / "state.db").stat().st_size / 1e9
        print(
            f"stored {options.finished} finished jobs in {time.monotonic() - begun:.0f} s, {size_gb:.1f} GB", flush=True
        )
        begun = time.monotonic()
        with service:
            seconds, memory_mb = time.monotonic() - begun, pss_mb(pid_of(service))
            print(f"the service answers {seconds:.1f} s after its start, PSS {memory_mb:.0f} MB", flush=True)
            prefer(pid_of(service), options.nice)
            service.client("s3").create_bucket(Bucket="bucket")
            agents = await Agents.start(assignments, service.url)
            try:
                print(
                    f"all of them run after {await create_jobs(service, options.instances, agents):.0f} s", flush=True
                )
                await measure(service, agents, options)
                await collect(service, assignments)
                await restart(service, agents, options)
            finally:
                await agents.end()
                service.kill()


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--nice", type=int, help="priority of the service and of both clients")
    parser.add_argument("--simulate", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.nice is not None:
        os.setpriority(os.PRIO_PROCESS, 0, options.nice)  # child processes inherit the priority
        prefer(os.getpid(), options.nice)
    work = run(options) if options.simulate is None else simulate(options.simulate, options.url)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


if __name__ == "__main__":
    main()
