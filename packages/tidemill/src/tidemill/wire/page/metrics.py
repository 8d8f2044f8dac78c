"""``/_tidemill/metrics``: what a monitor reads, with a bearer token of its own."""

from collections.abc import Awaitable, Callable

from tidemill.core.exposition import CONTENT_TYPE
from tidemill.errors import AwsError
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request


class MetricsPage:
    """Answers monitors. Nothing else counts here: neither a signature nor the session of a browser.

    Args:
        allows: Returns whether a token may read the metrics.
        text: Returns the metrics in Prometheus's text format.
    """

    def __init__(self, allows: Callable[[str], Awaitable[bool]], text: Callable[[], Awaitable[bytes]]) -> None:
        self._allows = allows
        self._text = text

    async def reply(self, request: Request) -> HttpReply:
        """Return all metrics.

        Raises:
            AwsError: Unauthorized, the request has no token that is valid now.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not await self._allows(token.strip()):
            raise AwsError(
                "The metrics need the header `Authorization: Bearer TOKEN`; the owner of the service makes a token by"
                " `tidemill metrics add NAME`.",
                code="Unauthorized",
                status=401,
            )
        return HttpReply(
            200, [(b"content-type", CONTENT_TYPE.encode()), (b"cache-control", b"no-store")], await self._text()
        )
