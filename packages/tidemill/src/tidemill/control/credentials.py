"""Keys: the owner's pair, the keys of additional users, and temporary pairs of jobs and of instances of endpoints.

A temporary pair is valid until the job or instance ends, and is stored with the name of its role and with its scope.
"""

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidemill.control.resources import TRAINING_JOB
from tidemill.control.user_keys import UserKey, UserKeys, user_arn
from tidemill.core import container_credentials
from tidemill.core.clock import Clock
from tidemill.core.job_scope import HolderKind, JobScope
from tidemill.core.names import ACCOUNT_ID, role_name
from tidemill.core.training import TrainingJob
from tidemill.store.records.base import Record, RecordStore, Transaction
from tidemill.wire.signing.credentials import Credential

__all__ = ["CREDENTIAL", "Credentials", "TemporaryKeys", "access_key_id", "end_keys"]

CREDENTIAL = "credential"
"""Kind of the records of temporary keys."""
_PRUNE_MIN = 1000


@dataclass(frozen=True, slots=True)
class TemporaryKeys:
    """The keys of one job, in the form of AWS's temporary keys."""

    access_key_id: str
    secret_access_key: str
    session_token: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that AWS's SDKs read. The shim adds the service's address to the last one."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_SESSION_TOKEN": self.session_token,
            container_credentials.VARIABLE: container_credentials.path_of(self.access_key_id, self.session_token),
        }


class Credentials:
    """Finds credentials by access key id; creates and revokes temporary keys.

    Args:
        user: The owner's pair, created at the first start of the service.
        records: Stores all other keys.
        clock: Provides the time for their expiry.
    """

    def __init__(self, user: Credential, records: RecordStore, *, clock: Clock) -> None:
        self._user = user
        self._records = records
        self._user_keys = UserKeys(records, clock=clock)
        self._clock = clock
        self._found: dict[str, tuple[int, Credential]] = {}
        self._prune_at = _PRUNE_MIN

    def lookup(self, access_key_id: str) -> Credential | None:
        """Return the credential of ``access_key_id``, or None if the key is unknown or no longer valid.

        Args:
            access_key_id: Id of the key in a request.
        """
        if access_key_id == self._user.access_key_id:
            return self._user
        if access_key_id.startswith("AKIA"):
            key = self._user_keys.get(access_key_id)
            return _of_user(key) if key else None
        return self._of_job(access_key_id) if access_key_id.startswith("ASIA") else None

    async def issue(self, job: TrainingJob, *, lifetime_s: float) -> TemporaryKeys:
        """Create keys for an attempt of a job, replacing those of earlier attempts.

        Args:
            job: The job; the keys get its role and scope. The access key id is derived from the job's id, so that
                the keys can be revoked without looking them up.
            lifetime_s: Time in seconds after which the keys expire even if the job still runs.
        """
        scope = JobScope.of_request(job.request)
        role = role_name(job.request["RoleArn"])
        return await self._issue(job.job_id, role, scope, attempt=job.attempt, lifetime_s=lifetime_s)

    async def issue_to_server(self, job_id: str, *, role: str, scope: JobScope, lifetime_s: float) -> TemporaryKeys:
        """Create keys for the model servers of an endpoint or a transform job.

        Args:
            job_id: Id of the instance or the job.
            role: Name of the role.
            scope: The endpoint or job.
            lifetime_s: Time in seconds after which the keys expire unless they are renewed.
        """
        return await self._issue(job_id, role, scope, attempt=1, lifetime_s=lifetime_s)

    async def renew(self, job_id: str, *, lifetime_s: float) -> None:
        """Extend the validity of keys to ``lifetime_s`` from now, if less than half of that is left.

        Expired keys become valid again: a service that did not run could not renew them.

        Args:
            job_id: Hexadecimal id of the job.
            lifetime_s: Seconds from now.
        """
        found = self.lookup(access_key_id(job_id))
        now_ms = self._clock.now_ms()
        if found is None or found.expires_ms is None or found.expires_ms - now_ms > lifetime_s * 500:
            return

        def extend(record: Record) -> Record:
            return replace(record, document={**record.document, "expires_ms": now_ms + int(lifetime_s * 1000)})

        await self._records.update(CREDENTIAL, found.access_key_id, extend)

    async def _issue(
        self, job_id: str, role: str, scope: JobScope, *, attempt: int, lifetime_s: float
    ) -> TemporaryKeys:
        now_ms, key = self._clock.now_ms(), access_key_id(job_id)
        # An endpoint or transform job may have the name of a training job, but not its rights: session names tell them
        # apart, as no name of a job contains a period.
        session = scope.name if scope.kind is HolderKind.TRAINING else f"{scope.kind}.{scope.name}"
        document = {
            "access_key_id": key,
            "secret_access_key": secrets.token_urlsafe(30),
            "session_token": secrets.token_urlsafe(96),
            "attempt": attempt,
            "arn": f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/{role}/{session}",
            "role": role,
            "scope": scope.to_document(),
        }

        def store(transaction: Transaction) -> Mapping[str, Any]:
            present = transaction.delete(CREDENTIAL, key)
            # A launch that a kill has interrupted is repeated, and instances that it has started keep their keys.
            same = present is not None and present.document.get("attempt") == attempt
            kept = {
                **(present.document if present and same else document),
                "expires_ms": now_ms + int(lifetime_s * 1000),
            }
            transaction.insert(Record(kind=CREDENTIAL, name=key, created_ms=now_ms, modified_ms=now_ms, document=kept))
            return kept

        issued = await self._records.change(store, grows=True)
        return TemporaryKeys(
            access_key_id=key, secret_access_key=issued["secret_access_key"], session_token=issued["session_token"]
        )

    def _of_job(self, access_key_id: str) -> Credential | None:
        """Return a temporary credential; as found before, unless it may have been issued or revoked since."""
        generation = self._records.generation(CREDENTIAL, access_key_id)
        known = self._found.get(access_key_id)
        if known is not None and known[0] == generation:
            return known[1]
        record = self._records.get(CREDENTIAL, access_key_id)
        found = self._temporary(record) if record else None
        if found is not None and generation is not None:
            self._remember(access_key_id, generation, found)
        return found

    def _remember(self, access_key_id: str, generation: int, found: Credential) -> None:
        """Keep a credential; each time their number has doubled, drop those that have changed, e.g. were revoked."""
        self._found[access_key_id] = generation, found
        if len(self._found) >= self._prune_at:
            self._found = {
                key: known
                for key, known in self._found.items()
                if known[0] == self._records.generation(CREDENTIAL, key)
            }
            self._prune_at = max(_PRUNE_MIN, 2 * len(self._found))

    def _temporary(self, record: Record) -> Credential:
        rights = record.document if "scope" in record.document else self._rights_of_earlier(record)
        scope = rights.get("scope")
        return Credential(
            access_key_id=record.document["access_key_id"],
            secret_access_key=record.document["secret_access_key"],
            session_token=record.document["session_token"],
            expires_ms=record.document["expires_ms"],
            arn=record.document["arn"],
            role=rights.get("role", ""),
            scope=JobScope.from_document(scope) if scope else None,
        )

    def _rights_of_earlier(self, record: Record) -> Mapping[str, Any]:
        """Derive role and scope of keys that an earlier version stored without them, from the stored job."""
        found = self._records.get(TRAINING_JOB, record.document["arn"].rpartition("/")[2])
        job = TrainingJob.from_document(found.document) if found else None
        return _rights(job) if job is not None and access_key_id(job.job_id) == record.name else {}


def end_keys(transaction: Transaction, job_id: str) -> None:
    """Revoke the keys of a job, in the transaction that ends the job.

    Args:
        transaction: The transaction that ends the job.
        job_id: Hexadecimal id of the job.
    """
    transaction.delete(CREDENTIAL, access_key_id(job_id))


def _of_user(key: UserKey) -> Credential:
    return Credential(key.access_key_id, key.secret_access_key, arn=user_arn(key.user), unrestricted=True)


def _rights(job: TrainingJob) -> dict[str, Any]:
    return {"role": role_name(job.request["RoleArn"]), "scope": JobScope.of_request(job.request).to_document()}


def access_key_id(job_id: str) -> str:
    """Return the id of the temporary key of a job.

    Args:
        job_id: Hexadecimal id of the job.

    Returns:
        ``ASIA`` and 16 characters.
    """
    return "ASIA" + base64.b32encode(bytes.fromhex(job_id)).decode()[:16]
