"""The SageMaker service: its handlers by operation name."""

from collections.abc import Mapping

from tidemill.control.hosting import Hosting
from tidemill.control.tags import Tags
from tidemill.control.training import Training
from tidemill.control.transform.jobs import TransformJobs
from tidemill.services.sagemaker.hosting import HostingHandlers
from tidemill.services.sagemaker.tags import TagHandlers
from tidemill.services.sagemaker.training import TrainingHandlers
from tidemill.services.sagemaker.transform import TransformHandlers
from tidemill.wire.exchange import Handler

__all__ = ["SageMakerService"]


class SageMakerService:
    """The SageMaker operations that tidemill supports."""

    def __init__(self, training: Training, hosting: Hosting, transform: TransformJobs, tags: Tags) -> None:
        self._handlers: dict[str, Handler] = {
            **TrainingHandlers(training).handlers,
            **HostingHandlers(hosting).handlers,
            **TransformHandlers(transform).handlers,
            **TagHandlers(tags, training, hosting, transform).handlers,
        }

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return self._handlers
