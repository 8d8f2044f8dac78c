"""The SageMaker service: its handlers by operation name."""

from collections.abc import Awaitable, Collection, Mapping
from typing import Any

from tidemill.control.kms_keys import KmsKeys
from tidemill.core.compatibility import OPERATIONS, Unencrypted, keys_named
from tidemill.services.sagemaker.experiments import ExperimentHandlers
from tidemill.services.sagemaker.hosting import HostingHandlers
from tidemill.services.sagemaker.lineage import LineageHandlers
from tidemill.services.sagemaker.nothing import EMPTY_HANDLERS
from tidemill.services.sagemaker.pipelines import PipelineHandlers
from tidemill.services.sagemaker.processing import ProcessingHandlers
from tidemill.services.sagemaker.registry import RegistryHandlers
from tidemill.services.sagemaker.resources import SageMakerResources
from tidemill.services.sagemaker.search import SearchHandlers
from tidemill.services.sagemaker.tags import TagHandlers
from tidemill.services.sagemaker.training import TrainingHandlers
from tidemill.services.sagemaker.transform import TransformHandlers
from tidemill.services.sagemaker.tuning import TuningHandlers
from tidemill.wire.exchange import Context, Handler, Reply


class SageMakerService:
    """The SageMaker operations that tidemill supports.

    Args:
        resources: What the operations read and change.
    """

    def __init__(self, resources: SageMakerResources) -> None:
        handlers: dict[str, Handler] = {
            **TrainingHandlers(resources.training).handlers,
            **ProcessingHandlers(resources.processing).handlers,
            **HostingHandlers(resources.hosting).handlers,
            **TransformHandlers(resources.transform).handlers,
            **RegistryHandlers(resources.registry).handlers,
            **TuningHandlers(resources.tuning, resources.training).handlers,
            **ExperimentHandlers(resources.experiments, resources.components).handlers,
            **LineageHandlers(resources.lineage).handlers,
            **SearchHandlers(resources.records, resources.tags).handlers,
            **PipelineHandlers(resources.pipelines, resources.executions).handlers,
            **EMPTY_HANDLERS,
            **TagHandlers(resources).handlers,
        }
        self._handlers = {name: _naming_keys(name, handler, resources.keys) for name, handler in handlers.items()}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers


def _naming_keys(operation: str, handler: Handler, keys: KmsKeys) -> Handler:
    """Return a handler that adds the KMS keys in the request to ``keys`` first."""
    if not any(isinstance(row, Unencrypted) for row in OPERATIONS["sagemaker"][operation].values()):
        return handler

    async def name_and_handle(
        named: Collection[str], request: dict[str, Any], context: Context
    ) -> Mapping[str, Any] | Reply:
        for key in named:
            await keys.name(key)
        return await handler(request, context)

    def handle(request: dict[str, Any], context: Context) -> Awaitable[Mapping[str, Any] | Reply]:
        named = keys_named("sagemaker", operation, request).values()
        return name_and_handle(named, request, context) if named else handler(request, context)

    return handle
