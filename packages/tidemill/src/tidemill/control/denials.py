"""What was denied to the keys of a job, for its log and its FailureReason.

Many libraries hide the answer of S3 behind a message of their own. TensorFlow 2.4, for example, reports missing
credentials. The denials of a job are stored with its keys and removed with them, so that they survive a restart of the
service.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from tidemill.control.credentials import CREDENTIAL, access_key_id, end_keys
from tidemill.core.clock import Clock
from tidemill.core.job_scope import HolderKind
from tidemill.core.policy import Permission
from tidemill.errors import ServiceUnavailable, StateCorrupt
from tidemill.store.records.base import Record, RecordStore, Transaction
from tidemill.wire.signing.credentials import Credential

_log = structlog.get_logger("tidemill.denials")
_KIND = "denials"
_MAX = 20
_RESOURCE_CHARACTERS = 300
_REASON_MAX = 3


@dataclass(frozen=True, slots=True)
class _Denial:
    """One denied permission. Denials of an action below one S3 prefix count as the same."""

    action: str
    resource: str
    role: str

    @property
    def place(self) -> tuple[str, str]:
        return self.action, self.resource.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} (role {self.role!r})"


class Denials:
    """The denials of jobs that have not ended."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._known: dict[str, set[tuple[str, str]]] = {}

    async def note(self, credential: Credential, permissions: Sequence[Permission]) -> None:
        """Keep permissions that were denied to a job's key, up to 20 of a job. Endpoints and executions have no job.

        Args:
            credential: The key of the request.
        """
        if credential.scope is None or credential.scope.kind in (HolderKind.ENDPOINT, HolderKind.PIPELINE):
            return
        key = credential.access_key_id
        known = self._known.setdefault(key, set())
        fresh = [
            each
            for each in (_Denial(p.action, p.resource[:_RESOURCE_CHARACTERS], credential.role) for p in permissions)
            if each.place not in known and len(known) < _MAX
        ]
        known.update(each.place for each in fresh)
        if fresh:
            try:
                await self._records.change(lambda transaction: self._add(transaction, key, fresh))
            except (ServiceUnavailable, StateCorrupt) as error:
                _log.warning("denials.not_stored", caller=credential.arn, reason=str(error))

    def of(self, job_id: str) -> list[str]:
        """Return what was denied to a job, e.g. ``s3:PutObject on arn:aws:s3:::b/k (role 'R')``, and forget it.

        Args:
            job_id: Hexadecimal id of the job.
        """
        key = access_key_id(job_id)
        self._known.pop(key, None)
        try:
            record = self._records.get(_KIND, key)
        except StateCorrupt as error:  # the job must end all the same
            _log.error("denials.damaged", job_id=job_id, reason=str(error))
            return []
        return [] if record is None else [str(_Denial(*each)) for each in record.document["denied"]]

    def _add(self, transaction: Transaction, key: str, fresh: Sequence[_Denial]) -> None:
        if transaction.get(CREDENTIAL, key) is None:
            return  # the job has ended meanwhile
        stored = transaction.delete(_KIND, key)
        denied = [_Denial(*each) for each in stored.document["denied"]] if stored and not stored.is_damaged else []
        first: dict[tuple[str, str], _Denial] = {}
        for each in (*denied, *fresh):
            first.setdefault(each.place, each)
        now_ms = self._clock.now_ms()
        document = {"denied": [[each.action, each.resource, each.role] for each in list(first.values())[:_MAX]]}
        transaction.insert(Record(kind=_KIND, name=key, created_ms=now_ms, modified_ms=now_ms, document=document))


def end_rights(transaction: Transaction, job_id: str) -> None:
    """Revoke the keys of a job and remove its denials, in the transaction that ends the job.

    Args:
        job_id: Hexadecimal id of the job.
    """
    end_keys(transaction, job_id)
    transaction.delete(_KIND, access_key_id(job_id))


def denial_lines(denied: Sequence[str]) -> list[str]:
    """Return the lines for the log of a job.

    Args:
        denied: As `Denials.of` returns them.
    """
    return [f"tidemill: AccessDenied for the keys of this job: {each}" for each in denied]


def with_denials(reason: str, denied: Sequence[str], *, most: int) -> str:
    """Return a FailureReason of at most ``most`` characters that also names the first denials.

    Args:
        denied: Result of `Denials.of`.
        most: Maximum number of characters; the failure is cut, not the denials.
    """
    if not reason or not denied:
        return reason[:most]
    others = f" and {len(denied) - _REASON_MAX} more" if len(denied) > _REASON_MAX else ""
    note = f"\nAccessDenied for the keys of this job: {'; '.join(denied[:_REASON_MAX])}{others}"
    note = note[: most // 2]
    room = most - len(note)
    return (reason if len(reason) <= room else f"{reason[: room - 3]}...") + note
