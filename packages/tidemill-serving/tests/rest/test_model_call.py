"""Large bodies are read on threads: the event loop goes on, and the version is not freed meanwhile."""

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest

from tidemill_serving.errors import RequestError, invalid
from tidemill_serving.http.message import HttpRequest, Response
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Leases, Servable
from tidemill_serving.rest.model_call import JSON_FORMAT, ModelCalls
from tidemill_serving.rest.predict import PredictRequest

DEADLINE_S = 20
SMALL, LARGE = b"{}", b"{}".ljust(65_537)


class Reading:
    """Reads bodies as soon as the test allows it."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.threads: list[int] = []
        self.outcome: Exception | None = None

    def __call__(self, body: bytes, model: Any) -> PredictRequest:
        self.threads.append(threading.get_ident())
        assert self.allowed.wait(DEADLINE_S)
        if self.outcome is not None:
            raise self.outcome
        return PredictRequest(cast(Any, SimpleNamespace(key="s", outputs={"y": None})), [np.ones(1)], True)


def with_call(body: bytes, test: Any, *, is_over: bool = False) -> None:
    async def main() -> None:
        jobs: list[Any] = []
        servable = cast(
            Servable,
            SimpleNamespace(
                version=SimpleNamespace(name="m", version=3),
                model=None,
                runners={"s": SimpleNamespace(submit=jobs.append)},
                recorder=None,
                leases=Leases(),
            ),
        )
        reading, answer = Reading(), asyncio.get_running_loop().create_future()
        form = JSON_FORMAT._replace(read=reading)
        request = HttpRequest(b"POST", b"/v1/models/m:predict", {}, body, lambda: is_over)

        def call() -> None:
            ModelCalls(Metrics()).call(servable, "predict", request, answer.set_result, form=form)

        async with asyncio.timeout(DEADLINE_S):
            await test(call, reading, jobs, answer, servable)

    asyncio.run(main())


def test_the_loop_goes_on_while_a_large_body_is_read_and_the_version_stays() -> None:
    async def test(call: Any, reading: Reading, jobs: list[Any], answer: "asyncio.Future[Response]", m: Any) -> None:
        call()
        ended = asyncio.ensure_future(m.leases.ended())
        await asyncio.sleep(0)
        assert not ended.done()
        reading.allowed.set()
        await ended
        assert reading.threads[0] != threading.get_ident()
        (job,) = jobs  # it was submitted before the version could be freed
        job.done([np.array([2.5], np.float32)])
        response = await answer
        assert (response.status, orjson.loads(response.body)) == (200, {"predictions": [2.5]})
        assert dict(response.headers) == {b"x-tidemill-model-version": b"3"}

    with_call(LARGE, test)


def test_a_small_body_is_read_at_once() -> None:
    async def test(call: Any, reading: Reading, jobs: list[Any], *_: Any) -> None:
        reading.allowed.set()
        call()
        assert (reading.threads, len(jobs)) == ([threading.get_ident()], 1)

    with_call(SMALL, test)


@pytest.mark.parametrize(
    ("outcome", "status", "text"),
    [(invalid("no list"), 400, "no list"), (ZeroDivisionError("a defect"), 500, "ZeroDivisionError: a defect")],
)
def test_the_error_of_a_large_body_is_answered(outcome: Exception, status: int, text: str) -> None:
    async def test(call: Any, reading: Reading, jobs: list[Any], answer: "asyncio.Future[Response]", m: Any) -> None:
        reading.outcome = outcome
        reading.allowed.set()
        call()
        response = await answer
        assert (response.status, orjson.loads(response.body), jobs) == (status, {"error": text}, [])
        await m.leases.ended()

    with_call(LARGE, test)


def test_a_large_body_is_not_read_if_nobody_waits_any_more() -> None:
    async def test(call: Any, reading: Reading, jobs: list[Any], answer: "asyncio.Future[Response]", _: Any) -> None:
        call()
        await answer
        assert (reading.threads, jobs) == ([], [])

    with_call(LARGE, test, is_over=True)


def test_the_error_of_a_small_body_is_raised() -> None:
    async def test(call: Any, reading: Reading, *_: Any) -> None:
        reading.outcome = invalid("no list")
        reading.allowed.set()
        with pytest.raises(RequestError, match="no list"):
            call()

    with_call(SMALL, test)
