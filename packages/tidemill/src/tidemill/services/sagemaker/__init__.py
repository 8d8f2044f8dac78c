"""Amazon SageMaker: training jobs, transform jobs, models, endpoint configurations, endpoints, model packages, tags."""

from tidemill.services.sagemaker.service import SageMakerService

__all__ = ["SageMakerService"]
