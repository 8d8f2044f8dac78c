"""The SageMaker service: its handlers by operation name."""

from tidemill.services.operations import OperationGroups
from tidemill.services.sagemaker.experiments import ExperimentHandlers
from tidemill.services.sagemaker.hosting import HostingHandlers
from tidemill.services.sagemaker.lineage import LineageHandlers
from tidemill.services.sagemaker.nothing import EmptyLists
from tidemill.services.sagemaker.pipelines import PipelineHandlers
from tidemill.services.sagemaker.processing import ProcessingHandlers
from tidemill.services.sagemaker.registry import RegistryHandlers
from tidemill.services.sagemaker.resources import SageMakerResources
from tidemill.services.sagemaker.search import SearchHandlers
from tidemill.services.sagemaker.tags import TagHandlers
from tidemill.services.sagemaker.training import TrainingHandlers
from tidemill.services.sagemaker.transform import TransformHandlers
from tidemill.services.sagemaker.tuning import TuningHandlers


class SageMakerService(OperationGroups):
    """The SageMaker operations that tidemill supports.

    Args:
        resources: What the operations read and change.
    """

    def __init__(self, resources: SageMakerResources) -> None:
        super().__init__(
            TrainingHandlers(resources.training),
            ProcessingHandlers(resources.processing),
            HostingHandlers(resources.hosting),
            TransformHandlers(resources.transform),
            RegistryHandlers(resources.registry),
            TuningHandlers(resources.tuning, resources.training),
            ExperimentHandlers(resources.experiments, resources.components, resources.training),
            LineageHandlers(resources.lineage),
            SearchHandlers(resources.records, resources.tags),
            PipelineHandlers(resources.pipelines, resources.executions),
            EmptyLists(),
            TagHandlers(resources),
        )
