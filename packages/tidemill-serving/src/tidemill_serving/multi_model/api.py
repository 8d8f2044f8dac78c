"""The routes of a multi-model endpoint: ``/models`` and below, in addition to TF Serving's."""

import asyncio
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qs, unquote

import orjson

from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.http.message import HttpRequest, Reply, Response, error_response
from tidemill_serving.multi_model.host import LoadRequest, ModelHost
from tidemill_serving.registry import Registry
from tidemill_serving.rest.api import ATTRIBUTES_HEADER, Api
from tidemill_serving.rest.invocations import read_attributes
from tidemill_serving.rest.model_call import internal_error
from tidemill_serving.rest.status import status, status_body

_MODELS = "/models"
_INVOKE = "/invoke"
_PAGE = "next_page_token"
_PAGE_SIZE = 100


class MultiModelApi:
    """Answers every route of a multi-model endpoint: an `Application` for the listener.

    Args:
        api: Answers all other routes.
        host: Loads and unloads the models.
        registry: Holds the loaded models.
    """

    def __init__(self, api: Api, host: ModelHost, registry: Registry) -> None:
        self._api = api
        self._host = host
        self._registry = registry
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, request: HttpRequest, reply: Reply) -> None:
        target = request.target.partition(b"?")[0].decode("latin-1")
        if target == _MODELS or target.startswith(_MODELS + "/"):
            self._api.guarded(self._route, request, reply)
        else:
            self._api(request, reply)

    def _route(self, request: HttpRequest, reply: Reply) -> None:
        path, _, query = request.target.decode("latin-1").partition("?")
        name = unquote(path.removeprefix(_MODELS).removeprefix("/"))
        if request.method == b"POST" and name.endswith(_INVOKE):
            self._invoke(name.removesuffix(_INVOKE), request, reply)
        elif request.method == b"POST" and not name:
            self._answer_later(self._load(_load_request(request.body)), reply)
        elif request.method == b"DELETE" and name:
            self._answer_later(self._unload(name), reply)
        elif request.method == b"GET":
            reply(Response(200, self._status(name) if name else self._list(query)))
        else:
            reply(Response(404, b'{"error": "Not Found"}'))

    def _status(self, name: str) -> bytes:
        self._host.find(name)
        return status_body(self._registry.versions(name, None))

    def _list(self, query: str) -> bytes:
        models = self._host.models
        given = parse_qs(query, keep_blank_values=True)
        if _PAGE not in given:
            return orjson.dumps({name: status(self._registry.versions(name, None)) for name in models})
        token = given[_PAGE][0]
        names = [name for name in models if name > token]  # the token is the last name of the previous page
        page: dict[str, Any] = {
            "models": [{"modelName": name, "modelUrl": models[name].url} for name in names[:_PAGE_SIZE]]
        }
        if len(names) > _PAGE_SIZE:
            page["nextPageToken"] = names[_PAGE_SIZE - 1]
        return orjson.dumps(page)

    async def _load(self, request: LoadRequest) -> Response:
        await self._host.load(request)
        return _success(f"Successfully loaded model {request.name}, served in the endpoint's own process.")

    async def _unload(self, name: str) -> Response:
        await self._host.unload(name)
        return _success(f"Successfully unloaded model {name}.")

    def _invoke(self, name: str, request: HttpRequest, reply: Reply) -> None:
        model = self._host.find(name)
        if model.handlers is not None:
            model.handlers.submit(request, reply)
            return
        accept = request.headers.get(b"accept", b"") or b"application/json"

        def reply_as_accepted(response: Response) -> None:
            reply(response._replace(content_type=accept) if response.status == 200 else response)

        attributes = read_attributes(request.headers.get(ATTRIBUTES_HEADER, b""))
        servable = self._registry.find(name, attributes.model_version)
        self._api.calls.call(servable, attributes.method, request, reply_as_accepted)

    def _answer_later(self, work: Coroutine[Any, Any, Response], reply: Reply) -> None:
        async def answer() -> None:
            try:
                reply(await work)
            except RequestError as error:
                reply(error_response(error))
            except Exception as error:  # noqa: BLE001  # an error of one request must not stop the server
                reply(error_response(internal_error(error)))

        task = asyncio.ensure_future(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _load_request(body: bytes) -> LoadRequest:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"the body of a load request is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise invalid("the body of a load request must be an object with model_name and url")
    for key in ("model_name", "url"):
        if not isinstance(document.get(key), str) or not document[key]:
            # SageMaker's container fails with this status, and clients rely on it.
            raise RequestError(Code.INTERNAL, f"'{key}': missing in the load request, or no text")
    name = document["model_name"]
    if "/" in name or ":" in name:
        raise invalid(f"model_name {name!r} has a / or a :, which separate names in URLs")
    archive = document.get("archive")
    return LoadRequest(name, document["url"], archive if isinstance(archive, str) else "")


def _success(text: str) -> Response:
    return Response(200, orjson.dumps({"success": text}))
