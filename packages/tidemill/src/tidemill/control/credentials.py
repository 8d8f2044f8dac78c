"""Keys: the user's own pair, and a temporary pair for each job that ends with it."""

import base64
import secrets
from dataclasses import dataclass

from tidemill.core.clock import Clock
from tidemill.core.names import ACCOUNT_ID
from tidemill.store.base import Record, RecordStore, Transaction
from tidemill.wire.credentials import Credential

__all__ = ["Credentials", "TemporaryKeys", "end_keys"]

_KIND = "credential"


@dataclass(frozen=True, slots=True)
class TemporaryKeys:
    """Keys of one job, as its environment gets them."""

    access_key_id: str
    secret_access_key: str
    session_token: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that AWS's SDKs read."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_SESSION_TOKEN": self.session_token,
        }


class Credentials:
    """Finds the secret of an access key; makes and ends the temporary ones.

    Args:
        user: The pair made at the first start of the service.
        records: Where temporary keys are kept.
        clock: For their expiry.
    """

    def __init__(self, user: Credential, records: RecordStore, *, clock: Clock) -> None:
        self._user = user
        self._records = records
        self._clock = clock

    def lookup(self, access_key_id: str) -> Credential | None:
        """The credential of ``access_key_id``, or None for an unknown or ended key."""
        if access_key_id == self._user.access_key_id:
            return self._user
        record = self._records.get(_KIND, access_key_id) if access_key_id.startswith("ASIA") else None
        return Credential(**record.document) if record else None

    async def issue(self, holder_id: str, *, role: str, session: str, lifetime_s: float) -> TemporaryKeys:
        """Make keys for a job or endpoint, replacing those it had.

        Args:
            holder_id: Hexadecimal id of the job; the access key id follows from it, so that ending needs no record.
            role: Name or ARN of the role that the keys act as.
            session: Name of the session in the caller's ARN.
            lifetime_s: After that the keys are refused in any case.
        """
        keys = TemporaryKeys(
            access_key_id=_access_key_id(holder_id),
            secret_access_key=secrets.token_urlsafe(30),
            session_token=secrets.token_urlsafe(96),
        )
        now_ms = self._clock.now_ms()
        credential = {
            "access_key_id": keys.access_key_id,
            "secret_access_key": keys.secret_access_key,
            "session_token": keys.session_token,
            "expires_ms": now_ms + int(lifetime_s * 1000),
            "arn": f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{role.rpartition('/')[2]}/{session}",
        }
        record = Record(kind=_KIND, name=keys.access_key_id, created_ms=now_ms, modified_ms=now_ms, document=credential)

        def replace(transaction: Transaction) -> None:
            transaction.delete(_KIND, record.name)
            transaction.insert(record)

        await self._records.change(replace, grows=True)
        return keys


def end_keys(transaction: Transaction, holder_id: str) -> None:
    """Make the keys of a job or endpoint worthless, in the transaction that ends it."""
    transaction.delete(_KIND, _access_key_id(holder_id))


def _access_key_id(holder_id: str) -> str:
    return "ASIA" + base64.b32encode(bytes.fromhex(holder_id)).decode()[:16]
