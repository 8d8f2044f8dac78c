"""Additional users: their access keys, so that each person's key can be revoked separately, and their policies.

A user that was not created by name exists as long as it has a key or a policy. A user without a policy may do
everything except manage users, keys and policies.
"""

import json
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidemill.core.clock import Clock
from tidemill.core.documents import members_of, parsed
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.policy import IamPolicy
from tidemill.core.policy_document import read_policy
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

MAX_KEYS = 2
"""Maximum number of keys per user, as on AWS. Two, so that a new key can be created before the old one is deleted."""
_USER = "user"  # named by the user, with the ids of its keys
_KEY = "user-key"  # named by the access key id
_ID_ALPHABET = string.ascii_uppercase + "234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user.

    Attributes:
        created_ms: Milliseconds since the epoch.
        keys: Ids of its keys, the oldest first.
        policies: Documents of its inline policies by name, as they were sent.
        stays: Whether it was created by name, so that it exists without keys and policies.
    """

    name: str
    created_ms: int
    keys: tuple[str, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    stays: bool = False

    @property
    def policy(self) -> IamPolicy | None:
        """What its keys may do: all that one of its policies allows and none denies; None without a policy."""
        if not self.policies:
            return None
        read = [read_policy(json.loads(text)) for text in self.policies.values()]
        return IamPolicy(tuple(statement for policy in read for statement in policy.statements))

    @classmethod
    def of(cls, record: Record) -> "User":
        """Return the user of a record. Records of earlier versions have only keys."""
        return parsed(cls, {**record.document, "name": record.name, "created_ms": record.created_ms})


@dataclass(frozen=True, slots=True, kw_only=True)
class UserKey:
    """One key of a user.

    Attributes:
        access_key_id: 20 characters, begins with ``AKIA``.
        secret_access_key: 40 characters.
        created_ms: Milliseconds since the epoch.
    """

    user: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    created_ms: int


class UserKeys:
    """Creates, lists and deletes keys of users."""

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

    def user(self, name: str) -> User | None:
        """Return a user, or None if it does not exist.

        Args:
            name: Name of the user.
        """
        record = self._records.get(_USER, name)
        return None if record is None else User.of(record)

    def keys_of(self, user: str) -> list[UserKey]:
        """Return the keys of a user, the oldest first; none if there is no such user.

        Args:
            user: Name of the user.
        """
        found = self.user(user)
        return [key for each in (found.keys if found else ()) if (key := self.get(each)) is not None]

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
            held = _held(transaction, user) or User(name=user, created_ms=now_ms)
            if len(held.keys) >= MAX_KEYS:
                raise AwsError(
                    f"Cannot exceed quota for AccessKeysPerUser: {MAX_KEYS}. Delete a key of user {user} first: it has"
                    f" {' and '.join(held.keys)}",
                    code="LimitExceeded",
                )
            _store(transaction, replace(held, keys=(*held.keys, key.access_key_id)))
            transaction.insert(_record(_KEY, key.access_key_id, document, now_ms))

        await self._records.change(work, grows=True)
        return key

    async def delete(self, access_key_id: str, *, user: str) -> None:
        """Delete a key: requests signed with it are refused from now on.

        Raises:
            AwsError: NoSuchEntity, the user has no such key.
        """

        def work(transaction: Transaction) -> None:
            held = _held(transaction, user)
            if held is None or access_key_id not in held.keys:
                raise AwsError(
                    f"The Access Key with id {access_key_id} cannot be found for user {user}", code="NoSuchEntity"
                )
            _store(transaction, replace(held, keys=tuple(each for each in held.keys if each != access_key_id)))
            transaction.delete(_KEY, access_key_id)

        await self._records.change(work)

    async def create_user(self, name: str) -> User:
        """Create a user without keys and policies.

        Raises:
            AwsError: EntityAlreadyExists.
        """
        created = User(name=name, created_ms=self._clock.now_ms(), stays=True)

        def work(transaction: Transaction) -> None:
            if transaction.get(_USER, name) is not None:
                raise AwsError(f"User with name {name} already exists.", code="EntityAlreadyExists")
            _store(transaction, created)

        await self._records.change(work, grows=True)
        return created

    async def delete_user(self, name: str) -> None:
        """Delete a user that has neither keys nor policies.

        Raises:
            AwsError: NoSuchEntity; DeleteConflict, it has keys or policies.
        """

        def work(transaction: Transaction) -> None:
            held = _existing(transaction, name)
            if held.keys or held.policies:
                raise AwsError(
                    f"Cannot delete user {name}: it has keys or policies ({', '.join((*held.keys, *held.policies))});"
                    " delete them first",
                    code="DeleteConflict",
                )
            transaction.delete(_USER, name)

        await self._records.change(work)

    async def change_policies(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        """Change the policies of a user: its keys may do what they allow, from the next request on.

        Args:
            change: Converts the policies by name.

        Raises:
            AwsError: NoSuchEntity, or raised by ``change``.
        """

        def work(transaction: Transaction) -> None:
            held = _existing(transaction, name)
            _store(transaction, replace(held, policies=change(held.policies)))

        await self._records.change(work, grows=True)


def user_arn(user: str) -> str:
    """Return the ARN of a user.

    Args:
        user: Name of the user.
    """
    return f"arn:aws:iam::{ACCOUNT_ID}:user/{user}"


def _held(transaction: Transaction, name: str) -> User | None:
    record = transaction.get(_USER, name)
    return None if record is None else User.of(record)


def _existing(transaction: Transaction, name: str) -> User:
    held = _held(transaction, name)
    if held is None:
        raise AwsError(f"The user with name {name} cannot be found.", code="NoSuchEntity")
    return held


def _store(transaction: Transaction, user: User) -> None:
    """Replace the record of a user; remove it if nothing is left of the user."""
    transaction.delete(_USER, user.name)
    if user.keys or user.policies or user.stays:
        transaction.insert(_record(_USER, user.name, members_of(user, without=("name", "created_ms")), user.created_ms))


def _record(kind: str, name: str, document: dict[str, Any], now_ms: int) -> Record:
    return Record(kind=kind, name=name, created_ms=now_ms, modified_ms=now_ms, document=document)


def _key(record: Record) -> UserKey:
    return UserKey(
        user=record.document["user"],
        access_key_id=record.name,
        secret_access_key=record.document["secret_access_key"],
        created_ms=record.created_ms,
    )
