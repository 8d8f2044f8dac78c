"""Models of a multi-model endpoint that are unloaded for others, on a server with room for two."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidemill.control import target_models
from tidemill.control.invoker import Answer
from tidemill.control.target_models import TargetModels, model_name
from tidemill.core.instances import InstanceRef, ObjectReference

REF = InstanceRef("aa", 0)
ROOM = 2


def archive(name: str) -> ObjectReference:
    return ObjectReference(uri=f"s3://b/{name}.tar.gz", name="model.tar.gz", content_id=name, size_bytes=1, sha256="")


NAMES = {model_name(archive(letter)): letter for letter in "abcdef"}


class Deliveries:
    """Simulates the executor, which delivers archives to the instance."""

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        del ref, archive, name


class SmallServer:
    """Answers like a multi-model server with memory for two models."""

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.unloaded: list[str] = []
        self.may_answer: dict[str, asyncio.Event] = {}
        self.asked: dict[str, asyncio.Event] = {letter: asyncio.Event() for letter in "abcdef"}

    async def send(self, method: str, path: str, body: bytes, headers: Any = None) -> Answer:
        del headers
        if method == "GET":
            return answer(200, {name: {} for name, letter in NAMES.items() if letter in self.loaded})
        if method == "DELETE":
            letter = NAMES[path.removeprefix("/models/")]
            self.loaded.remove(letter)
            self.unloaded.append(letter)
            return answer(200, {})
        if len(self.loaded) == ROOM:
            return answer(507, {"error": "Memory exhausted"})
        self.loaded.append(NAMES[json.loads(body)["model_name"]])
        return answer(200, {})

    async def ask(self, path: str) -> Answer:
        name = path.removeprefix("/models/").removesuffix("/invoke")
        letter = NAMES[name]
        if letter not in self.loaded:
            return answer(404, {"error": f"Model {name} is not loaded yet."})
        self.asked[letter].set()
        if letter in self.may_answer:
            await self.may_answer[letter].wait()
        assert letter in self.loaded, "it was unloaded under a request"
        return answer(200, {"model": letter})


def answer(status: int, body: Any) -> Answer:
    return Answer(status, {}, json.dumps(body).encode())


def run(scene: Callable[[SmallServer, Callable[[str], Awaitable[int]]], Awaitable[None]]) -> SmallServer:
    """Run a scene with a server and a function that invokes a model and returns the status; return the server."""

    async def play() -> SmallServer:
        server, targets = SmallServer(), TargetModels(Deliveries())  # pyrefly: ignore

        async def invoke(letter: str) -> int:
            return (await targets.invoke(REF, archive(letter), ask=server.ask, send=server.send)).status

        await asyncio.wait_for(scene(server, invoke), 30)
        assert not targets._busy, "it forgets requests that have ended"
        return server

    return asyncio.run(play())


def test_the_model_that_was_asked_for_least_recently_is_unloaded_first() -> None:
    async def scene(server: SmallServer, invoke: Callable[[str], Awaitable[int]]) -> None:
        for letter in "abacabd":  # c displaces b, then b displaces c, and d displaces a
            assert await invoke(letter) == 200

    server = run(scene)
    assert server.unloaded == ["b", "c", "a"]
    assert server.loaded == ["b", "d"]


def test_a_model_in_use_stays_and_one_that_was_asked_for_later_goes() -> None:
    async def scene(server: SmallServer, invoke: Callable[[str], Awaitable[int]]) -> None:
        server.may_answer["a"] = asyncio.Event()
        under_way = asyncio.ensure_future(invoke("a"))
        await server.asked["a"].wait()
        assert [await invoke("b"), await invoke("c")] == [200, 200]
        assert server.unloaded == ["b"], "a was asked for before b, but has a request"
        server.may_answer["a"].set()
        assert await under_way == 200
        assert await invoke("d") == 200
        assert server.unloaded == ["b", "a"]

    run(scene)


def test_a_model_waits_while_all_others_are_in_use_for_the_first_that_has_no_request_left() -> None:
    async def scene(server: SmallServer, invoke: Callable[[str], Awaitable[int]]) -> None:
        server.may_answer = {"a": asyncio.Event(), "b": asyncio.Event()}
        under_way = [asyncio.ensure_future(invoke(letter)) for letter in "ab"]
        for letter in "ab":
            await server.asked[letter].wait()
        waiting = asyncio.ensure_future(invoke("c"))
        server.may_answer["b"].set()
        assert await under_way[1] == 200
        assert await waiting == 200
        assert server.unloaded == ["b"], "a was asked for before b, but still has its request"
        server.may_answer["a"].set()
        assert await under_way[0] == 200

    run(scene)


def test_a_model_is_refused_when_no_other_has_become_free_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_models, "_WAIT_FOR_ROOM_S", 0.01)

    async def scene(server: SmallServer, invoke: Callable[[str], Awaitable[int]]) -> None:
        server.may_answer = {"a": asyncio.Event(), "b": asyncio.Event()}
        under_way = [asyncio.ensure_future(invoke(letter)) for letter in "ab"]
        for letter in "ab":
            await server.asked[letter].wait()
        assert await invoke("c") == 507
        assert server.unloaded == []
        for event in server.may_answer.values():
            event.set()
        assert await asyncio.gather(*under_way) == [200, 200]

    run(scene)


def test_models_that_push_each_other_out_are_all_answered() -> None:
    async def scene(server: SmallServer, invoke: Callable[[str], Awaitable[int]]) -> None:
        for _ in range(5):
            assert await asyncio.gather(*(invoke(letter) for letter in "abcdef")) == [200] * 6

    assert len(run(scene).loaded) == ROOM
