"""Requests that cannot be answered together: what they cost beside their own answer."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tidemill_serving.http.message import HttpRequest, Response
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry
from tidemill_serving.rest.api import Api

REQUESTS = 5


def test_requests_of_a_model_on_threads_are_not_held_back(monkeypatch: Any) -> None:
    async def main() -> None:
        runner = SimpleNamespace(shared_rows=0)  # it runs on threads
        servable = SimpleNamespace(
            version=SimpleNamespace(name="m", version=1),
            model=SimpleNamespace(signatures={}),
            runners={"serving_default": runner},
            recorder=None,
        )
        registry = cast(Registry, SimpleNamespace(find=lambda *_, **__: servable))
        api = Api(registry, Metrics(), metrics_path=None)
        monkeypatch.setattr(api.calls, "call", lambda *args, **_: args[3](Response(200, b"{}")))
        answers: list[Response] = []
        request = HttpRequest(b"POST", b"/v1/models/m:predict", {}, b"{}", lambda: False)
        api(request, answers.append)
        lane = api._lanes[request.target]
        api(request, answers.append)
        assert len(answers) == 1  # it waited for others of its turn
        await asyncio.sleep(0)
        for count in range(3, 3 + REQUESTS):
            api(request, answers.append)
            assert len(answers) == count
        assert api._lanes == {request.target: lane}

    asyncio.run(main())
