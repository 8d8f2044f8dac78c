"""Open what browsers reach: the page, its sessions, and tidemill's own operations."""

from collections.abc import Sequence
from pathlib import Path

import tidemill
from tidemill.control.page_sessions import PageSessions
from tidemill.server.access import Access
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page import PageService
from tidemill.services.page.downloads import DownloadOperations
from tidemill.services.page.sessions import SessionOperations
from tidemill.wire.exchange import Service
from tidemill.wire.page.entrance import PageEntrance
from tidemill.wire.page.files import PageFiles
from tidemill.wire.page.metrics import MetricsPage

_BUILT = Path(tidemill.__file__).parent / "page"
"""Where the built files of the page are; `make page` writes them."""


def open_page(
    start: Startup, stores: Stores, access: Access, operations: Sequence[Service], metrics: MetricsPage
) -> tuple[PageService, PageEntrance]:
    """Return the service ``tidemill``, and the entrance of browsers.

    Args:
        stores: Stores the sessions.
        access: Finds the keys as which sessions act.
        operations: Further operations of ``tidemill``.
        metrics: Answers requests for the metrics.
    """
    sessions = PageSessions(stores.records, access.credentials, clock=stores.clock)
    region = start.settings.region
    service = PageService(
        SessionOperations(sessions),
        DownloadOperations(access.credentials, region=region),
        *operations,
    )
    return service, PageEntrance(PageFiles(_BUILT), sessions, metrics, region=region)
