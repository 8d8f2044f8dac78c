"""The composition root: creates every part once, and passes each part what it needs."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from tidemill import __version__
from tidemill.control.async_queue import AsyncQueue
from tidemill.control.bucket_rules import BucketRules
from tidemill.control.credentials import Credentials
from tidemill.control.denials import Denials
from tidemill.control.driver import TrainingDriver
from tidemill.control.endpoints import EndpointDriver
from tidemill.control.endpoints.capture import Capture
from tidemill.control.hosting import Hosting
from tidemill.control.job_archive import JobArchive
from tidemill.control.kms_keys import KmsKeys
from tidemill.control.plan import InstancePlanner
from tidemill.control.publish import Publisher
from tidemill.control.server_keys import ServerKeys
from tidemill.control.slots import Slots
from tidemill.control.sweep import clean_up, find_leftovers
from tidemill.control.tags import Tags
from tidemill.control.training import Training
from tidemill.control.training_metrics import TrainingMetrics
from tidemill.control.transform.driver import TransformDriver
from tidemill.control.transform.jobs import TransformJobs
from tidemill.control.user_keys import UserKeys
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.frameworks import Frameworks
from tidemill.core.names import ACCOUNT_ID, S3Uri, default_bucket
from tidemill.core.roles import Roles
from tidemill.errors import ConfigurationError, TidemillError
from tidemill.executors.base import Executor
from tidemill.executors.cluster.executor import ClusterExecutor
from tidemill.executors.local import LocalExecutor
from tidemill.executors.split import SplitExecutor
from tidemill.instance.spec import Isolation
from tidemill.sandbox.private_files import credential_files
from tidemill.server.database import open_postgresql, open_sqlite
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory
from tidemill.services.authorization import Authorization
from tidemill.services.cloudwatch import CloudWatchService
from tidemill.services.iam import IamService
from tidemill.services.instances import InstancesService
from tidemill.services.kms import KmsService
from tidemill.services.logs import LogsService
from tidemill.services.runtime import RuntimeService
from tidemill.services.s3 import HandedFiles, S3Service
from tidemill.services.sagemaker import SageMakerService
from tidemill.services.sts import StsService
from tidemill.settings import Settings
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.backup import Backups
from tidemill.store.leases import SqlLeaseRecords
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.logs.streams import LogStreams
from tidemill.store.objects.contents import Elsewhere
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.gateway import BodyLimits, Gateway
from tidemill.wire.signing.credentials import Credential

__all__ = ["Application", "private_paths"]

_log = structlog.get_logger("tidemill.server")
_BACKUP_RETRY_S = 600.0
_LINKS_IDLE_S = 600.0
_TIDY_INTERVAL_S = 60.0

_Driver = TrainingDriver | TransformDriver | EndpointDriver


class Application:
    """All parts of the service, which are opened and closed together. Nothing is opened before `opened`.

    Args:
        settings: The settings.
        state: The state directory, locked.
        keys: The owner's keys.
        url: Returns the URL for clients and jobs of this machine.
        public_url: URL for other machines; empty if the service does not listen for them.
        relay: Host and port at which a standby service reaches this one.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        state: StateDirectory,
        keys: Keys,
        url: Callable[[], str],
        public_url: str = "",
        relay: tuple[str, int] = ("", 0),
    ) -> None:
        self._settings = settings
        self._state = state
        self._keys = keys
        self._url = url
        self._public_url = public_url
        self._relay = relay
        self._is_certain: Callable[[], bool] | None = None
        self._cluster: ClusterExecutor | None = None
        self._backups: Backups | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Gateway]:
        """Open every part, and close all of them when the block ends. Yields the ASGI application for all requests."""
        async with AsyncExitStack() as stack:
            yield await self._open(stack)

    def begin_leases(self) -> None:
        """Begin the leases of instances on other machines, whose agents reach the service from now on."""
        if self._cluster is not None:
            self._cluster.instances.begin_leases()

    def end_waits(self) -> None:
        """Answer requests at once that wait for news: the service is about to end."""
        if self._cluster is not None:
            self._cluster.instances.close()

    async def _open(self, stack: AsyncExitStack) -> Gateway:
        settings, state = self._settings, self._state
        database, clock = self._open_database(stack)
        records = SqlRecordStore(database, clock=clock)
        objects = await self._open_objects(stack, database, clock)
        await objects.ensure_bucket(default_bucket(settings.region))
        local = LocalExecutor(
            state_dir=state.root,
            environments_dir=settings.environments_dir,
            isolation=settings.isolation,
            instances=settings.max_instances,
            content_file=objects.contents.location,
            remotes=settings.remote_s3,
            logs=state.logs,
            service_url=self._url(),
            gpus=settings.gpus,
            share_gpus=settings.share_gpus,
            fast_file_cache_max_bytes=settings.fast_file_cache_max_bytes,
            private=private_paths(settings),
            readable=settings.readable_paths,
        )
        stack.callback(local.close)
        if settings.warm:
            local.warm_up(settings.default_framework)
        cluster = self._cluster = self._open_cluster(stack, database)
        executor: Executor = SplitExecutor(local, cluster) if cluster else local
        frameworks = Frameworks(settings.images)
        planner = InstancePlanner(
            objects,
            logs=state.logs,
            region=settings.region,
            grace_s=settings.stop_grace_s,
            warm=settings.warm,
            remotes=settings.remote_s3,
            capacity=executor.capacity,
            limits=settings.limit_policy,
            # With a cluster, only the machine of an instance knows; its shim refuses.
            fast_file_fault=str if cluster else local.fast_file_fault,
            frameworks=frameworks,
        )
        tags = Tags(records, clock=clock)
        user = Credential(
            self._keys.access_key_id,
            self._keys.secret_access_key,
            # AWS's SDKs parse the role for jobs from this ARN.
            arn=f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/SageMakerRole/user",
            unrestricted=True,
        )
        credentials = Credentials(user, records, clock=clock)
        denials = Denials(records, clock=clock)
        service_variables = {"AWS_ENDPOINT_URL": self._url()}
        kms = KmsKeys(records, region=settings.region, clock=clock)
        keys = ServerKeys(credentials, service_variables=service_variables)
        archive = JobArchive(state.jobs)
        rules = BucketRules(records, objects, kms, clock=clock, encrypts=settings.encryption == "record")
        publisher = Publisher(objects, executor, archive=archive, logs=state.logs, rules=rules)
        slots = Slots(lambda: executor.capacity().instances, gpus=lambda: executor.capacity().gpus)
        roles = Roles(settings.roles)
        jobs = TrainingDriver(
            records,
            executor,
            planner=planner,
            publisher=publisher,
            credentials=credentials,
            denials=denials,
            slots=slots,
            service_variables=service_variables,
            clock=clock,
        )
        capture = Capture(objects, clock=clock)
        stack.push_async_callback(capture.flush)
        _background(stack, capture.run(), "data capture")
        endpoints = EndpointDriver(
            records,
            executor,
            planner=planner,
            clock=clock,
            keys=keys,
            capture=capture,
            serverless_idle_s=settings.serverless_idle_s,
        )
        transforms = TransformDriver(
            records,
            objects,
            executor,
            planner=planner,
            slots=slots,
            archive=archive,
            roles=roles,
            keys=keys,
            denials=denials,
            rules=rules,
            remotes=settings.remote_s3,
            logs=state.logs,
            clock=clock,
        )
        training = Training(
            records,
            objects,
            region=settings.region,
            clock=clock,
            wake=jobs.wake,
            no_network=executor.no_network,
            mounts=executor.isolation is not Isolation.PLAIN,
            clustered=cluster is not None,
            # The machines of a cluster may come and go while a job waits.
            capacity=None if cluster else executor.capacity,
            frameworks=frameworks,
        )
        hosting = Hosting(records, region=settings.region, clock=clock, wake=endpoints.wake, frameworks=frameworks)
        transform_jobs = TransformJobs(records, objects, region=settings.region, clock=clock, wake=transforms.wake)
        leftovers = await find_leftovers(records, executor, publisher, transforms, archive=archive, clock=clock)
        await self._run_in_background(stack, (jobs, transforms, endpoints), executor)
        queue = AsyncQueue(records, objects, endpoints, endpoint_of=hosting.in_service, roles=roles, clock=clock)
        stack.push_async_callback(queue.close)
        await queue.start()
        _background(stack, _sweep_objects(objects, self._backups), "sweep of objects")
        _background(stack, clean_up(leftovers), "clean-up after ended jobs")
        _background(stack, _remove_unused(local), "removal of links")
        _log.info("service.isolation", mode=str(executor.isolation), reason=local.isolation_reason)
        _log.info("service.capacity", **asdict(executor.capacity()))
        handed_files = HandedFiles(objects.contents.disk, limit_bytes=settings.object_max_bytes)
        gateway = Gateway(
            {
                "sagemaker": SageMakerService(training, hosting, transform_jobs, tags, kms),
                "sagemaker-runtime": RuntimeService(
                    hosting, endpoints, queue, region=settings.region, timeout_s=settings.invoke_timeout_s
                ),
                "logs": LogsService(LogStreams(state.logs), region=settings.region),
                "cloudwatch": CloudWatchService(TrainingMetrics(records, logs=state.logs), clock=clock),
                "sts": StsService(),
                "iam": IamService(UserKeys(records, clock=clock), owner=user.access_key_id),
                "kms": KmsService(kms),
                "s3": S3Service(
                    objects,
                    kms,
                    rules,
                    region=settings.region,
                    handed_files=handed_files,
                    records_encryption=settings.encryption == "record",
                ),
                **({"tidemill-instances": InstancesService(cluster.instances)} if cluster else {}),
            },
            credentials,
            authorizer=Authorization(roles, denials, rules=rules),
            region=settings.region,
            allowed_hosts=(*settings.allowed_hosts, settings.host.strip("[]")),
            clock=clock,
            is_certain=self._is_certain,
            refuses_encryption=settings.encryption == "refuse",
            limits=BodyLimits(invoke_bytes=settings.invoke_max_bytes, object_bytes=settings.object_max_bytes),
            health={
                "version": __version__,
                "isolation": str(executor.isolation),
                "isolation_reason": local.isolation_reason,
            },
        )
        if objects.contents.new is objects.contents.disk:
            await stack.enter_async_context(handed_files.listening(state.files_socket))
        # The models load in the background; an earlier request loads the model that it needs.
        _background(stack, asyncio.to_thread(gateway.warm), "models")
        return gateway

    async def _open_objects(self, stack: AsyncExitStack, database: Database, clock: Clock) -> ObjectStore:
        settings = self._settings
        elsewhere = Elsewhere(
            S3Uri.parse(settings.object_store) if settings.object_store else None,
            remotes=settings.remote_s3,
            copies_max_bytes=settings.object_copies_max_bytes,
        )
        objects = ObjectStore(database, self._state.objects, clock=clock, elsewhere=elsewhere)
        stack.push_async_callback(objects.close)
        taken_back = await asyncio.to_thread(objects.take_back)
        if taken_back:
            _log.info("objects.taken_back", files=taken_back, reason="rows of the database name them again")
        await asyncio.to_thread(objects.contents.remote.check)
        if elsewhere.home is not None:
            _log.info("service.object_store", uri=str(elsewhere.home))
        _background(stack, objects.contents.remote.keep_clean(), "clean-up of the other S3")
        return objects

    def _open_cluster(self, stack: AsyncExitStack, database: Database) -> ClusterExecutor | None:
        """Return the executor for training jobs on other machines, if the settings request one."""
        settings = self._settings
        if settings.executor == "local":
            return None
        if not self._public_url:
            _log.warning("cluster.one_machine", reason="other machines cannot reach the service: set host, and TLS")
        # Ray takes more than a second to import, and is an extra of the distribution.
        try:
            from tidemill.executors.ray.placement import RayPlacement
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                f"executor = 'ray' needs {error.name}, which is not installed: `pip install 'tidemill[ray]'`"
            ) from error

        cluster = ClusterExecutor(
            self._state.root / "cluster",
            RayPlacement(settings.ray_address),
            logs=SegmentSink(self._state.logs),
            leases=SqlLeaseRecords(database),
            service_url=lambda: self._public_url or self._url(),
            lease_s=settings.lease_s,
            isolation=settings.isolation,
            shares=settings.ray_instance_types,
        )
        stack.callback(cluster.close)
        _background(stack, cluster.instances.keep_time(), "time of leases")
        return cluster

    def _open_database(self, stack: AsyncExitStack) -> tuple[Database, Clock]:
        url, state = self._settings.database_url, self._state
        if url is not None:
            shared = stack.enter_context(open_postgresql(url.get_secret_value(), state, metadata=metadata))
            shared.lead.publish(local_url=self._url(), relay=self._relay)
            self._is_certain = shared.lead.is_certain
            return shared, shared.clock
        database = stack.enter_context(open_sqlite(state, metadata=metadata))
        self._backups = Backups(database, state.backups, clock=SystemClock())
        _background(stack, _make_backups(self._backups), "backups")
        return database, SystemClock()

    async def _run_in_background(self, stack: AsyncExitStack, drivers: Sequence[_Driver], executor: Executor) -> None:
        for driver in drivers:
            stack.push_async_callback(driver.close)
        for driver in drivers:
            await driver.start()
        _background(stack, _dispatch(executor, drivers), "executor changes")


async def _dispatch(executor: Executor, drivers: Sequence[_Driver]) -> None:
    """Forward changes of instances to their drivers."""
    while True:
        for ref in await executor.changed(timeout_s=60):
            if not any(driver.changed(ref) for driver in drivers):
                _log.debug("instance.unknown", job_id=ref.job_id)


async def _make_backups(backups: Backups) -> None:
    while True:
        await asyncio.sleep(backups.wait_s())
        try:
            await backups.make()
        except (OSError, TidemillError) as error:
            _log.warning("backup.failed", reason=str(error))
            await asyncio.sleep(_BACKUP_RETRY_S)


async def _sweep_objects(objects: ObjectStore, backups: Backups | None) -> None:
    swept = await objects.sweep()
    if swept.removed:
        _log.info("objects.swept", files=swept.removed)
    if swept.folder is not None:
        _log.warning(
            "objects.set_aside",
            files=swept.set_aside,
            size_bytes=swept.size_bytes,
            folder=str(swept.folder),
            reason="the database does not know them: it is older than they are, or a put was interrupted",
            kept="24 hours, and as long as a backup that is older than this sweep",
        )
    while True:
        try:
            removed = await objects.tidy(needed_since_ms=backups.oldest_ms() if backups else None)
            if removed:
                _log.info("objects.trash_removed", files=removed)
        except (OSError, TidemillError) as error:
            _log.warning("objects.tidy_failed", reason=str(error))
        await asyncio.sleep(_TIDY_INTERVAL_S)


async def _remove_unused(local: LocalExecutor) -> None:
    """Remove the links to the data of jobs a while after the last job with that data, and what jobs left behind."""
    while True:
        try:
            removed = await asyncio.to_thread(local.remove_unused_links, idle_s=_LINKS_IDLE_S)
            if removed:
                _log.info("links.removed", directories=removed)
            await asyncio.to_thread(local.remove_leftovers)
        except OSError as error:
            _log.warning("clean_up.delayed", reason=str(error))
        await asyncio.sleep(_LINKS_IDLE_S / 10)


def _background(stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
    """Run ``work`` until the stack unwinds; a failure is logged when it happens, not when the result is awaited."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    stack.push_async_callback(_cancelled, task)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("background.failed", task=task.get_name(), exc_info=task.exception())


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def private_paths(settings: Settings) -> tuple[Path, ...]:
    """Return the files with secrets of the service and of its user that the settings and the environment name."""
    tls_key = () if settings.tls_key is None else (settings.tls_key.absolute(),)
    return (*tls_key, *credential_files(os.environ))
