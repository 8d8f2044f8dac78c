"""gRPC's health protocol, which probes of load balancers and clusters call: Check, and Watch, which streams changes."""

from typing import Any

from tidemill_serving.errors import not_found
from tidemill_serving.grpc_api.call import Call
from tidemill_serving.grpc_api.lookup import parsed
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.schema import ENUMS
from tidemill_serving.registry import Registry

CHECK_PATH = b"/grpc.health.v1.Health/Check"
WATCH_PATH = b"/grpc.health.v1.Health/Watch"
_SERVICES = ("", "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService")
_STATUS = ENUMS["ServingStatus"]
_REQUEST_BYTES = 65_536


class Health:
    """Health of the server and of its models.

    Args:
        registry: The models.

    Attributes:
        stopping: Whether the server stops, so that nothing is SERVING any more.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.stopping = False

    def status(self, service: str) -> int:
        """Return SERVING if each model has a loaded version.

        Args:
            service: Empty, the name of a service of TF Serving, or the name of a model, which limits the check to this
                model.

        Returns:
            A number of ServingStatus; SERVICE_UNKNOWN if there is no such service and no such model.
        """
        names = self._registry.names if service in _SERVICES else (service,)
        if not set(names) <= set(self._registry.names):
            return _STATUS["SERVICE_UNKNOWN"]
        serving = not self.stopping and all(self._registry.loaded(name) for name in names)
        return _STATUS["SERVING" if serving else "NOT_SERVING"]

    def check(self, request: Any) -> Any:
        """Answer a HealthCheckRequest of Check.

        Raises:
            RequestError: NOT_FOUND, there is no such service and no such model.
        """
        status = self.status(request.service)
        if status == _STATUS["SERVICE_UNKNOWN"]:
            expected = ", ".join(_SERVICES[1:])
            raise not_found(f"Unknown service {request.service!r}; expected a model, or one of {expected}")
        return messages().HealthCheckResponse(status=status)

    def watch(self, call: Call) -> "_Watch":
        """Begin to answer a call of Watch.

        Args:
            call: The call.

        Returns:
            A dialog: the status now, and again each time after it has changed.
        """
        return _Watch(self, call)


class _Watch:
    """One call of Watch."""

    ended = False

    def __init__(self, health: Health, call: Call) -> None:
        self._health = health
        self._call = call
        self._service: str | None = None
        self._sent: int | None = None

    def next(self) -> bytes | None:
        if not self._call.is_complete:
            return None
        if self._service is None:
            self._service = parsed("HealthCheckRequest", self._call.message(limit_bytes=_REQUEST_BYTES)).service
        status = self._health.status(self._service)
        if status == self._sent:
            return None
        self._sent = status
        return bytes(messages().HealthCheckResponse(status=status).SerializeToString())
