"""Access keys of additional users, so that each person's key can be revoked separately.

A user exists as long as it has a key. Additional users may do everything except manage keys.
"""

import secrets
import string
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.names import ACCOUNT_ID
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

__all__ = ["MAX_KEYS", "UserKey", "UserKeys", "user_arn"]

MAX_KEYS = 2
"""Maximum number of keys per user, as on AWS. Two, so that a new key can be created before the old one is deleted."""
_USER = "user"  # named by the user, with the ids of its keys
_KEY = "user-key"  # named by the access key id
_ID_ALPHABET = string.ascii_uppercase + "234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    """One key of a user.

    Attributes:
        user: Name of the user.
        access_key_id: 20 characters, begins with ``AKIA``.
        secret_access_key: 40 characters.
        created_ms: Milliseconds since the epoch.
    """

    user: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    created_ms: int


class UserKeys:
    """Creates, lists and deletes keys of users.

    Args:
        records: Stores the keys.
        clock: Provides creation times.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    def get(self, access_key_id: str) -> UserKey | None:
        """Return a key, or None if it does not exist or was deleted.

        Args:
            access_key_id: Id of the key.
        """
        record = self._records.get(_KEY, access_key_id)
        return None if record is None else _key(record)

    def keys_of(self, user: str) -> list[UserKey]:
        """Return the keys of a user, the oldest first; none if there is no such user.

        Args:
            user: Name of the user.
        """
        record = self._records.get(_USER, user)
        ids: list[str] = [] if record is None else record.document["keys"]
        return [key for each in ids if (key := self.get(each)) is not None]

    async def users(self, *, after: str | None, limit: int) -> tuple[list[str], str | None]:
        """Return a page of the names of users, sorted, and the token of the next page.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        page = await self._records.summaries(_USER, Query(sort_by="name", descending=False, limit=limit, after=after))
        return [record.name for record in page.records], page.next_token

    async def create(self, user: str) -> UserKey:
        """Create a key.

        Raises:
            AwsError: LimitExceeded, the user has `MAX_KEYS` keys.
        """
        now_ms = self._clock.now_ms()
        key = UserKey(
            user=user,
            access_key_id="AKIA" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(16)),
            secret_access_key=secrets.token_urlsafe(30),
            created_ms=now_ms,
        )
        document = {"user": user, "secret_access_key": key.secret_access_key}

        def work(transaction: Transaction) -> None:
            held = transaction.get(_USER, user)
            ids = held.document["keys"] if held else []
            if len(ids) >= MAX_KEYS:
                raise AwsError(
                    f"Cannot exceed quota for AccessKeysPerUser: {MAX_KEYS}. Delete a key of user {user} first: it has"
                    f" {' and '.join(ids)}",
                    code="LimitExceeded",
                )
            if held is None:
                transaction.insert(_record(_USER, user, {"keys": [key.access_key_id]}, now_ms))
            else:
                transaction.update(_USER, user, lambda now: replace(now, document={"keys": [*ids, key.access_key_id]}))
            transaction.insert(_record(_KEY, key.access_key_id, document, now_ms))

        await self._records.change(work, grows=True)
        return key

    async def delete(self, access_key_id: str, *, user: str) -> None:
        """Delete a key: requests signed with it are refused from now on. Deleting the last key deletes the user.

        Raises:
            AwsError: NoSuchEntity, the user has no such key.
        """

        def work(transaction: Transaction) -> None:
            held = transaction.get(_USER, user)
            ids = held.document["keys"] if held else []
            if access_key_id not in ids:
                raise AwsError(
                    f"The Access Key with id {access_key_id} cannot be found for user {user}", code="NoSuchEntity"
                )
            left = [each for each in ids if each != access_key_id]
            if left:
                transaction.update(_USER, user, lambda now: replace(now, document={"keys": left}))
            else:
                transaction.delete(_USER, user)
            transaction.delete(_KEY, access_key_id)

        await self._records.change(work)


def user_arn(user: str) -> str:
    """Return the ARN of a user.

    Args:
        user: Name of the user.
    """
    return f"arn:aws:iam::{ACCOUNT_ID}:user/{user}"


def _record(kind: str, name: str, document: dict[str, Any], now_ms: int) -> Record:
    return Record(kind=kind, name=name, created_ms=now_ms, modified_ms=now_ms, document=document)


def _key(record: Record) -> UserKey:
    return UserKey(
        user=record.document["user"],
        access_key_id=record.name,
        secret_access_key=record.document["secret_access_key"],
        created_ms=record.created_ms,
    )
