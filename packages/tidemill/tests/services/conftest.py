"""The services behind the gateway on a loopback port, for botocore's clients.

Server and clients live for the whole run; each test begins without records and logs (`Stage`). No driver runs, so a
test sets the states of jobs and endpoints itself.
"""

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import boto3
import botocore.loaders
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from sqlalchemy import delete

from tidemill._shared.http.exchange import Exchange
from tidemill.control.async_queue import AsyncQueue
from tidemill.control.bucket_rules import BucketRules
from tidemill.control.changes import ChangeFeed
from tidemill.control.credentials import Credentials
from tidemill.control.endpoints import EndpointDriver
from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.experiments.lineage import Lineage
from tidemill.control.hosting import ENDPOINT, Hosting
from tidemill.control.iam_roles import IamRoles
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.jobs import TRAINING
from tidemill.control.kms_keys import KmsKeys
from tidemill.control.logs.groups import GroupRecords
from tidemill.control.pipelines.driver import PipelineDriver
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.processing.jobs import ProcessingJobs
from tidemill.control.registry.packages import ModelRegistry
from tidemill.control.resources import TRAINING_JOB, endpoint_record
from tidemill.control.scalars.scalars import TrainingScalars
from tidemill.control.scalars.sources import EventSources
from tidemill.control.scaling.autoscaler import Autoscaler
from tidemill.control.scaling.targets import ScalableTargets
from tidemill.control.slots import Slots
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.control.transform.jobs import TransformJobs
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.control.user_keys import UserKeys
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.hosting import Endpoint, Instance
from tidemill.core.instances import InstanceRef
from tidemill.core.policy_document import read_policy
from tidemill.core.roles import Roles
from tidemill.core.segments import SegmentWriter, create_stream
from tidemill.core.training import TrainingJob
from tidemill.executors.base import EventFile, UnixServer
from tidemill.sdk import Session
from tidemill.sdk.boto import loopback_session
from tidemill.server.logs import LogParts
from tidemill.server.metrics import metric_services
from tidemill.services.authorization import Authorization
from tidemill.services.autoscaling import AutoScalingService
from tidemill.services.iam import IamService
from tidemill.services.kms import KmsService
from tidemill.services.page import PageService
from tidemill.services.page.changes import VIEWED, ChangeOperations
from tidemill.services.page.jobs import JobOperations, JobResources
from tidemill.services.page.log_lines import LogLineOperations
from tidemill.services.page.samples import SampleOperations
from tidemill.services.page.scalars import ScalarOperations
from tidemill.services.runtime import RuntimeService
from tidemill.services.s3 import S3Service
from tidemill.services.sagemaker import SageMakerService
from tidemill.services.sagemaker.resources import SageMakerResources
from tidemill.services.sts import StsService
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.streams import LogStreams
from tidemill.store.objects import index as object_index
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import RecordStore
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.exchange import Service
from tidemill.wire.gateway import Gateway, HttpServer
from tidemill.wire.perform import Performer
from tidemill.wire.protocols.models import OWN_MODELS
from tidemill.wire.signing.credentials import Credential

REGION = "us-west-2"
USER = Credential(
    "AKIATIDEMILLTESTS000",
    "tidemill-tests-secret",
    arn="arn:aws:sts::000000000000:assumed-role/SageMakerRole/user",
    unrestricted=True,
)
RESTRICTED = Credential(
    "ASIATIDEMILLTESTS000",
    "restricted-secret",
    arn="arn:aws:sts::000000000000:assumed-role/SageMakerRole/SageMaker",
    role="SageMakerRole",
)

READER = read_policy({"Statement": {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*"], "Resource": "*"}})
"""Policy of the role Reader."""


class Keys:
    """Finds the owner's key pair, those of further users, and a restricted one without a job."""

    def __init__(self, records: RecordStore, clock: Clock) -> None:
        self.iam_roles = IamRoles(records, clock=clock)
        self.roles = Roles({"Reader": READER}, stored=self.iam_roles.policy_of)
        self.others = Credentials(USER, records, clock=clock, roles=self.roles)

    def lookup(self, access_key_id: str) -> Credential | None:
        return RESTRICTED if access_key_id == RESTRICTED.access_key_id else self.others.lookup(access_key_id)


class SetClock:
    """A clock whose time a test sets."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class Sockets:
    """The part of an executor that a call of an endpoint needs: the socket of each instance."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def server_address(self, ref: InstanceRef) -> UnixServer:
        return UnixServer(self._directory / f"{ref.job_id[:12]}.sock")


class EventFiles:
    """The part of an executor that scalars need: event files of running instances, in a directory of the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def event_files(self, ref: InstanceRef) -> list[EventFile]:
        files = sorted(path for path in self.directory.rglob("*tfevents*") if path.is_file())
        return [
            EventFile(str(path.relative_to(self.directory)), path.stat().st_size, f"{path.stat().st_ino}")
            for path in files
        ]

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        return os.open(self.directory / name, os.O_RDONLY)


class Stage:
    """The stores and services of one test."""

    def __init__(self, root: Path, database: SqliteDatabase, objects: ObjectStore) -> None:
        self.clock = SetClock()
        self.capacity = 8
        self.slots = Slots(lambda: self.capacity)
        self.woken: list[str] = []
        self._drivers: list[EndpointDriver] = []
        self.logs = root / "logs"
        self.logs.mkdir()
        self.sockets = root
        self.records = SqlRecordStore(database, clock=self.clock)
        self.feed = ChangeFeed(VIEWED)
        self.instances_files = root / "instances"
        sources = EventSources(objects, EventFiles(self.instances_files))  # type: ignore[arg-type]
        self.scalars = TrainingScalars(self.records, sources)
        self.records.when_changed(self.feed.note)
        self._objects = objects
        self.training = Training(self.records, objects, region=REGION, clock=self.clock, wake=self.woken.append)
        self.processing = ProcessingJobs(self.records, objects, region=REGION, clock=self.clock, wake=self.woken.append)
        self.transform = TransformJobs(self.records, objects, region=REGION, clock=self.clock, wake=self.woken.append)
        self.registry = ModelRegistry(self.records, region=REGION, clock=self.clock)
        self.tuning = TuningJobs(self.records, self.training, region=REGION, clock=self.clock, wake=self.woken.append)
        self.experiments = Experiments(self.records, region=REGION, clock=self.clock)
        self.components = TrialComponents(self.records, region=REGION, clock=self.clock)
        self.lineage = Lineage(self.records, region=REGION, clock=self.clock)
        self.hosting = Hosting(
            self.records, region=REGION, clock=self.clock, wake=lambda endpoint: self.woken.append(endpoint.name)
        )

        self.roles = Roles({}, stored=IamRoles(self.records, clock=self.clock).policy_of)
        self.pipelines = Pipelines(self.records, objects, region=REGION, clock=self.clock)
        self.pipeline_driver = PipelineDriver(self.records, objects, self.pipelines, clock=self.clock)

    def gateway(self, *, timeout_s: float = 30, refuses_encryption: bool = False) -> Gateway:
        """Return a gateway with all services; ``timeout_s`` is the time limit of models."""
        driver = EndpointDriver(
            self.records,
            Sockets(self.sockets),  # type: ignore[arg-type]
            planner=None,  # type: ignore[arg-type] - no endpoint is started
            clock=self.clock,
        )
        self._drivers.append(driver)
        targets = ScalableTargets(self.records, clock=self.clock)
        self.autoscaler = Autoscaler(
            targets,
            self.hosting,
            invocations=driver.invocations,
            clock=self.clock,
            capacity=lambda: self.capacity,
        )
        queue = AsyncQueue(
            self.records,
            self._objects,
            driver,
            endpoint_of=self.hosting.in_service,
            roles=self.roles,
            clock=self.clock,
        )
        credentials = Keys(self.records, self.clock)
        keys = KmsKeys(self.records, region=REGION, clock=self.clock)
        encrypts = not refuses_encryption
        rules = BucketRules(self.records, self._objects, keys, clock=self.clock, encrypts=encrypts)
        self.log_parts = LogParts.of(self.logs, self.records, region=REGION, clock=self.clock)
        services: dict[str, Service] = {
            "sagemaker": SageMakerService(
                SageMakerResources(
                    training=self.training,
                    processing=self.processing,
                    hosting=self.hosting,
                    transform=self.transform,
                    tuning=self.tuning,
                    registry=self.registry,
                    experiments=self.experiments,
                    components=self.components,
                    lineage=self.lineage,
                    pipelines=self.pipelines,
                    executions=self.pipeline_driver.executions,
                    records=self.records,
                    tags=Tags(self.records, clock=self.clock),
                )
            ),
            **metric_services(
                *(self.records, TrainingMetrics(self.records, logs=self.logs), driver.counts.history),
                InstanceSamples(self.records, logs=self.logs),
                region=REGION,
                clock=self.clock,
            ),
            "sagemaker-runtime": RuntimeService(self.hosting, driver, queue, region=REGION, timeout_s=timeout_s),
            "logs": self.log_parts.service,
            "application-autoscaling": AutoScalingService(targets, region=REGION),
            "sts": StsService(credentials.others),
            "kms": KmsService(keys),
            "s3": S3Service(self._objects, keys, rules, region=REGION, records_encryption=encrypts),
            "iam": IamService(
                UserKeys(self.records, clock=self.clock),
                credentials.iam_roles,
                credentials.roles,
                owner=USER.access_key_id,
            ),
        }
        tags = Tags(self.records, clock=self.clock)
        job_resources = JobResources(
            records=self.records,
            tags=tags,
            metrics=TrainingMetrics(self.records, logs=self.logs),
            slots=self.slots,
        )
        services["tidemill"] = PageService(
            services["tidemill"],
            ChangeOperations(self.feed),
            SampleOperations(InstanceSamples(self.records, logs=self.logs)),
            ScalarOperations(self.scalars),
            JobOperations(job_resources),
            LogLineOperations(LogStreams(self.logs), GroupRecords(self.records, clock=self.clock), search_cpu_s=5),
        )
        authorizer = Authorization(self.roles, rules=rules, keys=keys, tags_of=tags.of_named, clock=self.clock)
        perform = Performer(services, authorizer, region=REGION, refuses_encryption=refuses_encryption)
        self.step_requests = StepRequests(perform, credentials, self.roles)
        return Gateway(
            services,
            credentials,
            authorizer=authorizer,
            region=REGION,
            refuses_encryption=refuses_encryption,
        )

    async def close(self) -> None:
        """Close everything that is open in the server's event loop."""
        await self.pipeline_driver.close()
        await self.log_parts.queries.close()
        for driver in self._drivers:
            await driver.close()

    def change_job(self, name: str, change: Callable[[TrainingJob], TrainingJob]) -> None:
        """Change the state of a training job, as its driver would."""
        document = TrainingJob.from_document
        asyncio.run(
            self.records.update(TRAINING_JOB, name, lambda record: TRAINING.write(change(document(record.document))))
        )

    def change_endpoint(self, name: str, change: Callable[[Endpoint], Endpoint]) -> None:
        """Change the state of an endpoint, as its driver would."""

        def change_record(record: Any) -> Any:
            return endpoint_record(change(Endpoint.from_document(record.document)))

        asyncio.run(self.records.update(ENDPOINT, name, change_record))

    def bring_up(self, name: str) -> None:
        """Simulate that the starting deployment of an endpoint is ready and takes over."""

        def come_up(endpoint: Endpoint) -> Endpoint:
            for instance in endpoint.instances:
                endpoint = endpoint.made_ready(instance)
            return endpoint.promoted()

        self.change_endpoint(name, come_up)

    def instances(self, name: str, variant: str = "AllTraffic") -> tuple[Instance, ...]:
        """Return the serving instances of a variant."""
        serving = self.hosting.endpoint(name).serving
        found = serving.find(variant) if serving else None
        return found.instances if found else ()

    def write_log(self, group: str, stream: str, events: list[tuple[int, str]]) -> None:
        """Append events (time in milliseconds, message) to a log stream."""
        clock = SetClock()
        clock.ms = events[0][0] if events else self.clock.ms
        with SegmentWriter(create_stream(self.logs, group, stream, clock=clock), clock=clock) as writer:
            for clock.ms, message in events:
                writer.write(message.encode())


class Door:
    """A server in a thread of this process, for the gateway of the current test."""

    def __init__(self) -> None:
        self.gateway: Gateway | None = None
        self.url = ""
        self._loop = asyncio.new_event_loop()

    async def __call__(self, exchange: Exchange) -> None:
        assert self.gateway is not None, "no test is running"
        await self.gateway(exchange)

    def run(self, work: Coroutine[Any, Any, object]) -> None:
        """Run ``work`` in the server's event loop, to which the connections of its services belong."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve until the block ends."""
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen(128)
            self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            stop = asyncio.Event()
            thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(sock, stop),))
            thread.start()
            try:
                yield
            finally:
                self._loop.call_soon_threadsafe(stop.set)
                thread.join(20)
                self._loop.close()

    async def _serve(self, sock: socket.socket, stop: asyncio.Event) -> None:
        server = HttpServer(self)
        await server.listener.open(sock)
        await stop.wait()
        await server.drain(timeout_s=5)


@pytest.fixture(scope="session")
def door() -> Iterator[Door]:
    door = Door()
    with door.serving():
        yield door


@pytest.fixture(scope="session")
def clients(door: Door) -> Iterator[Callable[..., Any]]:
    """Yield a function that returns a service's botocore client, with the user's or given keys, created once."""
    session = boto3.Session()
    # Not a further path of the loader that all sessions share: it may have noted already which services there are.
    session._session.register_component("data_loader", botocore.loaders.create_loader(str(OWN_MODELS)))
    made: dict[tuple[str, str, str | None], Any] = {}

    def client(service: str, keys: Credential = USER) -> Any:
        wanted = service, keys.access_key_id, keys.session_token
        if wanted not in made:
            made[wanted] = session.client(
                service,
                endpoint_url=door.url,
                region_name=REGION,
                aws_access_key_id=keys.access_key_id,
                aws_secret_access_key=keys.secret_access_key,
                aws_session_token=keys.session_token,
                config=Config(retries={"total_max_attempts": 1}, read_timeout=60),
            )
        return made[wanted]

    yield client
    for each in made.values():
        each.close()


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteDatabase]:
    with SqliteDatabase.open(tmp_path_factory.mktemp("database") / "state.db", metadata=metadata) as database:
        yield database


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory, database: SqliteDatabase, door: Door) -> Iterator[ObjectStore]:
    """Yield an object store with the bucket ``data``, which no test changes."""
    database.write_sync(lambda connection: object_index.insert_bucket(connection, "data", 0))
    objects = ObjectStore(database, tmp_path_factory.mktemp("objects"), clock=SystemClock())
    yield objects
    door.run(objects.close())


@pytest.fixture
def stage(tmp_path: Path, door: Door, database: SqliteDatabase, objects: ObjectStore) -> Iterator[Stage]:
    """Yield a stage without records and logs, behind the server while the test runs."""
    database.write_sync(lambda connection: connection.execute(delete(records)) and None)
    stage = Stage(tmp_path, database, objects)
    door.gateway = stage.gateway()
    yield stage
    door.gateway = None
    door.run(stage.close())


@pytest.fixture
def sagemaker(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("sagemaker")


@pytest.fixture
def logs(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("logs")


@pytest.fixture
def cloudwatch(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("cloudwatch")


@pytest.fixture
def own(clients: Callable[..., Any], stage: Stage) -> Any:
    """Return a client of tidemill's own operations."""
    return clients("tidemill")


@pytest.fixture
def metrics(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("sagemaker-metrics")


@pytest.fixture
def runtime(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("sagemaker-runtime")


@pytest.fixture
def autoscaling(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("application-autoscaling")


@pytest.fixture
def sts(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("sts")


@pytest.fixture
def iam(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("iam")


@pytest.fixture
def kms(clients: Callable[..., Any], stage: Stage) -> Any:
    return clients("kms")


@pytest.fixture
def session(stage: Stage, door: Door) -> Iterator[Session]:
    """Yield a session of tidemill's SDK with the user's keys, whose default bucket is ``data``."""
    made = Session(
        loopback_session(
            endpoint_url=door.url,
            region=REGION,
            access_key_id=USER.access_key_id,
            secret_access_key=USER.secret_access_key,
        ),
        default_bucket="data",
    )
    yield made
    for client in made._clients.values():
        client.close()


@pytest.fixture
def restricted(clients: Callable[..., Any], stage: Stage) -> Callable[[str], Any]:
    """Return a function that returns clients with keys to which no policy allows anything."""
    return lambda service: clients(service, RESTRICTED)


@pytest.fixture
def refusal() -> Callable[..., tuple[int, str, str]]:
    """Return a function that returns status, error code and message of a refused call."""

    def refused(call: Callable[..., Any], **members: Any) -> tuple[int, str, str]:
        with pytest.raises(ClientError) as caught:
            call(**members)
        response = caught.value.response
        return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], response["Error"]["Message"]

    return refused


class _ModelServer(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client has disconnected
            super().handle_error(request, client_address)


@pytest.fixture
def serve_model(stage: Stage) -> Iterator[Callable[..., None]]:
    """Yield a function that starts an instance's server (by default that of the endpoint ``digits``) on its socket.

    The server answers with a function of the request and its body, which returns status, headers and body, or None to
    close the connection.
    """
    servers: list[_ModelServer] = []

    def serve(
        answer: Callable[[Any, bytes], tuple[int, dict[str, str], bytes] | None], *, instance: Instance | None = None
    ) -> None:
        served = instance or stage.instances("digits")[0]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                given = answer(self, body)
                if given is None:
                    self.close_connection = True
                    return
                status, headers, data = given
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        server = _ModelServer(str(stage.sockets / f"{served.job_id[:12]}.sock"), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()
