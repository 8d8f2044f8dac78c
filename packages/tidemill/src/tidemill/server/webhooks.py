"""Open the webhooks: deliver state changes to the receivers that the settings name."""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import structlog

from tidemill.control.webhooks.deliveries import Deliveries
from tidemill.control.webhooks.outbox import Notice
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.sagemaker.state_changes import state_change
from tidemill.store.records.base import Record

_log = structlog.get_logger("tidemill.server")


async def open_webhooks(start: Startup, stores: Stores) -> Deliveries:
    """Deliver what earlier services left in the outbox, and what is put into it, until the service ends."""
    webhooks = start.settings.webhooks
    deliveries = Deliveries(
        stores.records,
        webhooks,
        stores.outbox,
        partial(_event_of, region=start.settings.region),
        clock=stores.clock,
    )
    for name, each in webhooks.items():
        # Without its path, which is a secret at many receivers.
        host = urlsplit(each.url).netloc
        _log.log(30 if each.is_plain else 20, "webhook", name=name, host=host, encrypted=not each.is_plain)
    if webhooks:
        stores.records.when_changed(deliveries.note)
    start.stack.push_async_callback(deliveries.close)
    await deliveries.start()
    return deliveries


def _event_of(notice: Notice, record: Record, previous: str, *, region: str) -> Mapping[str, Any]:
    return state_change(record, previous=previous, delivery=notice.key, region=region)
