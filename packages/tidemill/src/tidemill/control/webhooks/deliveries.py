"""Deliver the notices in the outbox: in order for each resource, again until the receiver has accepted them.

A receiver that is slow or dead holds up only its own notices: each resource has a task of its own for each receiver,
at most four of a receiver's tasks are connected at a time, and nothing waits for any of them.
"""

import asyncio
import heapq
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from tidemill.control.search.pages import walk
from tidemill.control.webhooks.outbox import NOTICE, Notice, Outbox, changed_record
from tidemill.control.webhooks.posting import NotDelivered, post
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.exposition import Family
from tidemill.core.webhooks import DELIVERY_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Webhook
from tidemill.errors import StateCorrupt
from tidemill.store.records.base import Query, Record, RecordStore

_AT_ONCE = 4
_PAUSE_MAX_S = 300.0
_STORE_PAUSE_S = 1.0
_TRIED_S = 600.0
"""How long a service tries at least, even if a notice is too old: the clock may have jumped, or no service ran."""
PENDING_MAX = 10_000
"""Notices that a webhook may have pending; the oldest of more are dropped."""

Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]
EventOf = Callable[[Notice, Record, str], Mapping[str, Any]]
"""Returns the event for a notice, the record that has changed, and its status before."""

_log = structlog.get_logger("tidemill.webhooks")


def _pause_s(tries: int) -> float:
    """Return how long to wait after so many failures: from a second to five minutes, with a random part."""
    return min(2.0 ** (tries - 1), _PAUSE_MAX_S) * random.uniform(0.8, 1.2)  # noqa: S311


@dataclass(slots=True)
class ReceiverState:
    """What is known of a receiver since the start of the service.

    Attributes:
        pending: Notices that it has not accepted.
        results: Number of attempts by result: ``accepted``, ``failed``, and notices that were ``dropped``.
        failure: Why the last attempt failed; empty after a success.
    """

    pending: int = 0
    results: Counter[str] = field(default_factory=Counter)
    failure: str = ""


class Deliveries:
    """Delivers notices.

    Args:
        webhooks: The receivers by name.
        outbox: Numbers the notices.
        clock: Provides the time of signatures, and the age of notices.
        post: Sends a request. Default: by HTTP.
        pause_s: Returns the pause after a number of failures, in seconds.
    """

    def __init__(
        self,
        records: RecordStore,
        webhooks: Mapping[str, Webhook],
        outbox: Outbox,
        event_of: EventOf,
        *,
        clock: Clock,
        post: Post = post,
        pause_s: Callable[[int], float] = _pause_s,
    ) -> None:
        self._records = records
        self._webhooks = webhooks
        self._outbox = outbox
        self._event_of = event_of
        self._clock = clock
        self._post = post
        self._pause_s = pause_s
        self._lanes: dict[tuple[str, str, str], list[Notice]] = {}
        self._known: set[Notice] = set()
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = {name: asyncio.Semaphore(_AT_ONCE) for name in webhooks}
        self.states = {name: ReceiverState() for name in webhooks}

    async def start(self) -> None:
        """Take up the notices of earlier starts; those of webhooks that the settings no longer have are removed."""
        async for record in walk(self._records, NOTICE, Query(sort_by="name", descending=False)):
            notice = Notice.of_key(record.name)
            self._outbox.begin_after(notice.number)
            if notice.webhook in self._webhooks:
                self._add(notice)
            else:
                await self._records.delete(NOTICE, record.name)

    def note(self, changed: Collection[tuple[str, str]]) -> None:
        """Deliver what a commit has put into the outbox.

        Args:
            changed: Kind and name of each record that the commit has changed.
        """
        for name in sorted(name for kind, name in changed if kind == NOTICE):
            notice = Notice.of_key(name)
            if notice.webhook in self._webhooks:
                self._add(notice)

    async def close(self) -> None:
        """End all tasks; what was not accepted stays in the outbox."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def send(self, webhook: str, event: Mapping[str, Any], *, delivery: str) -> int:
        """Send an event once and return the status of the answer.

        Args:
            webhook: Name of the receiver.
            delivery: Identifies it; the same for each attempt.

        Raises:
            NotDelivered: There was no answer.
        """
        receiver = self._webhooks[webhook]
        body, timestamp = json.dumps(event, ensure_ascii=True).encode(), str(self._clock.now_ms() // 1000)
        headers = {
            DELIVERY_HEADER: delivery,
            TIMESTAMP_HEADER: timestamp,
            SIGNATURE_HEADER: receiver.signature(timestamp, body),
        }
        return await self._post(receiver.url, body, headers)

    def families(self) -> Iterator[Family]:
        """Yield the metrics of webhooks; none without webhooks."""
        if not self.states:
            return
        yield Family(
            "tidemill_webhook_attempts_total",
            "counter",
            "Attempts to deliver a state change by result, and changes that were dropped.",
            [
                ({"webhook": name, "result": result}, state.results[result])
                for name, state in self.states.items()
                for result in ("accepted", "failed", "dropped")
            ],
        )
        yield Family(
            "tidemill_webhook_pending",
            "gauge",
            "State changes that a webhook has not accepted yet.",
            [({"webhook": name}, state.pending) for name, state in self.states.items()],
        )

    def _add(self, notice: Notice) -> None:
        if self._closed or notice in self._known:
            return
        self._known.add(notice)
        self.states[notice.webhook].pending += 1
        lane = self._lanes.get(notice.lane)
        if lane is not None:
            heapq.heappush(lane, notice)
            return
        self._lanes[notice.lane] = [notice]
        task = asyncio.create_task(self._deliver_all(notice.lane), name=f"webhook {notice.webhook} {notice.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver_all(self, key: tuple[str, str, str]) -> None:
        """Deliver the notices of a resource to a receiver, one after the other."""
        lane, state = self._lanes[key], self.states[key[0]]
        while lane:
            # Taken out first: a change whose request was cancelled is heard of late, and may come before this one.
            notice = heapq.heappop(lane)
            is_stored = await self._deliver(notice, state)
            state.pending -= 1  # before the removal: others drop their notices while there are too many
            if is_stored:
                await self._remove(notice)
            self._known.discard(notice)
        del self._lanes[key]

    async def _deliver(self, notice: Notice, state: ReceiverState) -> bool:
        """Deliver or drop a notice; return False if it is not stored, e.g. when its own removal is the change."""
        tries, begun_s, retry_s = 0, self._clock.monotonic_s(), self._webhooks[notice.webhook].retry_s
        while (record := await self._stored(notice, state)) is not None:
            failure = await self._tried(notice, record, state)
            if not failure:
                return True
            tries += 1
            age_s = (self._clock.now_ms() - record.created_ms) / 1000
            is_old = age_s > retry_s and self._clock.monotonic_s() - begun_s > min(retry_s, _TRIED_S)
            if is_old or state.pending > PENDING_MAX:
                state.results["dropped"] += 1
                _log.warning("webhook.dropped", webhook=notice.webhook, name=notice.name, age_s=age_s, reason=failure)
                return True
            if tries == 1:
                _log.warning("webhook.not_delivered", webhook=notice.webhook, name=notice.name, reason=failure)
            await asyncio.sleep(self._pause_s(tries))
        return False

    async def _tried(self, notice: Notice, record: Record, state: ReceiverState) -> str:
        """Wait for a turn and send a notice, as `_attempt`; without sending it if the last of too many has failed."""
        async with self._turns[notice.webhook]:
            # A receiver that does not answer holds up each attempt, so thousands more could come than are dropped.
            if not state.failure or state.pending <= PENDING_MAX:
                state.failure = await self._attempt(notice, record)
                state.results["failed" if state.failure else "accepted"] += 1
            return state.failure

    async def _stored(self, notice: Notice, state: ReceiverState) -> Record | None:
        """Return the record of a notice; None if there is none, or it is damaged. Wait until the store can be read."""
        while True:
            try:
                return self._records.get(NOTICE, notice.key)
            except StateCorrupt as error:
                state.results["dropped"] += 1
                _log.error("webhook.dropped", webhook=notice.webhook, name=notice.name, reason=str(error))
                await self._remove(notice)
                return None
            except Exception as error:  # noqa: BLE001 - whatever it is, later notices of the resource wait for this one
                _log.warning("webhook.not_read", webhook=notice.webhook, name=notice.name, reason=str(error))
                await asyncio.sleep(_STORE_PAUSE_S)

    async def _attempt(self, notice: Notice, record: Record) -> str:
        """Send a notice; return why the receiver did not accept it, or an empty text."""
        try:
            changed = changed_record(notice, record.document)
            event = self._event_of(notice, changed, record.document["previous"])
            status = await self.send(notice.webhook, event, delivery=str(event["id"]))
        except NotDelivered as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - a defect in one event must not end the deliveries of the others
            _log.exception("webhook.failed", webhook=notice.webhook, name=notice.name)
            return f"{type(error).__name__}: {error}"
        faults.point("webhooks.accepted")
        return "" if 200 <= status < 300 else f"the receiver answered with status {status}"

    async def _remove(self, notice: Notice) -> None:
        while True:
            try:
                await self._records.delete(NOTICE, notice.key)
            except Exception as error:  # noqa: BLE001 - later notices of the resource wait for this one
                # It stays: after a restart it is delivered again, by the same id.
                _log.warning("webhook.not_removed", name=notice.name, reason=str(error))
                await asyncio.sleep(_STORE_PAUSE_S)
            else:
                return
