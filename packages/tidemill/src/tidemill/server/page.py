"""Open what browsers reach: the page, its sessions, and tidemill's own operations."""

from collections.abc import Sequence
from pathlib import Path

import tidemill
from tidemill.control.changes import ChangeFeed
from tidemill.control.instance_samples import InstanceSamples
from tidemill.control.metrics_tokens import MetricsTokens
from tidemill.control.page_sessions import PageSessions
from tidemill.server.access import Access
from tidemill.server.monitoring import Monitoring
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page import PageService
from tidemill.services.page.changes import VIEWED, ChangeOperations
from tidemill.services.page.downloads import DownloadOperations
from tidemill.services.page.metrics_tokens import MetricsTokenOperations
from tidemill.services.page.samples import SampleOperations
from tidemill.services.page.sessions import SessionOperations
from tidemill.wire.exchange import Service
from tidemill.wire.page.entrance import PageEntrance
from tidemill.wire.page.files import PageFiles
from tidemill.wire.page.metrics import MetricsPage

_BUILT = Path(tidemill.__file__).parent / "page"
"""Where the built files of the page are; `make page` writes them."""


def open_page(
    start: Startup, stores: Stores, access: Access, operations: Sequence[Service], monitoring: Monitoring
) -> tuple[PageService, PageEntrance]:
    """Return the service ``tidemill``, and the entrance of browsers.

    Args:
        start: The start of the service.
        stores: Stores the sessions.
        access: Finds the keys as which sessions act.
        operations: Further operations of ``tidemill``.
        monitoring: Collects metrics.
    """
    sessions = PageSessions(stores.records, access.credentials, clock=stores.clock)
    tokens = MetricsTokens(stores.records, clock=stores.clock)
    region = start.settings.region
    feed = ChangeFeed(VIEWED)
    stores.records.when_changed(feed.note)
    start.ends_waits.append(feed.close)
    service = PageService(
        SessionOperations(sessions),
        DownloadOperations(access.credentials, region=region),
        ChangeOperations(feed),
        *operations,
        MetricsTokenOperations(tokens, owner=access.owner.access_key_id),
        SampleOperations(InstanceSamples(stores.records, logs=start.state.logs)),
    )
    metrics = MetricsPage(tokens.allows, monitoring.text)
    return service, PageEntrance(PageFiles(_BUILT), sessions, metrics, region=region)
