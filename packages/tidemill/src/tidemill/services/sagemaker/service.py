"""The SageMaker service: its handlers by operation name."""

from collections.abc import Mapping

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
from tidemill.wire.exchange import Handler


class SageMakerService:
    """The SageMaker operations that tidemill supports.

    Args:
        resources: What the operations read and change.
    """

    def __init__(self, resources: SageMakerResources) -> None:
        self._handlers: Mapping[str, Handler] = {
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

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers
