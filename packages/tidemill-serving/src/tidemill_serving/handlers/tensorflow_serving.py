"""``inference.py`` of a TensorFlow-Serving-based endpoint: ``handler``, or ``input_handler`` and ``output_handler``."""

import http.client
import io
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidemill_serving.handlers.answers import Answered, checked_body
from tidemill_serving.handlers.context import Context, Contexts
from tidemill_serving.handlers.script import BadScript, load_script
from tidemill_serving.handlers.wire import WorkerSetup

_TIMEOUT_S = 600  # only a safeguard: the server times requests out much earlier


class InferenceScript:
    """The handlers of one ``inference.py``.

    Args:
        setup: The file, and the ports of the model server.

    Raises:
        BadScript: The module has neither ``handler`` nor both ``input_handler`` and ``output_handler``.
        BaseException: Any exception that the module raises during its import.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        module = load_script(Path(setup.script), paths=setup.paths)
        self._contexts = Contexts(setup)
        self._local = threading.local()
        handler = getattr(module, "handler", None)
        before, after = getattr(module, "input_handler", None), getattr(module, "output_handler", None)
        if handler is None and (before is None or after is None):
            raise BadScript(
                f"{setup.script} has no handlers: define handler(data, context), or both"
                " input_handler(data, context) and output_handler(response, context)"
            )
        self.names: tuple[str, ...] = ("handler",) if handler is not None else ("input_handler", "output_handler")
        self._handler: Callable[[Any, Context], Any] = handler or self._around(before, after)

    def answer(self, request: Mapping[str, Any], body: bytes) -> Answered:
        """Handle one request; exceptions of the handler propagate, as `HandlerScript.answer`.

        Returns:
            Status 200 with body and content type of the handler.

        Raises:
            TypeError: If the handler does not return a pair of body and content type.
        """
        result = self._handler(io.BytesIO(body), self._contexts.of(request, size_bytes=len(body)))
        if not isinstance(result, Sequence) or isinstance(result, str | bytes) or len(result) != 2:
            raise TypeError(f"{self.names[-1]} must return (body, content_type), but it returned {_shown(result)}")
        return Answered(200, checked_body(result[0], source=self.names[-1]), str(result[1]))

    def _around(self, before: Any, after: Any) -> Callable[[Any, Context], Any]:
        def handler(data: io.BytesIO, context: Context) -> Any:
            return after(self._post(context.rest_uri, before(data, context)), context)

        return handler

    def _post(self, url: str, data: Any) -> Any:
        """POST to the model and return a `requests.Response`, the type that `output_handler` expects."""
        if hasattr(data, "read"):
            data = data.read()
        if isinstance(data, str):
            data = data.encode()
        if not isinstance(data, bytes | bytearray | memoryview):
            # requests encodes dictionaries and iterables.
            return _requests().post(url, data=data, timeout=_TIMEOUT_S)
        return _response(url, *self._exchange(url, bytes(data)))

    def _exchange(self, url: str, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request on this thread's open connection; retry on a new one if the server had closed it."""
        parts = urlsplit(url)
        kept: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        for connection in (kept, http.client.HTTPConnection("127.0.0.1", parts.port, timeout=_TIMEOUT_S)):
            if connection is None:
                continue
            self._local.connection = connection
            try:
                connection.request("POST", parts.path, body)
                reply = connection.getresponse()
                return reply, reply.read()
            except ConnectionError:
                connection.close()
                if connection is not kept:
                    raise
        raise AssertionError("unreachable: the new connection answers or raises")


def _requests() -> Any:
    import requests  # slow to import, and not needed for `handler`

    return requests


def _response(url: str, reply: http.client.HTTPResponse, content: bytes) -> Any:
    requests = _requests()
    response = requests.Response()
    response.status_code = reply.status
    response.reason = reply.reason or HTTPStatus(reply.status).phrase
    response.url = url
    response.headers = requests.structures.CaseInsensitiveDict(reply.getheaders())
    response.encoding = "utf-8"
    response._content = content  # as requests' own adapter does; there is no public setter
    return response


def _shown(value: Any) -> str:
    return f"{type(value).__name__}: {value!r:.200}"
