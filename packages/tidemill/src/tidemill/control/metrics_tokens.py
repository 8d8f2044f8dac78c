"""Tokens with which monitors read the metrics of the service. Only their hashes are stored."""

import hashlib
import hmac
import secrets
from dataclasses import dataclass

from tidemill.core.clock import Clock
from tidemill.errors import AwsError, ResourceNotFound
from tidemill.store.records.base import Query, Record, RecordExists, RecordStore, Transaction

TOKENS_MAX = 20
_TOKEN = "metrics-token"  # noqa: S105 - the kind of the records, named by the user
_PREFIX = "tmm_"


@dataclass(frozen=True, slots=True)
class MetricsToken:
    """A token, without its secret.

    Attributes:
        created_ms: Milliseconds since the epoch.
    """

    name: str
    created_ms: int


class MetricsTokens:
    """Creates, checks and deletes tokens.

    Args:
        records: Stores their hashes.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._hashes: tuple[int | None, tuple[bytes, ...]] = None, ()

    async def create(self, name: str) -> str:
        """Create a token and return its secret, which cannot be read again.

        Args:
            name: Who uses it.

        Raises:
            AwsError: EntityAlreadyExists; LimitExceeded, there are `TOKENS_MAX` tokens.
        """
        secret, now_ms = _PREFIX + secrets.token_urlsafe(32), self._clock.now_ms()
        # The secret has 256 random bits, which no one can try, so that a slow hash would protect nothing.
        document = {"sha256": hashlib.sha256(secret.encode()).hexdigest()}
        if len(await self.list()) >= TOKENS_MAX:
            raise AwsError(
                f"There are {TOKENS_MAX} tokens for metrics, which is the most; revoke one first", code="LimitExceeded"
            )

        def work(transaction: Transaction) -> None:
            transaction.insert(Record(kind=_TOKEN, name=name, created_ms=now_ms, modified_ms=now_ms, document=document))

        try:
            await self._records.change(work, grows=True)
        except RecordExists as error:
            raise AwsError(
                f"There is already a token {name!r} for metrics; revoke it first, or choose another name",
                code="EntityAlreadyExists",
            ) from error
        return secret

    async def list(self) -> list[MetricsToken]:
        """Return the tokens by name."""
        page = await self._records.summaries(_TOKEN, Query(sort_by="name", descending=False, limit=TOKENS_MAX * 2))
        return [MetricsToken(each.name, each.created_ms) for each in page.records]

    async def delete(self, name: str) -> None:
        """Delete a token: nobody can use it from now on.

        Raises:
            ResourceNotFound: There is no such token.
        """
        if await self._records.delete(_TOKEN, name) is None:
            raise ResourceNotFound(f"There is no token {name!r} for metrics")

    async def allows(self, secret: str) -> bool:
        """Return whether a token has this secret.

        Args:
            secret: As a monitor sends it.
        """
        generation, hashes = self._hashes
        now = self._records.generation(_TOKEN)
        if now is None or now != generation:
            page = await self._records.list(_TOKEN, Query(limit=TOKENS_MAX * 2))
            hashes = tuple(bytes.fromhex(each.document["sha256"]) for each in page.records)
            self._hashes = now, hashes
        given = hashlib.sha256(secret.encode(errors="replace")).digest()
        return any(hmac.compare_digest(given, each) for each in hashes)
