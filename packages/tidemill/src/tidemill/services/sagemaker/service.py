"""The SageMaker service: its handlers by operation name."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.hosting import Hosting
from tidemill.control.kms_keys import KmsKeys
from tidemill.control.pipelines.executions import Executions
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.control.processing.jobs import Processing
from tidemill.control.registry.packages import Registry
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.transform.jobs import TransformJobs
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.core.compatibility import OPERATIONS, Unencrypted, keys_named
from tidemill.services.sagemaker.experiments import ExperimentHandlers
from tidemill.services.sagemaker.hosting import HostingHandlers
from tidemill.services.sagemaker.nothing import EMPTY_HANDLERS
from tidemill.services.sagemaker.pipelines import PipelineHandlers
from tidemill.services.sagemaker.processing import ProcessingHandlers
from tidemill.services.sagemaker.registry import RegistryHandlers
from tidemill.services.sagemaker.search import SearchHandlers
from tidemill.services.sagemaker.tags import TagHandlers
from tidemill.services.sagemaker.training import TrainingHandlers
from tidemill.services.sagemaker.transform import TransformHandlers
from tidemill.services.sagemaker.tuning import TuningHandlers
from tidemill.store.records.base import RecordStore
from tidemill.wire.exchange import Context, Handler, Reply

__all__ = ["SageMakerService"]


class SageMakerService:
    """The SageMaker operations that tidemill supports.

    Args:
        training: The training jobs.
        processing: The processing jobs.
        hosting: Models, endpoint configurations and endpoints.
        transform: The batch transform jobs.
        tuning: The hyperparameter tuning jobs.
        registry: Model packages and their groups.
        experiments: Experiments and trials.
        components: Trial components.
        records: Stores all resources, for searches.
        tags: The tags of all resources.
        keys: The KMS keys, to which those are added that requests name.
        pipelines: The pipelines.
        executions: Their executions.
    """

    def __init__(
        self,
        training: Training,
        processing: Processing,
        hosting: Hosting,
        transform: TransformJobs,
        tuning: TuningJobs,
        registry: Registry,
        experiments: Experiments,
        components: TrialComponents,
        records: RecordStore,
        tags: Tags,
        keys: KmsKeys,
        *,
        pipelines: Pipelines,
        executions: Executions,
    ) -> None:
        handlers: dict[str, Handler] = {
            **TrainingHandlers(training).handlers,
            **ProcessingHandlers(processing).handlers,
            **HostingHandlers(hosting).handlers,
            **TransformHandlers(transform).handlers,
            **RegistryHandlers(registry).handlers,
            **TuningHandlers(tuning, training).handlers,
            **ExperimentHandlers(experiments, components).handlers,
            **SearchHandlers(records, tags).handlers,
            **PipelineHandlers(pipelines, executions).handlers,
            **EMPTY_HANDLERS,
            **TagHandlers(
                tags, training, processing, hosting, transform, tuning, registry, experiments, components, pipelines
            ).handlers,
        }
        self._handlers = {name: _naming_keys(name, handler, keys) for name, handler in handlers.items()}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers


def _naming_keys(operation: str, handler: Handler, keys: KmsKeys) -> Handler:
    """Return a handler that adds the KMS keys in the request to ``keys`` first."""
    if not any(isinstance(row, Unencrypted) for row in OPERATIONS["sagemaker"][operation].values()):
        return handler

    async def handle(request: dict[str, Any], context: Context) -> Mapping[str, Any] | Reply:
        for key in keys_named("sagemaker", operation, request).values():
            await keys.name(key)
        return await handler(request, context)

    return handle
