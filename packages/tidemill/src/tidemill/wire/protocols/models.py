"""botocore's service models, and those of the service's own APIs, loaded on first use and cached.

The models are data files of the installed botocore, so the wire follows AWS's published shapes, which are not repeated
here. Loading the largest takes about 0.2 s; a server loads all models before it listens (`Gateway.warm`).
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import botocore.loaders
from botocore.model import ServiceModel, StructureShape

OWN_MODELS = Path(__file__).resolve().parent.parent / "models"
"""Directory of the models that are not AWS's, in botocore's layout, so that a client's loader can use it too."""

JSON_TARGETS = {
    "SageMaker": "sagemaker",
    "Logs_20140328": "logs",
    "GraniteServiceVersion20100801": "cloudwatch",
    "TrentService": "kms",
    "AnyScaleFrontendService": "application-autoscaling",
    "AmazonEC2ContainerRegistry_V20150921": "ecr",
    "AWSEvents": "events",
    "Tidemill": "tidemill",
    "TidemillInstances": "tidemill-instances",
}
"""Prefix of an X-Amz-Target header -> botocore's service name."""


@lru_cache(maxsize=1)
def _loader() -> Any:
    return botocore.loaders.create_loader(str(OWN_MODELS))


@lru_cache(maxsize=32)
def service_model(service: str) -> ServiceModel:
    """Return the model of a service by botocore's name, e.g. ``sagemaker-runtime``.

    Raises:
        botocore.exceptions.UnknownServiceError: botocore has no such service.
    """
    return ServiceModel(_loader().load_service_model(service, "service-2"), service)


@lru_cache(maxsize=1024)
def error_members(service: str, code: str) -> frozenset[str]:
    """Return the members of an error in the model; empty for codes that the model does not list.

    Args:
        service: Name of the service, e.g. ``s3``.
    """
    model = service_model(service)
    for shape in model.error_shapes:
        if isinstance(shape, StructureShape) and code in (shape.error_code, shape.name):
            return frozenset(shape.members)
    return frozenset()
