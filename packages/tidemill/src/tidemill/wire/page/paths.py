"""Paths of the page."""

PREFIX = "/_tidemill/"
"""Everything of the page is below it."""
CALL = f"{PREFIX}call/"
"""Behind it: the service, and the path of the request that a client would send."""
SESSION = f"{PREFIX}session"
METRICS = f"{PREFIX}metrics"
