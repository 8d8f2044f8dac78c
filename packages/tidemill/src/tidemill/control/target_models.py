"""The models of multi-model endpoints: a server loads a model at its first request there.

A server keeps loaded models. If a new model does not fit into memory, the least recently used one is unloaded first, as
on SageMaker. A model with a request in progress is never unloaded. If all models have requests, the request for the new
model waits until a model is idle; after 30 s it gets the server's answer 507.
"""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

import structlog

from tidemill.control.invoker import Answer
from tidemill.core.instances import InstanceRef, ObjectReference
from tidemill.executors.base import Executor

_log = structlog.get_logger("tidemill.endpoints")
_NO_MEMORY = 507
_WAIT_FOR_ROOM_S = 30.0
_JSON = {"content-type": "application/json"}

Ask = Callable[[str], Awaitable[Answer]]
"""Sends the client's request to a path of a server."""
Send = Callable[..., Awaitable[Answer]]
"""Sends a request to a server: method, path and body."""


class TargetModels:
    """Loads models into servers.

    Args:
        executor: Copies archives to instances.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._locks: WeakValueDictionary[tuple[InstanceRef, str], asyncio.Lock] = WeakValueDictionary()
        self._turn = itertools.count(1)
        self._used: dict[tuple[InstanceRef, str], int] = {}
        self._busy: Counter[tuple[InstanceRef, str]] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    async def invoke(self, ref: InstanceRef, archive: ObjectReference, *, ask: Ask, send: Send) -> Answer:
        """Invoke a model; load it first if the server does not have it.

        Args:
            ask: Sends the client's request to a path.
            send: Sends other requests to the same server.

        Returns:
            The model's answer, or the server's answer to a failed load.
        """
        name = model_name(archive)
        self._used[ref, name] = next(self._turn)
        self._busy[ref, name] += 1
        try:
            return await self._invoke(ref, archive, name=name, ask=ask, send=send)
        finally:
            self._end((ref, name))

    async def _invoke(self, ref: InstanceRef, archive: ObjectReference, *, name: str, ask: Ask, send: Send) -> Answer:
        path = f"/models/{name}/invoke"
        answer = await ask(path)
        if not _is_missing(answer, name):
            return answer
        lock = self._locks.setdefault((ref, name), asyncio.Lock())
        async with lock:
            loaded = await self._load(ref, archive, name=name, send=send)
        return await ask(path) if loaded.status in (200, 409) else loaded

    async def _load(self, ref: InstanceRef, archive: ObjectReference, *, name: str, send: Send) -> Answer:
        file = f"{name}.tar.gz"
        request = {"model_name": name, "url": f"/opt/ml/models/{name}/model", "archive": file}
        while True:
            await asyncio.to_thread(self._executor.deliver, ref, archive, name=file)
            answer = await send("POST", "/models", json.dumps(request).encode(), headers=_JSON)
            if answer.status != _NO_MEMORY or not await self._make_room(ref, name=name, send=send):
                return answer

    async def _make_room(self, ref: InstanceRef, *, name: str, send: Send) -> bool:
        """Unload the least recently used model without requests; return False if all models have requests."""
        give_up_s = asyncio.get_running_loop().time() + _WAIT_FOR_ROOM_S
        while True:
            loaded = json.loads((await send("GET", "/models", b"")).body)
            others = sorted(loaded.keys() - {name}, key=lambda other: self._used.get((ref, other), 0))
            for victim in others:
                if self._busy[ref, victim]:  # checked last, because a request may have arrived since GET
                    continue
                if (await send("DELETE", f"/models/{victim}", b"")).status == 200:
                    self._used.pop((ref, victim), None)
                    _log.info("endpoint.model_unloaded", instance=ref.mark, model=victim, for_model=name)
                    return True
            if not others or not await self._one_ends(before_s=give_up_s):
                return False

    async def _one_ends(self, *, before_s: float) -> bool:
        """Wait until a request ends; return False if none does before the time ``before_s`` of the event loop."""
        ended = asyncio.get_running_loop().create_future()
        self._waiting.add(ended)
        try:
            async with asyncio.timeout_at(before_s):
                await ended
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(ended)
        return True

    def _end(self, key: tuple[InstanceRef, str]) -> None:
        self._busy[key] -= 1
        if not self._busy[key]:
            del self._busy[key]
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)


def model_name(archive: ObjectReference) -> str:
    """Return the name under which a server loads an archive; new content of the same key is a different model.

    Returns:
        32 hexadecimal digits.
    """
    return hashlib.sha256(f"{archive.uri}\0{archive.content_id}".encode()).hexdigest()[:32]


def _is_missing(answer: Answer, name: str) -> bool:
    return answer.status == 404 and f"Model {name} is not loaded yet." in answer.body.decode("utf-8", "replace")
