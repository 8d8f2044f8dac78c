"""The resources of SageMaker by kind, as the handlers of its operations use them."""

from dataclasses import dataclass

from tidemill.control.experiments.components import TrialComponents
from tidemill.control.experiments.experiments import Experiments
from tidemill.control.experiments.lineage import Lineage
from tidemill.control.hosting import Hosting
from tidemill.control.pipelines.executions import Executions
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.control.processing.jobs import ProcessingJobs
from tidemill.control.registry.packages import ModelRegistry
from tidemill.control.tags import Tags
from tidemill.control.training.jobs import Training
from tidemill.control.transform.jobs import TransformJobs
from tidemill.control.tuning.jobs import TuningJobs
from tidemill.store.records.base import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SageMakerResources:
    """The resources.

    Attributes:
        training: The training jobs.
        hosting: Models, endpoint configurations and endpoints.
        transform: The batch transform jobs.
        tuning: The hyperparameter tuning jobs.
        registry: Model packages and their groups.
        experiments: Experiments and trials.
        lineage: Artifacts and their associations.
        records: Stores all resources, for searches.
    """

    training: Training
    processing: ProcessingJobs
    hosting: Hosting
    transform: TransformJobs
    tuning: TuningJobs
    registry: ModelRegistry
    experiments: Experiments
    components: TrialComponents
    lineage: Lineage
    pipelines: Pipelines
    executions: Executions
    records: RecordStore
    tags: Tags
