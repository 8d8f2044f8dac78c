"""The routes of an endpoint, and the way of a request through them."""

import sys
import traceback
from collections.abc import Callable

from tidemill_serving.batching import Job
from tidemill_serving.engine import Array
from tidemill_serving.errors import Code, RequestError
from tidemill_serving.http.message import JSON_TYPE, Reply, Request, Response, error_response
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.rest.examples import answer_examples, read_examples
from tidemill_serving.rest.invocations import finished, read_attributes, to_predict_body
from tidemill_serving.rest.predict import answer, read_request
from tidemill_serving.rest.status import metadata_body, model_list_body, status_body
from tidemill_serving.rest.target import model_target, path_of

__all__ = ["Api"]

_VERSION_HEADER = b"x-tidemill-model-version"
_ATTRIBUTES_HEADER = b"x-amzn-sagemaker-custom-attributes"
_NOT_FOUND = Response(404, b'{"error": "Not Found"}')
_EMPTY_OK = Response(200, b"")


class Api:
    """Answers every route: an `Application` for the listener.

    Args:
        registry: The models.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.ready = True
        """False while the server drains: ``/ping`` and ``/readyz`` say so to whoever sends requests."""

    def __call__(self, request: Request, reply: Reply) -> None:
        try:
            self._route(request, reply)
        except RequestError as error:
            reply(error_response(error))
        except Exception as error:  # noqa: BLE001  # whatever one request does, the others are served
            reply(error_response(_internal(error)))

    def _route(self, request: Request, reply: Reply) -> None:
        path = path_of(request.target)
        if path == "/invocations" and request.method == b"POST":
            self._invoke(request, reply)
        elif path[:4].lower() == "/v1/":
            self._tensorflow_serving(request, path, reply)
        elif request.method in (b"GET", b"HEAD"):
            reply(self._probe(path))
        else:
            reply(_NOT_FOUND)

    def _probe(self, path: str) -> Response:
        if path == "/ping":
            return self._ping()
        if path == "/readyz":
            return _EMPTY_OK if self.ready else Response(503, b'{"error": "the server is shutting down"}')
        return _EMPTY_OK if path == "/healthz" else _NOT_FOUND

    def _ping(self) -> Response:
        if not self.ready:
            return Response(503, b'{"error": "the server is shutting down"}')
        try:
            self._registry.find(self._registry.default_name, None)
        except RequestError as error:
            return error_response(RequestError(error.code, error.message, http_status=502))
        return _EMPTY_OK

    def _tensorflow_serving(self, request: Request, path: str, reply: Reply) -> None:
        if path.rstrip("/").lower() == "/v1/models" and request.method in (b"GET", b"HEAD"):
            models = {name: self._registry.versions(name, None) for name in self._registry.names}
            reply(Response(200, model_list_body(models)))
            return
        target = model_target(request.method, path)
        if target.verb == "status":
            reply(Response(200, status_body(self._registry.versions(target.name, target.version))))
            return
        servable = self._registry.find(target.name, target.version)
        if target.verb == "metadata":
            reply(Response(200, metadata_body(servable), headers=_version_header(servable)))
        else:
            self._call(servable, target.verb, request.body, reply)

    def _invoke(self, request: Request, reply: Reply) -> None:
        accept = request.headers.get(b"accept", b"")

        def reply_as_accepted(response: Response) -> None:
            reply(finished(response, accept) if response.content_type is JSON_TYPE else response)

        body = to_predict_body(request.body, request.headers.get(b"content-type", b""))
        attributes = read_attributes(request.headers.get(_ATTRIBUTES_HEADER, b""))
        try:
            name = attributes.model_name or self._registry.default_name
            servable = self._registry.find(name, attributes.model_version)
            self._call(servable, attributes.method, body, reply_as_accepted)
        except RequestError as error:
            reply_as_accepted(error_response(error))

    def _call(self, servable: Servable, verb: str, body: bytes, reply: Reply) -> None:
        """Run a method of a model; the answer may come later."""
        model = servable.model
        headers = _version_header(servable)
        to_body: Callable[[list[Array]], bytes]
        if verb == "predict":
            predict = read_request(body, model)
            key, feeds = predict.signature.key, predict.feeds
            to_body = lambda outputs: answer(predict, outputs)  # noqa: E731
        else:
            examples = read_examples(body, model, verb=verb)
            key, feeds = examples.signature.key, examples.feeds
            to_body = lambda outputs: answer_examples(examples, outputs)  # noqa: E731

        def done(result: list[Array] | RequestError) -> None:
            reply(_response(result, to_body, headers))

        servable.runners[key].submit(Job(feeds, done))


def _response(
    result: list[Array] | RequestError,
    to_body: Callable[[list[Array]], bytes],
    headers: tuple[tuple[bytes, bytes], ...],
) -> Response:
    if isinstance(result, RequestError):
        return error_response(result)
    try:
        return Response(200, to_body(result), headers=headers)
    except RequestError as error:
        return error_response(error)
    except Exception as error:  # noqa: BLE001  # as above: an answer that cannot be written is one request's failure
        return error_response(_internal(error))


def _internal(error: Exception) -> RequestError:
    traceback.print_exception(error, file=sys.stderr)
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")


def _version_header(servable: Servable) -> tuple[tuple[bytes, bytes], ...]:
    return ((_VERSION_HEADER, servable.version_header),)
