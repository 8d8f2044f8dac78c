"""gRPC's health protocol: the method Check of grpc.health.v1, which probes of load balancers and clusters call."""

from typing import Any

from tidemill_serving.errors import not_found
from tidemill_serving.messages.definitions import messages
from tidemill_serving.registry import Registry

CHECK_PATH = "/grpc.health.v1.Health/Check"
_SERVICES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
_SERVING, _NOT_SERVING = 1, 2


def check_health(request: Any, registry: Registry) -> Any:
    """Answer a HealthCheckRequest: SERVING if each model has a loaded version.

    Args:
        request: ``service`` is empty, the name of a service of TF Serving, or the name of a model, which limits the
            check to this model.

    Raises:
        RequestError: NOT_FOUND, there is no such service and no such model.
    """
    names = registry.names if request.service in _SERVICES else (request.service,)
    if not set(names) <= set(registry.names):
        raise not_found(f"Unknown service {request.service!r}; expected a model, or one of {', '.join(_SERVICES[1:])}")
    serving = all(registry.loaded(name) for name in names)
    return messages().HealthCheckResponse(status=_SERVING if serving else _NOT_SERVING)
