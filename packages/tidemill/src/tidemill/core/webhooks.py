"""Webhooks: the setting ``webhooks`` lists the receivers of state changes."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import SecretStr  # which no dump or message shows

SIGNATURE_HEADER = "x-tidemill-signature"
TIMESTAMP_HEADER = "x-tidemill-timestamp"
DELIVERY_HEADER = "x-tidemill-delivery"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SECRET_CHARS = 16
KINDS = ("training-job", "processing-job", "transform-job", "tuning-job", "pipeline-execution", "endpoint")
"""Kinds of resources whose changes are sent, as the setting names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A receiver of state changes.

    Attributes:
        url: Address to which changes are posted, ``https://...``, or ``http://...`` in a network that one trusts.
        secret: Shared with the receiver, at least 16 characters: the key of the signatures.
        events: Patterns of the changes: ``KIND:STATUS``, e.g. ``training-job:Failed`` or ``*:Completed``. Default: all.
        retry_s: Seconds for which a change is sent again to a receiver that does not accept it.

    Raises:
        ValueError: A member is not allowed.
    """

    url: str
    secret: SecretStr
    events: tuple[str, ...] = ("*:*",)
    retry_s: float = 86_400.0

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # refuses misspelled members in the settings

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.fragment:
            raise ValueError(
                f"url {self.url.rpartition('@')[2]!r} is not the address of a receiver: expected http(s)://host[:port]"
                "/path, without a user"
            )
        if any(not 33 <= ord(character) <= 126 for character in self.url):
            raise ValueError("the url has characters that must be percent-encoded")
        secret = self.secret.get_secret_value()
        if len(secret) < _SECRET_CHARS:
            raise ValueError(
                f"a secret of {len(secret)} characters can be guessed; expected at least {_SECRET_CHARS}, e.g. of"
                " `openssl rand -hex 32`"
            )
        for event in self.events:
            kind, colon, status = event.partition(":")
            if not colon or not status or not any(fnmatchcase(each, kind) for each in KINDS):
                raise ValueError(f"event {event!r} is not KIND:STATUS with a kind of {', '.join(KINDS)}, or a pattern")

    @property
    def is_plain(self) -> bool:
        """Whether what it receives can be read in the network."""
        parts = urlsplit(self.url)
        return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")

    def wants(self, kind: str, statuses: Iterable[str]) -> bool:
        """Return whether it receives a change.

        Args:
            kind: One of `KINDS`.
            statuses: The new status, and the secondary one.
        """
        changes = [f"{kind}:{status}" for status in statuses]
        return any(fnmatchcase(change, event) for change in changes for event in self.events)

    def signature(self, timestamp: str, body: bytes) -> str:
        """Return the signature of a request: a receiver computes the same, and compares.

        Args:
            timestamp: Seconds since the epoch, as in the header.
            body: Body of the request.
        """
        digest = hmac.new(self.secret.get_secret_value().encode(), timestamp.encode() + b"." + body, hashlib.sha256)
        return f"sha256={digest.hexdigest()}"


def check_webhook_names(webhooks: Mapping[str, Webhook]) -> Mapping[str, Webhook]:
    """Return the webhooks of the settings.

    Args:
        webhooks: By name.

    Raises:
        ValueError: A name is not allowed.
    """
    for name in webhooks:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a webhook: expected up to 64 letters, digits, '-', '_' and '.'")
    return webhooks
