"""ListWebhooks, TestWebhook: the receivers of state changes that the settings name, and whether they answer."""

import secrets
from collections.abc import Mapping
from typing import Any

from tidemill.control.webhooks.deliveries import Deliveries
from tidemill.control.webhooks.posting import NotDelivered
from tidemill.core.clock import Clock
from tidemill.core.webhooks import Webhook
from tidemill.errors import ResourceNotFound
from tidemill.services.operations import Operations
from tidemill.services.page.ownership import check_owner
from tidemill.services.sagemaker.state_changes import event
from tidemill.wire.exchange import Context


class WebhookOperations(Operations):
    """Shows and tests webhooks.

    Args:
        webhooks: The receivers by name.
        deliveries: Sends events.
        owner: Access key id of the owner.
        clock: Provides the time of events.
    """

    def __init__(self, webhooks: Mapping[str, Webhook], deliveries: Deliveries, *, owner: str, clock: Clock) -> None:
        self._webhooks = webhooks
        self._deliveries = deliveries
        self._owner = owner
        self._clock = clock

    async def list_webhooks(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        check_owner(context, self._owner)
        return {"Webhooks": [self._shown(name, each) for name, each in self._webhooks.items()]}

    async def test_webhook(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Send an event of its own kind, once, and return how the receiver has answered."""
        check_owner(context, self._owner)
        name = request["Name"]
        if name not in self._webhooks:
            raise ResourceNotFound(
                f"The settings have no webhook {name!r}; they have {', '.join(self._webhooks) or 'none'}"
            )
        delivery = secrets.token_hex(16)
        sent = event(
            "tidemill Webhook Test",
            {"webhook": name},
            resources=[],
            at_ms=self._clock.now_ms(),
            delivery=delivery,
            region=context.region,
        )
        try:
            status = await self._deliveries.send(name, sent, delivery=str(sent["id"]))
        except NotDelivered as error:
            return {"Failure": str(error)}
        return {"Status": status}

    def _shown(self, name: str, webhook: Webhook) -> Mapping[str, Any]:
        state = self._deliveries.states[name]
        shown = {"Name": name, "Url": webhook.url, "Events": list(webhook.events), "Pending": state.pending}
        return shown | ({"Failure": state.failure} if state.failure else {})
