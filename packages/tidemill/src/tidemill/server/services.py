"""Open the gateway to the services of AWS that tidemill implements."""

from collections.abc import Mapping

from tidemill import __version__
from tidemill.control.pipelines.driver import PipelineDriver
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.tags import Tags
from tidemill.control.user_keys import UserKeys
from tidemill.server.access import Access
from tidemill.server.drivers import Drivers
from tidemill.server.executors import Executors
from tidemill.server.live import open_live
from tidemill.server.logs import open_logs
from tidemill.server.machine import open_places
from tidemill.server.monitors import Monitors
from tidemill.server.page import open_page
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.authorization import Authorization
from tidemill.services.iam import IamService
from tidemill.services.instances import InstancesService
from tidemill.services.kms import KmsService
from tidemill.services.s3 import HandedFiles, S3Service
from tidemill.services.sts import StsService
from tidemill.wire.exchange import Service
from tidemill.wire.gateway import BodyLimits, Gateway
from tidemill.wire.perform import Performer


async def open_gateway(
    start: Startup,
    stores: Stores,
    executors: Executors,
    access: Access,
    drivers: Drivers,
    sagemaker: Mapping[str, Service],
    pipelines: PipelineDriver,
    monitors: Monitors,
) -> Gateway:
    """Return the gateway to all services, start the driver that sends requests to them, and take files from the SDK.

    Args:
        executors: Run the instances.
        access: Decides about requests.
        drivers: Run the jobs and endpoints.
        sagemaker: The services of jobs, endpoints and metrics, by botocore's names.
        pipelines: Sends the requests of pipelines' steps.
    """
    settings, state = start.settings, start.state
    objects = stores.objects
    of_places = open_places(start, stores, executors, drivers)
    operations = (
        sagemaker["tidemill"],
        *of_places,
        *open_live(start, stores, executors),
        *monitors.operations,
    )
    own, page = open_page(start, stores, access, operations, monitors.page)
    handed_files = HandedFiles(objects.contents.disk, limit_bytes=settings.object_max_bytes)
    services = {**sagemaker, "tidemill": own, **_others(start, stores, access, handed_files)}
    if executors.agents is not None:
        services["tidemill-instances"] = InstancesService(executors.agents)
    if objects.contents.new is objects.contents.disk:
        await start.stack.enter_async_context(handed_files.listening(state.files_socket))
    authorizer = _authorizer(start, stores, access)
    refuses_encryption = settings.encryption == "refuse"
    perform = Performer(services, authorizer, region=settings.region, refuses_encryption=refuses_encryption)
    await pipelines.start(StepRequests(perform, access.credentials, access.roles))
    return Gateway(
        services,
        access.credentials,
        authorizer=authorizer,
        region=settings.region,
        allowed_hosts=(*settings.allowed_hosts, settings.host.strip("[]")),
        answers_aws=lambda: state.proxy_tokens.exists(),
        clock=stores.clock,
        is_certain=stores.is_certain,
        refuses_encryption=refuses_encryption,
        page=page,
        observer=monitors.observer,
        limits=BodyLimits(invoke_bytes=settings.invoke_max_bytes, object_bytes=settings.object_max_bytes),
        health={
            "version": __version__,
            "isolation": str(executors.executor.isolation),
            "isolation_reason": executors.isolation_reason,
            "warm": "on" if settings.warm else "off",
        },
    )


def _others(start: Startup, stores: Stores, access: Access, handed_files: HandedFiles) -> dict[str, Service]:
    """Return the services beside SageMaker's, by botocore's names."""
    settings, keys = start.settings, UserKeys(stores.records, clock=stores.clock)
    return {
        "logs": open_logs(start, stores),
        "sts": StsService(access.credentials),
        "iam": IamService(keys, access.iam_roles, access.roles, owner=access.owner.access_key_id),
        "kms": KmsService(access.kms),
        "s3": S3Service(
            stores.objects,
            access.kms,
            access.rules,
            region=settings.region,
            handed_files=handed_files,
            records_encryption=settings.encryption == "record",
        ),
    }


def _authorizer(start: Startup, stores: Stores, access: Access) -> Authorization:
    return Authorization(
        access.roles,
        access.denials,
        rules=access.rules,
        keys=access.kms,
        tags_of=Tags(stores.records, clock=stores.clock).of_named,
        clock=stores.clock,
        # A standby of a service with this database forwards the connections of its clients.
        sees_clients=start.settings.database_url is None,
    )
