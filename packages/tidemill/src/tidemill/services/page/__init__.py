"""tidemill's own operations: what the page and the command line need, and AWS has no operation for."""

from tidemill.services.page.service import PageService

__all__ = ["PageService"]
