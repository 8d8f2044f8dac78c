"""Open SageMaker's services: jobs, endpoints, registry, experiments, tuning and pipelines."""

from collections.abc import Mapping

from tidemill.control.admission import Capabilities
from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.experiments.lineage import Lineage
from tidemill.control.pipelines.driver import PipelineDriver
from tidemill.control.processing.jobs import ProcessingJobs
from tidemill.control.registry.packages import ModelRegistry
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.control.transform.jobs import TransformJobs
from tidemill.server.access import Access
from tidemill.server.drivers import Drivers
from tidemill.server.hosting import open_hosting
from tidemill.server.observation import open_observation
from tidemill.server.pipelines import open_pipelines
from tidemill.server.scaling import open_scaling
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.server.tuning import open_tuning
from tidemill.services.sagemaker import SageMakerService
from tidemill.services.sagemaker.resources import SageMakerResources
from tidemill.wire.exchange import Service


async def open_sagemaker(
    start: Startup, stores: Stores, access: Access, drivers: Drivers, *, capabilities: Capabilities
) -> tuple[Mapping[str, Service], PipelineDriver]:
    """Return the services by botocore's names, and the driver of pipelines, which is not started yet.

    Args:
        access: Decides about requests.
        drivers: Run jobs and endpoints.
        capabilities: What the service can honor in requests.
    """
    region, records, objects, clock = start.settings.region, stores.records, stores.objects, stores.clock
    hosting, runtime = await open_hosting(start, stores, access, drivers, capabilities=capabilities)
    training = Training(
        records, objects, region=region, clock=clock, wake=drivers.training.wake, capabilities=capabilities
    )
    tags = Tags(records, clock=clock)
    metrics = TrainingMetrics(records, logs=start.state.logs)
    pipelines, pipeline_driver = open_pipelines(start, stores, drivers)
    resources = SageMakerResources(
        training=training,
        processing=ProcessingJobs(
            records, objects, region=region, clock=clock, wake=drivers.processing.wake, capabilities=capabilities
        ),
        hosting=hosting,
        transform=TransformJobs(records, objects, region=region, clock=clock, wake=drivers.transforms.wake),
        tuning=await open_tuning(start, stores, drivers, training, tags, metrics, when_ended=pipeline_driver.job_ended),
        registry=ModelRegistry(records, region=region, clock=clock),
        experiments=Experiments(records, region=region, clock=clock),
        components=TrialComponents(records, region=region, clock=clock),
        lineage=Lineage(records, region=region, clock=clock),
        pipelines=pipelines,
        executions=pipeline_driver.executions,
        records=records,
        tags=tags,
    )
    services: Mapping[str, Service] = {
        "application-autoscaling": open_scaling(start, stores, drivers, hosting),
        "sagemaker": SageMakerService(resources),
        **open_observation(start, stores, drivers, metrics),
        "sagemaker-runtime": runtime,
    }
    return services, pipeline_driver
