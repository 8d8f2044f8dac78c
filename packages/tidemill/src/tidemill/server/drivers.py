"""Open the drivers, which run the accepted jobs and endpoints, and clean up after earlier services."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tidemill.control.endpoints import EndpointDriver
from tidemill.control.endpoints.capture import Capture
from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import PROCESSING, TRAINING, JobKind, Jobs, S
from tidemill.control.plan import ServerPlanner
from tidemill.control.processing.plan import ProcessingPlanner
from tidemill.control.server_keys import ServerKeys
from tidemill.control.slots import Slots
from tidemill.control.sweep import clean_up, find_leftovers
from tidemill.control.training.driver import TrainingDriver
from tidemill.control.training.plan import JobPlanner, TrainingPlanner
from tidemill.control.training.publish import Publisher
from tidemill.control.transform.driver import TransformDriver
from tidemill.control.transform.runs import TransformRuns
from tidemill.core.frameworks import Frameworks, ProcessingFrameworks
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.server.access import Access
from tidemill.server.executors import Executors
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores

_log = structlog.get_logger("tidemill.server")

_Driver = TrainingDriver[TrainingJob] | TrainingDriver[ProcessingJob] | TransformDriver | EndpointDriver


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The drivers of jobs and endpoints, and the slots for which jobs wait."""

    training: TrainingDriver[TrainingJob]
    processing: TrainingDriver[ProcessingJob]
    transforms: TransformDriver
    endpoints: EndpointDriver
    slots: Slots


async def open_drivers(
    start: Startup, stores: Stores, executors: Executors, access: Access, *, frameworks: Frameworks
) -> Drivers:
    """Start the drivers, and stop them when the service ends; instances continue to run."""
    settings, state = start.settings, start.state
    records, objects, clock, executor = stores.records, stores.objects, stores.clock, executors.executor
    service_variables = {"AWS_ENDPOINT_URL": start.url}
    keys = ServerKeys(access.credentials, service_variables=service_variables)
    archive = JobArchive(state.jobs)
    publisher = Publisher(objects, executor, archive=archive, logs=state.logs, rules=access.rules)
    slots = Slots(lambda: executor.capacity().instances, gpus=lambda: executor.capacity().gpus)

    def driver(kind: JobKind[S], planner: JobPlanner[S]) -> TrainingDriver[S]:
        return TrainingDriver(
            Jobs(records, kind),
            executor,
            planner=planner,
            publisher=publisher,
            credentials=access.credentials,
            denials=access.denials,
            slots=slots,
            service_variables=service_variables,
            clock=clock,
        )

    training = driver(TRAINING, _training_planner(start, stores, executors, frameworks))
    of_processing = _training_planner(start, stores, executors, ProcessingFrameworks(frameworks.images))
    processing = driver(PROCESSING, ProcessingPlanner(of_processing))
    servers = ServerPlanner(
        objects,
        region=settings.region,
        grace_s=settings.stop_grace_s,
        limits=settings.limit_policy,
        frameworks=frameworks,
    )
    endpoints = _endpoint_driver(start, stores, executor, servers, keys)
    transforms = TransformDriver(
        records,
        executor,
        TransformRuns(
            objects, executor, roles=access.roles, rules=access.rules, remotes=settings.remote_s3, logs=state.logs
        ),
        planner=servers,
        slots=slots,
        archive=archive,
        keys=keys,
        denials=access.denials,
        clock=clock,
    )
    for each in (training, processing, transforms):
        each.trace(start.spans)
    leftovers = await find_leftovers(records, executor, publisher, transforms, archive=archive, clock=clock)
    await _start(start, executor, (training, processing, transforms, endpoints))
    start.run(clean_up(leftovers), "clean-up after ended jobs")
    start.run(executors.keep_clean(), "removal of links")
    return Drivers(training=training, processing=processing, transforms=transforms, endpoints=endpoints, slots=slots)


def _training_planner(start: Startup, stores: Stores, executors: Executors, frameworks: Frameworks) -> TrainingPlanner:
    settings = start.settings
    return TrainingPlanner(
        stores.objects,
        region=settings.region,
        grace_s=settings.stop_grace_s,
        warm=settings.warm and executors.agents is None,  # an agent has one instance, and nothing to fork from
        remotes=settings.remote_s3,
        capacity=executors.executor.capacity,
        limits=settings.limit_policy,
        fast_file_fault=executors.fast_file_fault,
        frameworks=frameworks,
    )


def _endpoint_driver(
    start: Startup, stores: Stores, executor: Executor, servers: ServerPlanner, keys: ServerKeys
) -> EndpointDriver:
    capture = Capture(stores.objects, clock=stores.clock)
    start.stack.push_async_callback(capture.flush)
    start.run(capture.run(), "data capture")
    return EndpointDriver(
        stores.records,
        executor,
        planner=servers,
        clock=stores.clock,
        keys=keys,
        capture=capture,
        serverless_idle_s=start.settings.serverless_idle_s,
    )


async def _start(start: Startup, executor: Executor, drivers: Sequence[_Driver]) -> None:
    for driver in drivers:
        start.stack.push_async_callback(driver.close)
    for driver in drivers:
        await driver.start()
    start.run(_dispatch(executor, drivers), "executor changes")


async def _dispatch(executor: Executor, drivers: Sequence[_Driver]) -> None:
    """Forward changes of instances to their drivers."""
    while True:
        for ref in await executor.changed(timeout_s=60):
            if not any(driver.changed(ref) for driver in drivers):
                _log.debug("instance.unknown", job_id=ref.job_id)
