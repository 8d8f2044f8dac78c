"""Amazon SageMaker: training and transform jobs, pipelines, models, endpoints, model packages, tags."""

from tidemill.services.sagemaker.service import SageMakerService

__all__ = ["SageMakerService"]
