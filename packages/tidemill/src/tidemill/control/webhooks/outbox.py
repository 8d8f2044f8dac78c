"""The outbox: what webhooks have to send, stored in the commit of the change itself.

So no change is lost, whenever the service is killed, and none is sent that was not committed. The name of a notice has
its place in the order, and the resource.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.control.resources import ENDPOINT, RUNS, TUNING_JOB
from tidemill.core.webhooks import Webhook
from tidemill.store.records.base import Record, Transaction

NOTICE = "webhook-notice"
"""Kind of a change that a webhook has not received yet."""

NAMES: Mapping[str, str] = {**{kind: kind for kind in (*RUNS, ENDPOINT)}, TUNING_JOB: "tuning-job"}
"""The kinds of records whose changes are sent, by the names that settings use."""


@dataclass(frozen=True, slots=True, order=True)
class Notice:
    """What the name of a notice says.

    Attributes:
        webhook: Name of the receiver in the settings.
        number: Its place in the order of all notices.
        kind: Kind of the changed record.
        name: Name of the changed record.
    """

    webhook: str
    number: int
    kind: str
    name: str

    @property
    def key(self) -> str:
        """The name of its record."""
        return f"{self.webhook}/{self.number:020d}/{self.kind}/{self.name}"

    @property
    def lane(self) -> tuple[str, str, str]:
        """What is delivered in order: the changes of one resource to one receiver."""
        return self.webhook, self.kind, self.name

    @classmethod
    def of_key(cls, key: str) -> "Notice":
        """Parse the name of a record.

        Args:
            key: As `key`.
        """
        webhook, number, kind, name = key.split("/", 3)
        return cls(webhook, int(number), kind, name)


class Outbox:
    """Notes changes of states in the transaction that makes them.

    Args:
        webhooks: The receivers by name.
    """

    def __init__(self, webhooks: Mapping[str, Webhook]) -> None:
        self._webhooks = webhooks
        self._last = 0

    def begin_after(self, number: int) -> None:
        """Give further notices greater numbers, even if the clock was set back.

        Args:
            number: The greatest number of an earlier start.
        """
        self._last = max(self._last, number)

    def note(self, transaction: Transaction, before: Record | None, after: Record) -> None:
        """Store a notice for each webhook that wants the change of a record.

        Args:
            transaction: That of the change.
            before: The record before the change; None for a new one.
        """
        kind = NAMES.get(after.kind)
        if kind is None or (before is not None and states(before) == states(after)):
            return
        for webhook in [name for name, each in self._webhooks.items() if each.wants(kind, states(after))]:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            notice = Notice(webhook, self._last, after.kind, after.name)
            document = {
                "status": after.status,
                "previous": before.status if before is not None else "",
                "created_ms": after.created_ms,
                "modified_ms": after.modified_ms,
                "summary": after.summary,
                "document": after.document,
            }
            transaction.insert(
                Record(
                    kind=NOTICE,
                    name=notice.key,
                    status=webhook,
                    created_ms=after.modified_ms,
                    modified_ms=after.modified_ms,
                    document=document,
                )
            )


def states(record: Record) -> tuple[str, ...]:
    """Return the status of a record, and its secondary status if it has one.

    Args:
        record: A record of a kind in `NAMES`.
    """
    secondary = record.summary.get("secondary_status")
    return (record.status, secondary) if secondary else (record.status,)


def changed_record(notice: Notice, document: Mapping[str, object]) -> Record:
    """Return the record of a notice as the change left it.

    Args:
        document: Document of the notice.
    """
    members = {name: document[name] for name in ("status", "created_ms", "modified_ms", "summary", "document")}
    return Record(kind=notice.kind, name=notice.name, **members)  # type: ignore[arg-type]
