"""Keys: the owner's pair, the keys of additional users, and temporary pairs of jobs, endpoints and sessions.

A pair of a job or instance is valid until that ends, and is stored with the name of its role and with its scope. A pair
of a session (STS) has the rights of the key that asked for it, as far as the assumed role and the session's own policy
allow them too, and is valid no longer than that key.
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
from tidemill.core.job_scope import JobScope, session_name
from tidemill.core.names import ACCOUNT_ID, role_name
from tidemill.core.policy_document import read_policy
from tidemill.core.roles import Roles
from tidemill.core.training import TrainingJob
from tidemill.store.records.base import Query, Record, RecordStore, Transaction
from tidemill.wire.signing.credentials import Credential, PolicyLimit

CREDENTIAL = "credential"
"""Kind of the records of temporary keys."""
SESSION_MAX_S = 129_600
"""Longest validity of the keys of a session in seconds, as on AWS."""
_SESSION = "session"
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
        clock: Provides the time for their expiry.
        roles: The policies that limit assumed roles. Default: the settings name none.
    """

    def __init__(self, user: Credential, records: RecordStore, *, clock: Clock, roles: Roles | None = None) -> None:
        self._user = user
        self._roles = roles or Roles({})
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
            return self._of_user(key) if key else None
        if access_key_id.startswith("ASIA"):
            return self._of_job(access_key_id) or self._of_session(access_key_id)
        return None

    async def issue(self, job: TrainingJob, *, lifetime_s: float) -> TemporaryKeys:
        """Create keys for an attempt of a job, replacing those of earlier attempts.

        Args:
            job: The job; the keys get its role and scope. The access key id is derived from the job's id, so that
                the keys can be revoked without looking them up.
            lifetime_s: Time in seconds after which the keys expire even if the job still runs.
        """
        role = role_name(job.request["RoleArn"])
        return await self._issue(job.job_id, role, job.scope, attempt=job.attempt, lifetime_s=lifetime_s)

    async def issue_to_server(self, job_id: str, *, role: str, scope: JobScope, lifetime_s: float) -> TemporaryKeys:
        """Create keys for the model servers of an endpoint or a transform job.

        Args:
            job_id: Id of the instance or the job.
            scope: The endpoint or job.
            lifetime_s: Time in seconds after which the keys expire unless they are renewed.
        """
        return await self._issue(job_id, role, scope, attempt=1, lifetime_s=lifetime_s)

    async def open_session(
        self, caller: str, *, lifetime_s: int, arn: str = "", role: str = "", policy: Mapping[str, Any] | None = None
    ) -> tuple[TemporaryKeys, int]:
        """Create keys with at most the rights of the key that asks for them.

        Args:
            caller: Id of that key. When it is revoked or expires, the session ends, too.
            lifetime_s: Time in seconds after which the keys expire.
            arn: ARN of the session; empty for that of the caller.
            role: Name of the role that is assumed; its policy in the settings limits the keys. Empty for none.
            policy: Document of a policy that limits the keys, too.

        Returns:
            The keys, and the time of their expiry in milliseconds since the epoch.
        """
        now_ms = self._clock.now_ms()
        key = "ASIA" + base64.b32encode(secrets.token_bytes(10)).decode()
        keys = TemporaryKeys(key, secrets.token_urlsafe(30), secrets.token_urlsafe(96))
        document = {
            "secret_access_key": keys.secret_access_key,
            "session_token": keys.session_token,
            "expires_ms": now_ms + lifetime_s * 1000,
            "caller": caller,
            "arn": arn,
            "role": role,
            "policy": policy,
        }
        old = Query(sort_by="created", descending=False, created_before_ms=now_ms - SESSION_MAX_S * 1000, limit=100)
        expired = [record.name for record in (await self._records.summaries(_SESSION, old)).records]

        def store(transaction: Transaction) -> None:
            for each in expired:
                transaction.delete(_SESSION, each)
            transaction.insert(
                Record(kind=_SESSION, name=key, created_ms=now_ms, modified_ms=now_ms, document=document)
            )

        await self._records.change(store, grows=True)
        return keys, document["expires_ms"]

    async def renew(self, job_id: str, *, lifetime_s: float) -> None:
        """Extend the validity of keys to ``lifetime_s`` from now, if less than half of that is left.

        Expired keys become valid again: a service that did not run could not renew them.

        Args:
            job_id: Hexadecimal id of the job.
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
        session = session_name(scope.kind, scope.name)
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

    def _of_user(self, key: UserKey) -> Credential:
        user = self._user_keys.user(key.user)
        policy = user.policy if user is not None else None
        limits = () if policy is None else (PolicyLimit(policy, f"the user {key.user!r}", user_arn(key.user)),)
        return Credential(
            key.access_key_id, key.secret_access_key, arn=user_arn(key.user), unrestricted=True, limits=limits
        )

    def _of_session(self, access_key_id: str) -> Credential | None:
        """Return the credential of a session: that of its caller, as it is now, with less rights and a shorter life."""
        record = self._records.get(_SESSION, access_key_id)
        caller = self.lookup(record.document["caller"]) if record is not None else None
        if record is None or caller is None:
            return None
        session = record.document
        limits, arn = list(caller.limits), session["arn"] or caller.arn
        of_role = self._roles.named(session["role"]) if session["role"] else None
        if of_role is not None:
            limits.append(PolicyLimit(of_role, f"the role {session['role']!r}", arn))
        if session["policy"] is not None:
            limits.append(PolicyLimit(read_policy(session["policy"]), "the session", arn, alone=True))
        return replace(
            caller,
            access_key_id=access_key_id,
            secret_access_key=session["secret_access_key"],
            session_token=session["session_token"],
            expires_ms=min(session["expires_ms"], caller.expires_ms or session["expires_ms"]),
            arn=arn,
            origin=caller.origin or caller.arn,
            via=(*caller.via, caller.arn),
            limits=tuple(limits),
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
        job_id: Hexadecimal id of the job.
    """
    transaction.delete(CREDENTIAL, access_key_id(job_id))


def _rights(job: TrainingJob) -> dict[str, Any]:
    return {"role": role_name(job.request["RoleArn"]), "scope": job.scope.to_document()}


def access_key_id(job_id: str) -> str:
    """Return the id of the temporary key of a job.

    Args:
        job_id: Hexadecimal id of the job.

    Returns:
        ``ASIA`` and 16 characters.
    """
    return "ASIA" + base64.b32encode(bytes.fromhex(job_id)).decode()[:16]
