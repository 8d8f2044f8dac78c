"""The routes of an endpoint: dispatch a request, run the model and build the response."""

import asyncio
from collections.abc import Callable

from tidemill_serving.errors import RequestError, invalid
from tidemill_serving.handlers.pool import HandlerPool
from tidemill_serving.http.message import JSON_TYPE, HttpRequest, Reply, Response, error_response
from tidemill_serving.metrics import PROMETHEUS_TYPE, Metrics
from tidemill_serving.registry import Registry
from tidemill_serving.rest.invocations import finished, read_attributes, to_predict_body, unsupported_media_type
from tidemill_serving.rest.model_call import JSON_FORMAT, ModelCalls, PredictFormat, internal_error, version_header
from tidemill_serving.rest.npy import NPY_TYPE, answer_npy, read_npy
from tidemill_serving.rest.openapi import OPENAPI_PATH, InvocationKind, openapi_body
from tidemill_serving.rest.predict import answer, read_request
from tidemill_serving.rest.predict_lane import PredictLane
from tidemill_serving.rest.status import metadata_body, model_list_body, scheduling_body, status_body
from tidemill_serving.rest.target import ModelTarget, model_target, path_of

ATTRIBUTES_HEADER = b"x-amzn-sagemaker-custom-attributes"
_LANES = 512
_NOT_FOUND = Response(404, b'{"error": "Not Found"}')
_NO_WORKER = Response(502, b'{"error": "no process that runs the handlers is there; see the endpoint\'s log"}')
_EMPTY_OK = Response(200, b"")
_MONITORING = "/monitoring/"
_SCHEDULING = "/monitoring/scheduling"
_CORS = (
    (b"Access-Control-Allow-Origin", b"*"),
    (b"Access-Control-Allow-Methods", b"POST, GET"),
    (b"Access-Control-Allow-Headers", b"Content-Type"),
)


class Api:
    """Answers every route: an `Application` for the listener.

    Args:
        registry: The models.
        metrics: Records the requests.
        metrics_path: Path of the metrics route; None disables it.
        cors: Allow scripts of web pages of any origin to call TF Serving's routes. Default: False.
        is_container: Describe ``/invocations`` in the document of the API. Default: True.
    """

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        *,
        metrics_path: str | None,
        cors: bool = False,
        is_container: bool = True,
    ) -> None:
        self._is_container = is_container
        self._cors = cors
        self._registry = registry
        self._metrics = metrics
        self._metrics_path = metrics_path
        self._lanes: dict[bytes, PredictLane] = {}
        self.calls = ModelCalls(metrics)
        """Calls the models."""
        self.handlers: HandlerPool | None = None
        """Runs ``/invocations`` in the user's code; if None, the model is called directly."""
        self.ping_without_model = False
        """Whether ``/ping`` is answered 200 although no model is loaded."""
        self.ready = True
        """False while the server drains; ``/ping`` and ``/readyz`` then fail, so that clients stop sending requests."""

    def __call__(self, request: HttpRequest, reply: Reply) -> None:
        lane = self._lanes.get(request.target)
        if lane is not None and request.method == b"POST":
            lane.add(request, reply)
        else:
            self.guarded(self._route, request, reply)

    def models_only(self, request: HttpRequest, reply: Reply) -> None:
        """Answer only TF Serving's own routes: the `Application` of the port that handlers use.

        Args:
            request: The request.
            reply: Called with the answer.
        """
        self.guarded(self._route_models, request, reply)

    def guarded(self, route: Callable[[HttpRequest, Reply], None], request: HttpRequest, reply: Reply) -> None:
        """Call a route, and answer with the error if it raises one.

        Args:
            route: The route.
            request: The request.
            reply: Called with the answer.
        """
        try:
            route(request, reply)
        except RequestError as error:
            reply(error_response(error))
        except Exception as error:  # noqa: BLE001  # an error of one request must not stop the server
            reply(error_response(internal_error(error)))

    def _route(self, request: HttpRequest, reply: Reply) -> None:
        path = path_of(request.target)
        if path == "/invocations" and request.method == b"POST":
            if self.handlers is None:
                self._invoke(request, reply)
            else:
                self.handlers.submit(request, reply)
        elif path[:4].lower() == "/v1/":
            self._tensorflow_serving(request, path, reply)
        elif request.method in (b"GET", b"HEAD"):
            reply(self._probe(request, path))
        else:
            reply(_NOT_FOUND)

    def _route_models(self, request: HttpRequest, reply: Reply) -> None:
        path = path_of(request.target)
        if path[:4].lower() == "/v1/":
            self._tensorflow_serving(request, path, reply)
        elif path == self._metrics_path and request.method == b"GET":
            reply(self._probe(request, path))
        else:
            reply(_NOT_FOUND)

    def _probe(self, request: HttpRequest, path: str) -> Response:
        if path == self._metrics_path:
            return Response(200, self._metrics.text(), content_type=PROMETHEUS_TYPE)
        if path == OPENAPI_PATH:
            return self._document()
        if path == _SCHEDULING:
            return Response(200, scheduling_body(self._registry))
        if path.startswith(_MONITORING):
            raise invalid(f"Malformed request: {request.method.decode('latin-1')} {path}")
        if path == "/ping":
            return self._ping()
        if path == "/readyz":
            return _EMPTY_OK if self.ready else Response(503, b'{"error": "the server is shutting down"}')
        return _EMPTY_OK if path == "/healthz" else _NOT_FOUND

    def _document(self) -> Response:
        invocations = InvocationKind.MODEL if self._is_container else InvocationKind.NONE
        if self.ping_without_model:
            invocations = InvocationKind.MULTI_MODEL
        elif self.handlers is not None:
            invocations = InvocationKind.CODE
        body = openapi_body(self._registry, invocations=invocations, metrics_path=self._metrics_path)
        return Response(200, body, headers=_CORS if self._cors else ())

    def _ping(self) -> Response:
        if not self.ready:
            return Response(503, b'{"error": "the server is shutting down"}')
        if self.ping_without_model:
            return _EMPTY_OK
        if self.handlers is not None:
            return _EMPTY_OK if self.handlers.ready else _NO_WORKER
        try:
            self._registry.find(self._registry.default_name, None)
        except RequestError as error:
            return error_response(RequestError(error.code, error.message, http_status=502))
        return _EMPTY_OK

    def _tensorflow_serving(self, request: HttpRequest, path: str, reply: Reply) -> None:
        if self._cors:
            self._answer_across_origins(request, path, reply)
        else:
            self._answer(request, path, reply)

    def _answer_across_origins(self, request: HttpRequest, path: str, reply: Reply) -> None:
        def reply_to_all(response: Response) -> None:
            reply(response._replace(headers=(*response.headers, *_CORS)))

        try:
            if request.method != b"OPTIONS":
                self._answer(request, path, reply_to_all)
            elif b"origin" in request.headers:
                reply_to_all(_EMPTY_OK)
            else:
                raise invalid("Origin header is missing in CORS preflight")
        except RequestError as error:
            reply_to_all(error_response(error))

    def _answer(self, request: HttpRequest, path: str, reply: Reply) -> None:
        if request.method in (b"GET", b"HEAD") and path.rstrip("/").lower() == "/v1/models":
            models = {name: self._registry.versions(name, None) for name in self._registry.names}
            reply(Response(200, model_list_body(models)))
            return
        target = model_target(request.method, path)
        if target.verb == "status":
            reply(Response(200, status_body(self._registry.versions(target.name, target.version, label=target.label))))
            return
        servable = self._registry.find(target.name, target.version, label=target.label)
        if target.verb == "predict" and not self._cors and request.target not in self._lanes:
            self._open_lane(request.target, target)
        if target.verb == "metadata":
            reply(Response(200, metadata_body(servable), headers=version_header(servable.version.version)))
        else:
            self.calls.call(servable, target.verb, request, reply)

    def _open_lane(self, request_target: bytes, target: ModelTarget) -> None:
        """Make later predict requests for this target share their runs and their JSON calls."""
        if len(self._lanes) >= _LANES:
            return
        self._lanes[request_target] = PredictLane(
            target,
            self._registry,
            self._metrics,
            loop=asyncio.get_running_loop(),
            general=lambda request, reply: self.guarded(self._route, request, reply),
            headers=version_header,
        )

    def _invoke(self, request: HttpRequest, reply: Reply) -> None:
        accept = request.headers.get(b"accept", b"")

        def reply_as_accepted(response: Response) -> None:
            reply(finished(response, accept) if response.content_type is JSON_TYPE else response)

        content_type = request.headers.get(b"content-type", b"")
        body = request.body if content_type == NPY_TYPE else to_predict_body(request.body, content_type)
        attributes = read_attributes(request.headers.get(ATTRIBUTES_HEADER, b""))
        if content_type == NPY_TYPE and attributes.method != "predict":
            raise unsupported_media_type(content_type)
        try:
            name = attributes.model_name or self._registry.default_name
            servable = self._registry.find(name, attributes.model_version)
            form = _predict_format(content_type, accept)
            self.calls.call(servable, attributes.method, request._replace(body=body), reply_as_accepted, form=form)
        except RequestError as error:
            reply_as_accepted(error_response(error))


def _predict_format(content_type: bytes, accept: bytes) -> PredictFormat:
    """Return the format for the headers of an invocation."""
    wants_array = accept.partition(b",")[0].partition(b";")[0].strip() == NPY_TYPE
    if content_type != NPY_TYPE and not wants_array:
        return JSON_FORMAT
    return PredictFormat(
        read_npy if content_type == NPY_TYPE else read_request,
        answer_npy if wants_array else answer,
        NPY_TYPE if wants_array else JSON_TYPE,
    )
