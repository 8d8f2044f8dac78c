"""A credential, and the interface that finds it. The wire never stores keys."""

import hmac
from dataclasses import dataclass, field
from typing import Protocol

from tidemill.core.job_scope import JobScope
from tidemill.core.policy import IamPolicy
from tidemill.errors import AwsError


@dataclass(frozen=True, slots=True)
class PolicyLimit:
    """A policy that limits a key in addition to its other rights."""

    policy: IamPolicy
    whose: str
    """For messages, e.g. ``the user 'ann'``."""
    arn: str = ""
    """ARN of the user or session for whom it is evaluated; empty for that of the key."""
    alone: bool = False
    """Whether no policy of a bucket adds to it: it limits one session further than its role."""
    decides_all: bool = False
    """Whether it also decides about operations that need no permission: by ``service:Operation`` on everything."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One key pair, permanent or temporary."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    """Token of a temporary key, which every request must contain."""
    expires_ms: int | None = None
    """Wall time after which a temporary key is refused."""
    arn: str = ""
    """ARN of the user or role of the key."""
    origin: str = ""
    """ARN of the user or job that opened the session of the key; empty for a key without a session."""
    via: tuple[str, ...] = ()
    """ARNs of all who opened sessions on the way to the key, ``origin`` first."""
    unrestricted: bool = False
    """Whether the key may do everything that ``limits`` allow, as the owner's pair."""
    role: str = ""
    """Name of the role whose policy limits the key."""
    scope: JobScope | None = None
    """Scope of the job that the key was issued to. Without a scope a restricted key may do nothing."""
    limits: tuple[PolicyLimit, ...] = ()
    """Policies that must allow a request, too: of a user, of an assumed role, of a session."""


class CredentialLookup(Protocol):
    """Finds a credential by its access key id."""

    def lookup(self, access_key_id: str) -> Credential | None:
        """Return the credential, or None if there is no such key.

        Args:
            access_key_id: Id of the key in a request.
        """


def check_token(credential: Credential, token: str | None, *, now_ms: int) -> None:
    """Check the session token of a request.

    Raises:
        AwsError: InvalidToken for a missing, wrong or unexpected token; ExpiredToken.
    """
    expected = credential.session_token
    if expected is None and token is None:
        return
    if expected is None or token is None or not hmac.compare_digest(expected.encode(), token.encode()):
        what = "is missing" if token is None else "does not belong to this access key"
        raise AwsError(f"The security token (x-amz-security-token) {what}.", code="InvalidToken")
    if credential.expires_ms is not None and now_ms >= credential.expires_ms:
        raise AwsError(
            "The provided token has expired; temporary keys end with the job or session they were made for.",
            code="ExpiredToken",
        )
