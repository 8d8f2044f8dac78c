"""Amazon SageMaker Runtime: InvokeEndpoint."""

from tidemill.services.runtime.service import RuntimeService

__all__ = ["RuntimeService"]
