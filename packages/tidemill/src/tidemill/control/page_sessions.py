"""Sessions of browsers: a one-time token becomes a session, which acts with the rights of the key that asked for it.

A session has two secrets. Its cookie is out of reach of scripts, but a browser sends it to every port of a host; the
other one is kept by the page, whose origin is one port, and comes in a header. Whoever has only one has nothing. Only
digests are stored, and nothing of a session is a key: the key is looked up again for each request, so that a revoked
or expired key ends its sessions.

Without TLS a session ends with the process of the service. While none runs, another user of the machine could listen on
its port, and a browser would hand over both secrets: they are then worth nothing.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.read_only import READ_ONLY
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction
from tidemill.wire.signing.credentials import Credential, CredentialLookup, PolicyLimit

TOKEN_S = 300
"""Seconds for which a token can be used: long enough to carry an address to a browser by hand."""
SESSION_S = 7 * 24 * 3600
"""Longest life of a session in seconds."""
IDLE_S = 12 * 3600
"""Seconds without a request after which a session ends."""
SESSIONS_MAX = 32
"""Sessions, and tokens, per key; a further one replaces the oldest."""

_TOKEN = "page-token"  # noqa: S105 - a kind of record
_SESSION = "page-session"
_RENEW_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSession:
    """A session at its begin, the only time at which its secrets are known here.

    Attributes:
        secret: What the page sends as a header.
        credential: The key as which it acts.
        read_only: Whether it may only read.
        expires_ms: Milliseconds since the epoch.
    """

    cookie: str = field(repr=False)
    secret: str = field(repr=False)
    credential: Credential
    read_only: bool
    expires_ms: int


class PageSessions:
    """Creates, finds and ends sessions of browsers.

    Args:
        credentials: Finds the keys as which they act.
        clock: Provides the time for their expiry.
    """

    def __init__(self, records: RecordStore, credentials: CredentialLookup, *, clock: Clock) -> None:
        self._records = records
        self._credentials = credentials
        self._clock = clock
        self._run = secrets.token_hex(16)

    async def create_token(self, access_key_id: str, *, read_only: bool) -> tuple[str, int]:
        """Return a new one-time token, and the time of its expiry in milliseconds since the epoch.

        Args:
            access_key_id: Id of the key as which the session will act.
            read_only: Whether the session may only read.

        Raises:
            AwsError: AccessDeniedException, the key is that of a job.
        """
        holder = self._credentials.lookup(access_key_id)
        if holder is None or holder.scope is not None:
            raise AwsError(
                "A session of the page acts as a user; the key of a job or an endpoint opens none. Use your own keys"
                " (`tidemill env`).",
                code="AccessDeniedException",
            )
        token, expires_ms = secrets.token_urlsafe(32), self._clock.now_ms() + TOKEN_S * 1000
        document: dict[str, Any] = {"read_only": read_only, "expires_ms": expires_ms}
        await self._keep(_TOKEN, token, access_key_id, document, expires_after_ms=TOKEN_S * 1000)
        return token, expires_ms

    def owner_of(self, token: str) -> Credential | None:
        """Return the key as which the session of a token would act, or None; the token stays usable.

        Args:
            token: What `create_token` returned.
        """
        found = self._records.get(_TOKEN, _digest(token))
        return None if found is None else self._credential(found.status)

    async def start(self, token: str, *, over_tls: bool) -> StartedSession | None:
        """Use up a token and return its session; None for a token that is unknown, used or expired.

        Args:
            token: What `create_token` returned.
            over_tls: Whether the browser knows by TLS that it speaks to this service, now and in each later request.
        """
        if self._records.get(_TOKEN, _digest(token)) is None:
            return None  # strangers cause no writes
        used = await self._records.delete(_TOKEN, _digest(token))
        now_ms = self._clock.now_ms()
        if used is None or used.is_damaged or now_ms >= used.document["expires_ms"]:
            return None
        credential = self._credential(used.status, read_only=used.document["read_only"])
        if credential is None:
            return None
        cookie, secret = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        document = {
            "secret": _digest(secret),
            "read_only": used.document["read_only"],
            "expires_ms": now_ms + IDLE_S * 1000,
            "run": "" if over_tls else self._run,
        }
        await self._keep(_SESSION, cookie, used.status, document, expires_after_ms=SESSION_S * 1000)
        return StartedSession(
            cookie=cookie,
            secret=secret,
            credential=credential,
            read_only=document["read_only"],
            expires_ms=now_ms + SESSION_S * 1000,
        )

    async def credential(self, cookie: str, secret: str, *, over_tls: bool) -> Credential | None:
        """Return the key as which a session acts now; None unless both secrets are those of one live session.

        Args:
            secret: Value of the header.
            over_tls: As for `start`.
        """
        session = self._records.get(_SESSION, _digest(cookie))
        if session is None or not hmac.compare_digest(session.document["secret"], _digest(secret)):
            return None
        if session.document.get("run") != ("" if over_tls else self._run):
            return None
        now_ms = self._clock.now_ms()
        expires_ms = min(session.document["expires_ms"], session.created_ms + SESSION_S * 1000)
        if now_ms >= expires_ms:
            return None
        if session.document["expires_ms"] - now_ms < (IDLE_S - _RENEW_S) * 1000:
            await self._renew(session.name, now_ms + IDLE_S * 1000)
        return self._credential(session.status, read_only=session.document["read_only"])

    async def end(self, cookie: str) -> None:
        """End a session.

        Args:
            cookie: Value of its cookie.
        """
        await self._records.delete(_SESSION, _digest(cookie))

    async def end_all(self, access_key_id: str) -> int:
        """End the sessions of a key, and its tokens; return how many sessions these were.

        Args:
            access_key_id: Id of the key.
        """
        sessions = await self._names(_SESSION, access_key_id)
        tokens = await self._names(_TOKEN, access_key_id)

        def remove(transaction: Transaction) -> None:
            for name in sessions:
                transaction.delete(_SESSION, name)
            for name in tokens:
                transaction.delete(_TOKEN, name)

        await self._records.change(remove)
        return len(sessions)

    async def _keep(
        self, kind: str, secret: str, access_key_id: str, document: dict[str, Any], *, expires_after_ms: int
    ) -> None:
        """Store a record under the digest of its secret, and remove expired ones, and the oldest of too many."""
        now_ms = self._clock.now_ms()
        old = Query(sort_by="created", descending=False, created_before_ms=now_ms - expires_after_ms)
        gone = [record.name for record in (await self._records.summaries(kind, old)).records]
        gone += (await self._names(kind, access_key_id))[SESSIONS_MAX - 1 :]

        def store(transaction: Transaction) -> None:
            for name in gone:
                transaction.delete(kind, name)
            transaction.insert(
                Record(
                    kind=kind,
                    name=_digest(secret),
                    status=access_key_id,
                    created_ms=now_ms,
                    modified_ms=now_ms,
                    document=document,
                )
            )

        await self._records.change(store, grows=True)

    async def _names(self, kind: str, access_key_id: str) -> list[str]:
        """Return the names of the records of a key, the newest first."""
        found = await self._records.summaries(kind, Query(statuses=(access_key_id,), limit=4 * SESSIONS_MAX))
        return [record.name for record in found.records]

    async def _renew(self, name: str, expires_ms: int) -> None:
        def extend(record: Record) -> Record:
            return replace(record, document={**record.document, "expires_ms": expires_ms})

        await self._records.update(_SESSION, name, extend)

    def _credential(self, access_key_id: str, *, read_only: bool = False) -> Credential | None:
        found = self._credentials.lookup(access_key_id)
        if found is None or (found.expires_ms is not None and self._clock.now_ms() >= found.expires_ms):
            return None
        if not read_only:
            return found
        limit = PolicyLimit(READ_ONLY, "this read-only session", alone=True, decides_all=True)
        return replace(found, limits=(*found.limits, limit))


def _digest(secret: str) -> str:
    """Return the digest of a secret of 256 random bits, which needs neither salt nor a slow function."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
