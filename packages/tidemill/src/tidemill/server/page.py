"""Open what browsers reach: the page, its sessions, and tidemill's own operations."""

from pathlib import Path

import tidemill
from tidemill.control.page_sessions import PageSessions
from tidemill.server.access import Access
from tidemill.server.startup import Startup
from tidemill.server.stores import Stores
from tidemill.services.page import PageService
from tidemill.services.page.downloads import DownloadOperations
from tidemill.services.page.sessions import SessionOperations
from tidemill.wire.page.entrance import PageEntrance
from tidemill.wire.page.files import PageFiles

_BUILT = Path(tidemill.__file__).parent / "page"
"""Where the built files of the page are; `make page` writes them."""


def open_page(start: Startup, stores: Stores, access: Access) -> tuple[PageService, PageEntrance]:
    """Return the service ``tidemill``, and the entrance of browsers.

    Args:
        start: The start of the service.
        stores: Stores the sessions.
        access: Finds the keys as which sessions act.
    """
    sessions = PageSessions(stores.records, access.credentials, clock=stores.clock)
    region = start.settings.region
    service = PageService(
        SessionOperations(sessions),
        DownloadOperations(access.credentials, region=region),
    )
    return service, PageEntrance(PageFiles(_BUILT), sessions, region=region)
