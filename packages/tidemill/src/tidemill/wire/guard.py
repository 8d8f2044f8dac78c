"""Keeps web pages out: a Host allow-list against DNS rebinding, Origin and Sec-Fetch-Site against forged requests.

A web page can make a browser send requests to a loopback service. The browser cannot sign them, but refusing them
before anything else is read is cheap and needs no secret.
"""

import ipaddress
from collections.abc import Iterable

from tidemill.errors import AwsError
from tidemill.wire.request import Request

__all__ = ["Guard", "host_name"]


class Guard:
    """Checks of a request head that need no credentials.

    Args:
        allowed_hosts: Host names accepted in addition to loopback names; ports are not compared.
    """

    def __init__(self, allowed_hosts: Iterable[str] = ()) -> None:
        self._allowed = {name.strip().rstrip(".").lower() for name in allowed_hosts}
        self._seen: dict[str, bool] = {}

    def check(self, request: Request) -> None:
        """Check a request.

        Raises:
            AwsError: 400 for no or several Host headers, 421 for an unknown Host, 403 for another Origin.
        """
        host = request.headers.get("host", "")
        if request.host_headers != 1 or not host:
            raise AwsError(
                f"A request needs exactly one Host header; received {request.host_headers}.",
                code="InvalidRequest",
                status=400,
            )
        if not self.allows(host):
            raise AwsError(
                f"This service does not answer for the host {host[:255]!r}. Use a loopback name such as 127.0.0.1 or"
                " localhost, or add the name to the setting allowed_hosts.",
                code="MisdirectedRequest",
                status=421,
            )
        self._check_origin(request, host)

    def allows(self, host: str) -> bool:
        """Return whether a Host header names this service, with any port."""
        known = self._seen.get(host)
        if known is None:
            name = host_name(host)
            known = name is not None and (name in self._allowed or _is_loopback(name))
            if len(self._seen) < 256:
                self._seen[host] = known
        return known

    @staticmethod
    def _check_origin(request: Request, host: str) -> None:
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
            raise AwsError(
                f"Requests from web pages of another origin are refused; received Origin {origin[:255]!r}.",
                code="AccessDenied",
                status=403,
            )
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            raise AwsError(
                f"Requests from web pages of another site are refused; received Sec-Fetch-Site {site[:64]!r}.",
                code="AccessDenied",
                status=403,
            )


def host_name(host: str) -> str | None:
    """Return the name in a Host header in lower case without its port; None if the header is malformed."""
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower() if bracket and _is_port(rest) else None
    name, colon, port = host.partition(":")
    return name.rstrip(".").lower() or None if _is_port(colon + port) else None


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6)


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
