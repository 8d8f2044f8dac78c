"""The address at which AWS's SDKs get a job's keys: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI.

SDKs put ``http://169.254.170.2`` before the value. A process without a network namespace of its own cannot be given
that address. So the value begins with ``@HOST:PORT`` of the service, which makes the fixed address the user name of
the URL, and the service the host. In all isolation modes this leads to the service, which answers with the keys.

The path contains a digest of the session token, so only a process that knows the path gets the keys, as on AWS.
"""

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

VARIABLE = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
PREFIX = "/v2/credentials/"
"""Path of the answers. No bucket can have the name ``v2``."""


def path_of(access_key_id: str, session_token: str) -> str:
    """Return the path at which the service answers with a temporary key.

    Args:
        session_token: Its token; the path contains only a digest of it.
    """
    digest = hashlib.sha256(b"container credentials\0" + session_token.encode()).hexdigest()
    return f"{PREFIX}{access_key_id}-{digest[:40]}"


def key_id_of(path: str) -> str:
    """Return the id of the access key that a path names; empty if it names none.

    Args:
        path: Path of a request.
    """
    return path.removeprefix(PREFIX).partition("-")[0] if path.startswith(PREFIX) else ""


def opens(path: str, *, access_key_id: str, session_token: str) -> bool:
    """Return whether a path is that of a temporary key. Takes the same time for all wrong paths.

    Args:
        path: Path of a request.
    """
    return hmac.compare_digest(path.encode(), path_of(access_key_id, session_token).encode())


def located(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process with the address of the service in `VARIABLE`.

    Args:
        variables: Variables of an instance, where `VARIABLE` is a path. Without AWS_ENDPOINT_URL, or if that is an
            HTTPS URL, which the fixed ``http://`` cannot reach, `VARIABLE` is left out.
    """
    service = urlsplit(variables.get("AWS_ENDPOINT_URL", ""))
    others = {name: value for name, value in variables.items() if name != VARIABLE}
    path = variables.get(VARIABLE, "")
    if not path.startswith(PREFIX):
        return dict(variables)
    return {**others, VARIABLE: f"@{service.netloc}{path}"} if service.scheme == "http" else others
