"""Open what monitors use: the metrics and their tokens, and the operations about webhooks."""

from dataclasses import dataclass

from tidemill.control.metrics_tokens import MetricsTokens
from tidemill.control.webhooks.deliveries import Deliveries
from tidemill.server.access import Access
from tidemill.server.drivers import Drivers
from tidemill.server.executors import Executors
from tidemill.server.monitoring import Monitoring
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page.metrics_tokens import MetricsTokenOperations
from tidemill.services.page.webhooks import WebhookOperations
from tidemill.wire.exchange import Service
from tidemill.wire.observer import RequestObserver
from tidemill.wire.page.metrics import MetricsPage


@dataclass(frozen=True, slots=True)
class Monitors:
    """What monitors use.

    Attributes:
        operations: Of ``tidemill``, for the owner.
        page: Answers requests for the metrics.
        observer: Observes the requests of the gateway.
    """

    operations: tuple[Service, ...]
    page: MetricsPage
    observer: RequestObserver


def open_monitors(
    start: Startup, stores: Stores, executors: Executors, access: Access, drivers: Drivers, webhooks: Deliveries
) -> Monitors:
    """Return what monitors use.

    Args:
        stores: Stores the tokens.
        executors: Run the instances.
        access: Names the owner.
        drivers: Run the jobs and endpoints.
        webhooks: Deliver state changes.
    """
    owner, clock = access.owner.access_key_id, stores.clock
    tokens, observer = MetricsTokens(stores.records, clock=clock), RequestObserver(start.spans)
    monitoring = Monitoring(start.state, stores, executors, drivers, observer, webhooks)
    operations = (
        MetricsTokenOperations(tokens, owner=owner),
        WebhookOperations(start.settings.webhooks, webhooks, owner=owner, clock=clock),
    )
    return Monitors(operations, MetricsPage(tokens.allows, monitoring.text), observer)
