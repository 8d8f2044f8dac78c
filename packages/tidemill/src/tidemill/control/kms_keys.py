"""The KMS keys that clients create or name, and their aliases. No key has material: tidemill encrypts nothing.

A request may name a key that was never created here, because scripts and settings of AWS name keys of their account.
Such a key exists from its first use on, so that clients can look up what they named.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tidemill.control.resources import page_of
from tidemill.core.clock import Clock
from tidemill.core.names import kms_arn
from tidemill.errors import AwsError
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

_KEY = "kms-key"  # named by its ARN
_ALIAS = "kms-alias"  # named by its ARN
_MANAGED = "alias/aws/"
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsKey:
    """One key.

    Attributes:
        arn: As the client named it, if the client gave an ARN.
        description: Of CreateKey.
        policy: The JSON of its policy, which has no effect; empty for AWS's default.
        enabled: Whether objects can be stored with it.
        deletion_ms: When it is to be deleted, in milliseconds since the epoch; 0 if it is not. No key has material that
            could be destroyed, so it stays in this state until the deletion is cancelled.
        managed: Whether it stands behind an alias of AWS, e.g. ``alias/aws/s3``.
        created_ms: Milliseconds since the epoch.
    """

    arn: str
    description: str = ""
    policy: str = ""
    enabled: bool = True
    deletion_ms: int = 0
    managed: bool = False
    created_ms: int

    @property
    def key_id(self) -> str:
        """The last part of the ARN."""
        return self.arn.partition(":key/")[2] or self.arn

    @property
    def state(self) -> str:
        """KMS's name of the state."""
        if self.deletion_ms:
            return "PendingDeletion"
        return "Enabled" if self.enabled else "Disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsAlias:
    """A further name of a key."""

    arn: str
    key: str
    """ARN of the key."""
    created_ms: int

    @property
    def name(self) -> str:
        """``alias/NAME``."""
        return f"alias/{self.arn.partition(':alias/')[2]}"


class KmsKeys:
    """Creates, names and finds keys.

    Args:
        records: Stores keys and aliases.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock) -> None:
        self._records = records
        self._region = region
        self._clock = clock

    async def name(self, text: str) -> str:
        """Return the ARN of the key that a request names; the key and its alias exist from now on.

        Args:
            text: Id or ARN of a key, or name or ARN of an alias.
        """
        arn = self._arn(text)
        found = self._find(arn)
        if found is not None:
            return found.arn
        now_ms = self._clock.now_ms()
        # The same alias gives the same key, even if two requests name it at once.
        key_arn = self._arn(str(uuid.uuid5(uuid.NAMESPACE_URL, arn))) if _is_alias(arn) else arn
        key = KmsKey(arn=key_arn, managed=f":{_MANAGED}" in arn, created_ms=now_ms)

        def work(transaction: Transaction) -> None:
            if transaction.get(_KEY, key_arn) is None:
                transaction.insert(_key_record(key))
            if _is_alias(arn) and transaction.get(_ALIAS, arn) is None:
                transaction.insert(_alias_record(KmsAlias(arn=arn, key=key_arn, created_ms=now_ms)))

        await self._records.change(work, grows=True)
        return key_arn

    async def use(self, text: str) -> str:
        """Return the ARN of the key with which a request stores an object; as `name` otherwise.

        Raises:
            AwsError: The key is disabled, or its deletion is scheduled.
        """
        arn = await self.name(text)
        found = self._find(arn)
        if found is not None and found.state != "Enabled":
            code = "KMS.DisabledException" if found.state == "Disabled" else "KMS.KMSInvalidStateException"
            raise AwsError(f"{arn} is {found.state}; use another key, or enable this one", code=code)
        return arn

    def members_of(self, text: str | None) -> dict[str, Any]:
        """Return what S3 shows of an object that a job stores with a key: nothing without one.

        Args:
            text: The job's KmsKeyId; may be empty.
        """
        if not text:
            return {}
        found = self._find(self._arn(text))
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": found.arn if found else self._arn(text)}

    async def get(self, text: str) -> KmsKey:
        """Return a key. Keys behind aliases of AWS, e.g. ``alias/aws/s3``, always exist.

        Args:
            text: Id or ARN of the key, or name or ARN of an alias.

        Raises:
            AwsError: NotFoundException: neither created nor named.
        """
        arn = self._arn(text)
        if f":{_MANAGED}" in arn:
            await self.name(text)
        found = self._find(arn)
        if found is None:
            raise _not_found(arn)
        return found

    async def create(self, *, description: str, policy: str) -> KmsKey:
        """Create a key with a random id.

        Args:
            description: Shown by DescribeKey.
            policy: JSON text; empty for the default.
        """
        arn, now_ms = self._arn(str(uuid.uuid4())), self._clock.now_ms()
        key = KmsKey(arn=arn, description=description, policy=policy, created_ms=now_ms)
        await self._records.insert(_key_record(key))
        return key

    async def set_policy(self, text: str, policy: str) -> None:
        """Replace the policy of a key.

        Args:
            text: Id or ARN of the key.
            policy: JSON.

        Raises:
            AwsError: NotFoundException.
        """
        await self._change(text, lambda key: replace(key, policy=policy))

    async def schedule_deletion(self, text: str, *, days: int) -> KmsKey:
        """Mark a key for deletion in some days, and return it.

        Raises:
            AwsError: NotFoundException; KMSInvalidStateException: it is marked already, or belongs to AWS.
        """
        deletion_ms = self._clock.now_ms() + days * _DAY_MS

        def change(key: KmsKey) -> KmsKey:
            if key.managed or key.deletion_ms:
                raise _invalid_state(key, "is AWS's" if key.managed else "is pending deletion")
            return replace(key, deletion_ms=deletion_ms)

        return await self._change(text, change)

    async def cancel_deletion(self, text: str) -> KmsKey:
        """Take the mark from a key, and return it; as on AWS, it is then disabled.

        Raises:
            AwsError: NotFoundException; KMSInvalidStateException: it is not marked.
        """

        def change(key: KmsKey) -> KmsKey:
            if not key.deletion_ms:
                raise _invalid_state(key, "is not pending deletion")
            return replace(key, deletion_ms=0, enabled=False)

        return await self._change(text, change)

    async def enable(self, text: str, *, enabled: bool) -> None:
        """Enable or disable a key.

        Raises:
            AwsError: NotFoundException; KMSInvalidStateException: it is marked for deletion, or belongs to AWS.
        """

        def change(key: KmsKey) -> KmsKey:
            if key.managed or key.deletion_ms:
                raise _invalid_state(key, "is AWS's" if key.managed else "is pending deletion")
            return replace(key, enabled=enabled)

        await self._change(text, change)

    async def _change(self, text: str, change: Callable[[KmsKey], KmsKey]) -> KmsKey:
        if _is_alias(self._arn(text)):
            raise AwsError(
                f"Invalid keyId {text}: expected the id or ARN of a key, no alias; DescribeKey shows them",
                code="NotFoundException",
            )
        arn = (await self.get(text)).arn
        record = await self._records.update(_KEY, arn, lambda record: _key_record(change(_key_of(record))))
        if record is None:
            raise _not_found(arn)
        return _key_of(record)

    async def create_alias(self, name: str, *, target: str) -> None:
        """Give a key a further name.

        Args:
            target: Id or ARN of the key.

        Raises:
            AwsError: InvalidAliasNameException, AlreadyExistsException, NotFoundException.
        """
        if not name.startswith("alias/") or name == "alias/" or name.startswith(_MANAGED):
            raise AwsError(
                f"{name!r} cannot be an alias: expected alias/NAME, and names below {_MANAGED} are reserved",
                code="InvalidAliasNameException",
            )
        arn, key_arn = self._arn(name), self._arn(target)
        alias = KmsAlias(arn=arn, key=key_arn, created_ms=self._clock.now_ms())

        def work(transaction: Transaction) -> None:
            if transaction.get(_ALIAS, arn) is not None:
                raise AwsError(f"An alias with the name {arn} already exists", code="AlreadyExistsException")
            if transaction.get(_KEY, key_arn) is None:
                raise _not_found(key_arn)
            transaction.insert(_alias_record(alias))

        await self._records.change(work, grows=True)

    async def keys(self, *, after: str | None, limit: int) -> tuple[list[KmsKey], str | None]:
        """Return a page of the keys and the token of the next page.

        Raises:
            ValidationException: ``after`` is not a token of this method.
        """
        found, token = await page_of(self._records, _KEY, _by_name(after, limit))
        return [KmsKey(arn=each.name, created_ms=each.created_ms) for each in found], token

    async def aliases(self, *, of: str | None, after: str | None, limit: int) -> tuple[list[KmsAlias], str | None]:
        """Return a page of the aliases and the token of the next page.

        Args:
            of: Only aliases of this key, given by id or ARN; None for all. A page may then have fewer than ``limit``.
            after: Token of the previous page.
            limit: Maximum number of aliases.

        Raises:
            ValidationException: ``after`` is not a token of this method.
        """
        found, token = await page_of(self._records, _ALIAS, _by_name(after, limit))
        aliases = [KmsAlias(arn=each.name, key=each.summary["key"], created_ms=each.created_ms) for each in found]
        wanted = None if of is None else self._arn(of)
        return [alias for alias in aliases if wanted in (None, alias.key)], token

    def _arn(self, text: str) -> str:
        return kms_arn(text, region=self._region)

    def _find(self, arn: str) -> KmsKey | None:
        if _is_alias(arn):
            alias = self._records.get(_ALIAS, arn)
            if alias is None:
                return None
            arn = alias.summary["key"]
        record = self._records.get(_KEY, arn)
        return None if record is None else _key_of(record)


def _is_alias(arn: str) -> bool:
    return ":alias/" in arn


def _by_name(after: str | None, limit: int) -> Query:
    return Query(sort_by="name", descending=False, limit=limit, after=after)


def _key_of(record: Record) -> KmsKey:
    return KmsKey(arn=record.name, created_ms=record.created_ms, **record.document)


def _key_record(key: KmsKey) -> Record:
    document = {
        "description": key.description,
        "policy": key.policy,
        "enabled": key.enabled,
        "deletion_ms": key.deletion_ms,
        "managed": key.managed,
    }
    return _record(_KEY, key.arn, key.created_ms, document=document)


def _alias_record(alias: KmsAlias) -> Record:
    return _record(_ALIAS, alias.arn, alias.created_ms, summary={"key": alias.key})


def _record(
    kind: str, name: str, at_ms: int, *, document: dict[str, Any] | None = None, summary: dict[str, Any] | None = None
) -> Record:
    return Record(
        kind=kind, name=name, created_ms=at_ms, modified_ms=at_ms, document=document or {}, summary=summary or {}
    )


def _invalid_state(key: KmsKey, why: str) -> AwsError:
    return AwsError(f"{key.arn} {why}.", code="KMSInvalidStateException")


def _not_found(arn: str) -> AwsError:
    what = f"Alias {arn} is not found." if _is_alias(arn) else f"Key '{arn}' does not exist"
    return AwsError(what, code="NotFoundException")
