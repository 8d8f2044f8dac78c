"""The answer to a request for a job's keys, in the form of AWS's container credentials.

Only the holder of the path may ask, so the request needs no signature (`tidemill.core.container_credentials`).
"""

from datetime import UTC, datetime

from tidemill.core.container_credentials import PREFIX, key_id_of, opens
from tidemill.errors import AwsError
from tidemill.wire.reply import HttpReply, json_reply
from tidemill.wire.signing.credentials import CredentialLookup

__all__ = ["PREFIX", "container_credentials"]


def container_credentials(path: str, credentials: CredentialLookup, *, now_ms: int) -> HttpReply:
    """Return the keys that a path names, as JSON.

    Raises:
        AwsError: AccessDenied: the path names no key, or one that has expired or ended.
    """
    key_id = key_id_of(path)
    found = credentials.lookup(key_id)
    token = found.session_token if found else None
    if (
        found is None
        or token is None
        or found.expires_ms is None
        or found.expires_ms <= now_ms
        or not opens(path, access_key_id=key_id, session_token=token)
    ):
        raise AwsError("The path is not that of the keys of a running job.", code="AccessDenied")
    expires = datetime.fromtimestamp(found.expires_ms // 1000, UTC)
    members = {
        "RoleArn": found.arn,
        "AccessKeyId": found.access_key_id,
        "SecretAccessKey": found.secret_access_key,
        "Token": token,
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json_reply(members)
