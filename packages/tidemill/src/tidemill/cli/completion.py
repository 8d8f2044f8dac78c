"""Names for completion in shells: of jobs, endpoints and environments.

Asked at each TAB, so nothing here imports boto3 or the settings' library, which take longer than the answer may take: a
request is one signed POST by the standard library. An error is no answer: a shell shows no messages.
"""

import contextlib
import json
import os
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import typer

from tidemill.cli.kinds import ENDPOINT, JOBS, NAMED, PROCESSING, TRAINING, TRANSFORM, NamedKind
from tidemill.errors import TidemillError

_TIMEOUT_S = 2.0
_MOST = 100  # of a kind


def names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of jobs and endpoints, newest first, that begin with what is typed.

    Args:
        ctx: Has the options that name a service.
        incomplete: What is typed.
    """
    return _names(ctx, incomplete, NAMED)


def job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of jobs, as `names` does.

    Args:
        ctx: Has the options that name a service.
        incomplete: What is typed.
    """
    return _names(ctx, incomplete, JOBS)


def logged_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of jobs and endpoints that have a log, as `names` does.

    Args:
        ctx: Has the options that name a service.
        incomplete: What is typed.
    """
    return _names(ctx, incomplete, (TRAINING, PROCESSING, TRANSFORM, ENDPOINT))


def training_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of training jobs, as `names` does.

    Args:
        ctx: Has the options that name a service.
        incomplete: What is typed.
    """
    return _names(ctx, incomplete, (TRAINING,))


def endpoint_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of endpoints, as `names` does.

    Args:
        ctx: Has the options that name a service.
        incomplete: What is typed.
    """
    return _names(ctx, incomplete, (ENDPOINT,))


def environment_names(incomplete: str) -> list[str]:
    """Return the names of the environments that jobs can have.

    Args:
        incomplete: What is typed.
    """
    from tidemill.core.frameworks import ENVIRONMENTS

    return [name for name in ENVIRONMENTS if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True)
class _Position:
    """A service, and the keys for it."""

    url: str
    region: str
    key: str
    secret: str
    token: str | None = None


def _names(ctx: typer.Context, incomplete: str, kinds: Sequence[NamedKind]) -> list[str]:
    from http.client import HTTPException

    try:
        place = _place(ctx.params.get("state_dir"), ctx.params.get("endpoint_url"))
        return [] if place is None else list(_asked(place, incomplete, kinds))
    except (OSError, HTTPException, ValueError, KeyError, TypeError, TidemillError):
        return []


def _place(state_dir: Path | None, endpoint_url: str | None) -> _Position | None:
    """Return the service that a command with these options would use, by the same rules as `tidemill.cli.service`."""
    from tidemill.core.names import DEFAULT_REGION
    from tidemill.core.service_choice import named_in_environment, settings_file, state_directory
    from tidemill.server.discovery import connect
    from tidemill.server.state import StateDirectory

    file = settings_file()
    configured = tomllib.loads(file.read_text()) if file.is_file() else {}
    named = named_in_environment()
    url = endpoint_url or (named.url if named else configured.get("endpoint_url")) if state_dir is None else None
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if url is not None:
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if not key or not secret:
            return _of_profile(url, region or DEFAULT_REGION)
        region = region or configured.get("region", DEFAULT_REGION)
        return _Position(url, region, key, secret, os.environ.get("AWS_SESSION_TOKEN"))
    own = connect(StateDirectory((state_dir or state_directory(configured)).absolute()))
    if own is None:
        return None
    return _Position(own.service.url, own.service.region, own.keys.access_key_id, own.keys.secret_access_key)


def _of_profile(url: str, region: str) -> _Position | None:
    """Return the service with keys that only botocore finds, e.g. those of a profile."""
    import boto3

    found = boto3.Session().get_credentials()
    if found is None:
        return None
    keys = found.get_frozen_credentials()
    return _Position(url, region, keys.access_key or "", keys.secret_key or "", keys.token)


def _asked(place: _Position, incomplete: str, kinds: Sequence[NamedKind]) -> Iterable[str]:
    listed = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": _MOST}
    request = listed | ({"NameContains": incomplete} if incomplete else {})
    for kind in kinds:
        for summary in _post(place, kind.lists, request).get(kind.listed, ()):
            if kind.name(summary).startswith(incomplete):
                yield kind.name(summary)


def _post(place: _Position, operation: str, request: dict[str, Any]) -> dict[str, Any]:
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.parse import urlsplit

    address = urlsplit(place.url)
    body = json.dumps(request).encode()
    headers = {
        "content-type": "application/x-amz-json-1.1",
        "host": address.netloc,
        "x-amz-target": f"SageMaker.{operation}",
    }
    if place.token:
        headers["x-amz-security-token"] = place.token
    if address.scheme == "https":
        import ssl

        trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
        connection: HTTPConnection = HTTPSConnection(address.netloc, timeout=_TIMEOUT_S, context=trust)
    else:
        connection = HTTPConnection(address.netloc, timeout=_TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("POST", "/", body=body, headers=headers | _signature(place, headers, body))
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        return answer if reply.status == HTTPStatus.OK else {}


def _signature(place: _Position, headers: dict[str, str], body: bytes) -> dict[str, str]:
    """Return the headers that sign a POST to the path ``/`` by Signature Version 4."""
    import hashlib
    import hmac
    from datetime import UTC, datetime

    from tidemill.wire.signing.key import ALGORITHM, signing_key

    stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    scope = f"{stamp[:8]}/{place.region}/sagemaker/aws4_request"
    signed = dict(sorted({**headers, "x-amz-date": stamp}.items()))
    names_signed = ";".join(signed)
    lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
    canonical = f"POST\n/\n\n{lines}\n{names_signed}\n{hashlib.sha256(body).hexdigest()}"
    text = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = signing_key(place.secret, stamp[:8], place.region, "sagemaker")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"Credential={place.key}/{scope}"
    return {
        "x-amz-date": stamp,
        "authorization": f"{ALGORITHM} {credential}, SignedHeaders={names_signed}, Signature={signature}",
    }
