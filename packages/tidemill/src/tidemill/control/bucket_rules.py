"""What clients set for single buckets: the default encryption of new objects, and the policy."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill.control.kms_keys import KmsKeys
from tidemill.core.bucket_policy import BucketPolicy, read_bucket_policy
from tidemill.core.clock import Clock
from tidemill.store.objects.errors import no_such_bucket
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import Record, RecordStore, Transaction

DEFAULT_KEY = "alias/aws/s3"
"""The KMS key of objects for which none was named, as on AWS."""

_RULES = "bucket-rules"
_KNOWN_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultEncryption:
    """The encryption of objects that are stored without one. It is only shown: tidemill encrypts nothing.

    Attributes:
        algorithm: ``AES256``, ``aws:kms`` or ``aws:kms:dsse``.
        key: Id, alias or ARN of a KMS key, as the client gave it; may be empty.
        bucket_key: Whether objects show ``BucketKeyEnabled``.
    """

    algorithm: str
    key: str = ""
    bucket_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    has_bucket: bool = True
    encryption: DefaultEncryption | None = None
    policy_text: str = ""
    policy: BucketPolicy | None = None


class BucketRules:
    """Keeps and finds the rules of buckets; they end with their bucket.

    Rules that were found, also that there are none, are kept in memory until any are changed, so that a request costs
    no read of the database. Nothing else writes such records.

    Args:
        objects: Tells when a bucket was created: rules of an earlier bucket of the same name do not apply.
        clock: Provides times of records.
        encrypts: Whether default encryption is shown; false if the setting ``encryption`` is ``refuse``.
    """

    def __init__(
        self, records: RecordStore, objects: ObjectStore, keys: KmsKeys, *, clock: Clock, encrypts: bool = True
    ) -> None:
        self._records = records
        self._objects = objects
        self._keys = keys
        self._clock = clock
        self._encrypts = encrypts
        self._known: dict[str, _Rules] = {}
        self._writing: set[asyncio.Task[object]] = set()

    def require_bucket(self, bucket: str) -> None:
        """Raise NoSuchBucket unless there is such a bucket; while its rules are in memory, the database is not read.

        A bucket may be deleted after that, so the transaction that stores an object in it checks again.

        Raises:
            NoSuchBucket: If there is none.
        """
        if not self._of(bucket).has_bucket:
            raise no_such_bucket(bucket)

    def policy_of(self, bucket: str) -> BucketPolicy | None:
        """Return the policy of a bucket, or None.

        Args:
            bucket: Name of the bucket.
        """
        return self._of(bucket).policy

    def policy_text(self, bucket: str) -> str:
        """Return the JSON of a bucket's policy as the client gave it; empty if there is none.

        Args:
            bucket: Name of the bucket.
        """
        return self._of(bucket).policy_text

    def encryption_of(self, bucket: str) -> DefaultEncryption | None:
        """Return what new objects show if nothing else is requested; None for nothing.

        Args:
            bucket: Name of the bucket.
        """
        return self._of(bucket).encryption if self._encrypts else None

    def members_of(self, bucket: str, key: str | None) -> dict[str, Any]:
        """Return what S3 shows of an object that the service itself stores for a job.

        Args:
            key: The job's KmsKeyId; may be empty.
        """
        default = self.encryption_of(bucket)
        if key or default is None:
            return self._keys.members_of(key)
        if default.algorithm == "AES256":
            return {"ServerSideEncryption": default.algorithm}
        members = self._keys.members_of(default.key or DEFAULT_KEY) | {"ServerSideEncryption": default.algorithm}
        return members | ({"BucketKeyEnabled": True} if default.bucket_key else {})

    def key_arn(self, key: str) -> str:
        """Return the ARN of a KMS key that a request names; it need not exist.

        Args:
            key: Id, alias or ARN.
        """
        arn: str = self._keys.members_of(key)["SSEKMSKeyId"]
        return arn

    async def set_encryption(self, bucket: str, encryption: DefaultEncryption | None) -> None:
        """Replace the default encryption of a bucket.

        Args:
            encryption: What new objects show; None to remove it.

        Raises:
            NoSuchBucket: If there is none.
        """
        if encryption is not None and encryption.algorithm != "AES256":
            await self._keys.name(encryption.key or DEFAULT_KEY)
        await self._change(bucket, lambda rules: replace(rules, encryption=encryption), grows=encryption is not None)

    async def set_policy(self, bucket: str, text: str) -> None:
        """Replace the policy of a bucket by a JSON that `read_bucket_policy` accepts, or by none if it is empty.

        Raises:
            NoSuchBucket: There is no such bucket.
        """
        await self._change(bucket, lambda rules: replace(rules, policy_text=text), grows=bool(text))

    async def forget(self, bucket: str, *, created_ms: int) -> None:
        """Remove the rules of a bucket that was created at a time and does not exist any more.

        Args:
            created_ms: Milliseconds since the epoch.
        """
        await self._write(self._records.delete(_RULES, _name(bucket, created_ms)))

    async def _change(self, bucket: str, change: Callable[[_Rules], _Rules], *, grows: bool) -> None:
        created_ms = self._objects.bucket_created_ms(bucket)
        if created_ms is None:
            raise no_such_bucket(bucket)
        name, now_ms = _name(bucket, created_ms), self._clock.now_ms()

        def work(transaction: Transaction) -> None:
            present = transaction.delete(_RULES, name)
            rules = change(_from_document(present.document if present and not present.is_damaged else {}))
            if rules != _Rules():
                document = _to_document(rules)
                transaction.insert(
                    Record(kind=_RULES, name=name, created_ms=now_ms, modified_ms=now_ms, document=document)
                )

        await self._write(self._records.change(work, grows=grows))

    async def _write(self, write: Coroutine[Any, Any, object]) -> None:
        """Run a write to its end, even if the caller is cancelled: until then nothing that is read is remembered."""
        self._known.clear()
        task = asyncio.ensure_future(write)
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.shield(task)

    def _of(self, bucket: str) -> _Rules:
        known = self._known.get(bucket)
        if known is not None:
            return known
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        created_ms = self._objects.bucket_created_ms(bucket)
        if created_ms is None:
            return _Rules(has_bucket=False)
        record = self._records.get(_RULES, _name(bucket, created_ms))
        rules = _from_document(record.document if record else {})
        if rules.policy_text:
            rules = replace(rules, policy=read_bucket_policy(rules.policy_text, bucket=bucket))
        if not self._writing:
            self._known[bucket] = rules
        return rules


def _name(bucket: str, created_ms: int) -> str:
    return f"{bucket}@{created_ms}"


def _from_document(document: Mapping[str, Any]) -> _Rules:
    encryption = document.get("encryption")
    return _Rules(
        encryption=DefaultEncryption(**encryption) if encryption else None, policy_text=document.get("policy", "")
    )


def _to_document(rules: _Rules) -> dict[str, Any]:
    default = rules.encryption
    encryption = default and {"algorithm": default.algorithm, "key": default.key, "bucket_key": default.bucket_key}
    return {"encryption": encryption, "policy": rules.policy_text}
