"""Requests of a transform job to the server of one instance, with retries according to its ModelClientConfig."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.control.invoker import Answer, Invoker, Unreachable
from tidemill.core.instances import InstanceRef
from tidemill.executors.base import Executor

_PING_EVERY_S = 0.1
_PING_TIMEOUT_S = 10.0
_FIRST_PAUSE_S = 0.5
_EXCERPT_LIMIT = 500
_TOO_MANY = 429
_SERVER_FAULTS = 500


class RecordFailed(Exception):
    """The model returned no result for a request after all retries; the message has its status and answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """A job's ModelClientConfig.

    Attributes:
        timeout_s: Maximum time for one answer, in seconds.
        retries: Maximum number of retries of a request after an error of the server (429, 5xx) or a timeout.
    """

    timeout_s: float = 600
    retries: int = 3

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> "Patience":
        """Return the values of a CreateTransformJob request. Defaults, as on SageMaker: 600 s and 3 retries.

        Args:
            request: Members of CreateTransformJob.
        """
        wanted = request.get("ModelClientConfig", {})
        return cls(
            timeout_s=wanted.get("InvocationsTimeoutInSeconds", cls().timeout_s),
            retries=wanted.get("InvocationsMaxRetries", cls().retries),
        )


class ModelServer:
    """The server of one instance.

    Args:
        executor: Provides the server's address.
        patience: Timeout and retries of requests.
        note: Called with a message for each retry.
    """

    def __init__(
        self, executor: Executor, ref: InstanceRef, *, patience: Patience, note: Callable[[str], None]
    ) -> None:
        self.ref = ref
        self._executor = executor
        self._patience = patience
        self._note = note
        self._known: Invoker | None = None

    async def healthy(self) -> bool:
        """Return whether the server answers ``/ping`` with 200."""
        try:
            return (await self._invoker().get("/ping", timeout_s=_PING_TIMEOUT_S)).status == 200
        except (Unreachable, TimeoutError):
            return False

    async def transform(self, body: bytes, *, headers: Mapping[str, str], place: str) -> Answer:
        """Return the model's answer to a request.

        Args:
            body: Body of the request.
            headers: Content type and accepted types.
            place: Names the object and the records in the log.

        Raises:
            RecordFailed: The last try failed.
        """
        for tried in range(self._patience.retries + 1):
            problem, permanent = "", False
            try:
                answer = await self._invoker().send(
                    "POST", "/invocations", body, headers=headers, timeout_s=self._patience.timeout_s
                )
                if answer.status < 400:
                    return answer
                problem = f"the model answered {answer.status}: {_excerpt(answer.body)}"
                permanent = answer.status < _SERVER_FAULTS and answer.status != _TOO_MANY
            except Unreachable as error:
                problem = str(error)
            except TimeoutError:
                problem = f"the model did not answer within {self._patience.timeout_s:g} s"
            if permanent or tried == self._patience.retries:
                raise RecordFailed(problem + (f" (tried {tried + 1} times)" if tried else ""))
            self._note(f"{place}: {problem}; trying again")
            await self._recovered(tried)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close idle connections."""
        if self._known is not None:
            self._known.close()

    async def _recovered(self, tried: int) -> None:
        """Wait before the next try, at least until the server is ready: its shim restarts a server that died."""
        await asyncio.sleep(_FIRST_PAUSE_S * 2**tried)
        while not await self.healthy():
            await asyncio.sleep(_PING_EVERY_S)

    def _invoker(self) -> Invoker:
        address = self._executor.server_address(self.ref)
        if address is None:
            raise Unreachable("the model's server has not reported its address yet", sent=False)
        if self._known is None or self._known.address != address:
            self.close()
            self._known = Invoker(address)
        return self._known


def _excerpt(body: bytes) -> str:
    text = " ".join(body.decode("utf-8", "replace").split())
    return text if len(text) <= _EXCERPT_LIMIT else text[:_EXCERPT_LIMIT] + "..."
