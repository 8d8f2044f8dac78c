"""The head of an HTTP request, decoded once, and the checks of heads that need no credentials."""

import ipaddress
import random
from collections.abc import Callable, Iterable
from functools import cached_property
from urllib.parse import unquote, unquote_to_bytes

import httptools

from tidemill._shared.http.exchange import Exchange
from tidemill.core.aws_hosts import is_aws_host
from tidemill.errors import AwsError


class Request:
    """Method, path, query and headers as they were sent.

    Args:
        method: HTTP method.
        raw_path: The path as sent, so that an encoded slash in an S3 key is preserved.
        query_string: The query as sent, without its question mark. Default: empty.
        headers: Names in lower case; values of a repeated header are joined by commas, which is also how they are
            signed.
        scheme: ``http`` or ``https``.
        address: IP address of the client; empty if it is not known.
    """

    def __init__(
        self,
        method: str,
        raw_path: str,
        query_string: str = "",
        *,
        headers: dict[str, str],
        scheme: str = "http",
        address: str = "",
    ) -> None:
        self.method = method
        self.scheme = scheme
        self.address = address
        self.raw_path = raw_path
        self.query_string = query_string
        self.headers = headers
        length = headers.get("content-length", "")
        self.content_length = int(length) if length.isascii() and length.isdigit() else None
        """Announced size of the body in bytes, before decoding."""

    @classmethod
    def of(cls, exchange: Exchange) -> "Request":
        """Return the head of an exchange.

        Raises:
            ValueError: The target is no URL.
        """
        try:
            url = httptools.parse_url(exchange.target)
        except httptools.HttpParserInvalidURLError as error:
            raise ValueError(f"{exchange.target!r} is no URL") from error
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers}
        if len(headers) < len(exchange.headers):
            headers = {}
            for raw_name, raw_value in exchange.headers:
                name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
                headers[name] = f"{headers[name]},{value}" if name in headers else value
        return cls(
            exchange.method.decode("ascii"),
            (url.path or b"/").decode("latin-1"),
            (url.query or b"").decode("latin-1"),
            headers=headers,
            scheme="https" if exchange.transport.get_extra_info("sslcontext") else "http",
            address=_address_of(exchange.transport.get_extra_info("peername")),
        )

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """Decoded query parameters in order. A plus sign is not decoded to a space."""
        return [(self._text(name), self._text(value)) for name, _, value in self.query_pairs]

    @cached_property
    def query_pairs(self) -> list[tuple[str, str, str]]:
        """Query parameters as sent: name, ``=`` or nothing, value."""
        return [pair.partition("=") for pair in self.query_string.split("&") if pair]

    @cached_property
    def query_map(self) -> dict[str, str]:
        """Query parameters by name; the first one of a repeated name."""
        found: dict[str, str] = {}
        for name, value in self.query:
            found.setdefault(name, value)
        return found

    @cached_property
    def path(self) -> str:
        """The decoded path."""
        return self.decode(self.raw_path)

    def decode(self, text: str) -> str:
        """Decode the percent signs in a part of the path.

        Raises:
            AwsError: InvalidURI, the bytes are not UTF-8.
        """
        if "%" not in text and text.isascii():
            return text
        return self._text(text)

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head."""
        return "transfer-encoding" in self.headers or bool(self.content_length)

    @staticmethod
    def _text(text: str) -> str:
        if "%" not in text and text.isascii():
            return text
        try:
            return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
        except UnicodeDecodeError:
            shown = unquote(text, errors="replace")[:128]
            raise AwsError(
                f"The URI is not UTF-8 after percent decoding: {shown!r}. Encode names as UTF-8 before the percent"
                " encoding.",
                code="InvalidURI",
            ) from None


class Guard:
    """Keeps web pages out: a Host allow-list against DNS rebinding, Origin and Sec-Fetch-Site against forged requests.

    A web page can make a browser send requests to a loopback service. The browser cannot sign them, but refusing them
    before anything else is read is cheap and needs no secret.

    Args:
        allowed_hosts: Host names accepted in addition to loopback names; ports are not compared.
        answers_aws: Returns whether AWS's host names are accepted, too: once the service answers for them by a proxy.
            Default: never.
    """

    def __init__(self, allowed_hosts: Iterable[str] = (), *, answers_aws: Callable[[], bool] = lambda: False) -> None:
        self._answers_aws = answers_aws
        self._allowed = {name.strip().rstrip(".").lower() for name in allowed_hosts}
        self._seen: dict[str, bool] = {}

    def check(self, request: Request, *, from_anywhere: bool = False) -> None:
        """Check a request.

        Args:
            from_anywhere: Whether web pages of any origin may cause it. That holds for presigned forms, since only what
                the owner of a key has signed can be sent, and for what says nothing about the service, such as files of
                its page. Default: False.

        Raises:
            AwsError: 400 for no Host header, 421 for an unknown Host, 403 for another Origin.
        """
        host = request.headers.get("host", "")
        if not host:
            raise AwsError(
                f"A request needs exactly one Host header; received {int('host' in request.headers)}.",
                code="InvalidRequest",
            )
        if not self.allows(host):
            raise AwsError(
                f"This service does not answer for the host {host[:255]!r}. Use a loopback name such as 127.0.0.1 or"
                " localhost, or add the name to the setting allowed_hosts.",
                code="MisdirectedRequest",
            )
        if not from_anywhere:
            self._check_origin(request, host)

    def allows(self, host: str) -> bool:
        """Return whether a Host header names this service, with any port.

        Args:
            host: Value of the header.
        """
        known = self._seen.get(host)
        if known is None:
            name = host_name(host)
            known = name is not None and (name in self._allowed or is_loopback(name))
            if name is not None and is_aws_host(name):
                return known or self._answers_aws()  # a shell may ask for these at any time
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
            )
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            raise AwsError(
                f"Requests from web pages of another site are refused; received Sec-Fetch-Site {site[:64]!r}.",
                code="AccessDenied",
            )


def new_request_id() -> str:
    """Return a random id in the form of AWS's. It is no secret, so it need not come from the system's generator."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def host_name(host: str) -> str | None:
    """Return the name in a Host header in lower case without its port; None if the header is malformed.

    Args:
        host: Value of the header.
    """
    if host.startswith("["):
        name, bracket, rest = host[1:].partition("]")
        return name.lower() if bracket and _is_port(rest) else None
    name, colon, port = host.partition(":")
    return name.rstrip(".").lower() or None if _is_port(colon + port) else None


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header in lower case, without parameters.

    Args:
        content_type: Value of the header.
    """
    return content_type.partition(";")[0].strip().lower()


def is_signed(request: Request) -> bool:
    """Return whether a request has a header that only a client of AWS sends.

    A browser sends the name and password that whoever listened on this port before has made it keep.
    """
    return request.headers.get("authorization", "").startswith("AWS")


def is_navigation(request: Request) -> bool:
    """Return whether a browser shows the answer as a page in a window of its own: somebody has followed a link."""
    return (
        request.method in ("GET", "HEAD")
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
    )


def is_loopback(name: str) -> bool:
    """Return whether a host name or address is one of this machine's loopback.

    Args:
        name: Without a port.
    """
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdigit() and len(text) <= 6)


def _address_of(peer: object) -> str:
    """Return the IP address in the name of a socket's peer; empty for a local socket, which has none."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""
