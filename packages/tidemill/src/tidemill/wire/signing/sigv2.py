"""The old presigned form of S3 (``AWSAccessKeyId=...&Signature=...&Expires=...``), for GET and PUT only, and
the old signature of a presigned POST's policy.

boto3 uses both by default for a custom endpoint. Nothing else of Signature Version 2 is accepted.
"""

import base64
import hmac
from collections.abc import Mapping
from typing import NoReturn

from tidemill.errors import AwsError
from tidemill.wire.request import Request
from tidemill.wire.signing.credentials import Credential, CredentialLookup, check_token

_METHODS = ("GET", "PUT")


def verify_sigv2(request: Request, credentials: CredentialLookup, *, now_ms: int) -> Credential:
    """Verify the request's signature and return its signer.

    Args:
        request: Has the query parameter ``AWSAccessKeyId``.
        credentials: Finds the secret.
        now_ms: Wall time.

    Raises:
        AwsError: AccessDenied, InvalidAccessKeyId, SignatureDoesNotMatch, or a token's error.
    """
    if request.method not in _METHODS:
        _refuse("InvalidRequest", f"This form of presigned URL is for {' and '.join(_METHODS)} only.")
    query = request.query_map
    names = [name for name, _ in request.query if name in ("AWSAccessKeyId", "Signature", "Expires")]
    expires = query.get("Expires", "")
    if len(names) != 3 or len(set(names)) != 3 or not (expires.isascii() and expires.isdigit() and len(expires) < 15):
        _refuse(
            "AccessDenied", "Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters."
        )
    credential = credentials.lookup(query["AWSAccessKeyId"])
    if credential is None:
        _refuse_key(query["AWSAccessKeyId"])
    check_token(credential, query.get("x-amz-security-token"), now_ms=now_ms)
    if now_ms > int(expires) * 1000:
        _refuse("AccessDenied", f"Request has expired: it was valid until {expires} seconds since 1970.")
    expected = base64.b64encode(
        hmac.digest(credential.secret_access_key.encode(), _string_to_sign(request, expires).encode(), "sha1")
    )
    if not hmac.compare_digest(expected, query["Signature"].encode()):
        _refuse_signature()
    return credential


def verify_sigv2_policy(fields: Mapping[str, str], credentials: CredentialLookup, *, now_ms: int) -> Credential:
    """Verify the signature of a form's policy, as boto3 makes it for another endpoint than AWS's; return its signer.

    Args:
        fields: The fields of the form by name in lower case, with ``signature``.
        credentials: Finds the secret.
        now_ms: Wall time.

    Raises:
        AwsError: InvalidAccessKeyId, SignatureDoesNotMatch, or a token's error.
    """
    credential = credentials.lookup(fields.get("awsaccesskeyid", ""))
    if credential is None:
        _refuse_key(fields.get("awsaccesskeyid", ""))
    check_token(credential, fields.get("x-amz-security-token"), now_ms=now_ms)
    digest = hmac.digest(credential.secret_access_key.encode(), fields["policy"].encode(), "sha1")
    if not hmac.compare_digest(base64.b64encode(digest), fields["signature"].encode()):
        _refuse_signature()
    return credential


def _string_to_sign(request: Request, expires: str) -> str:
    query, headers = request.query_map, request.headers
    amazon = {
        name.lower(): value.strip()
        for source in (query, headers)
        for name, value in source.items()
        if name.lower().startswith("x-amz-")
    }
    lines = [
        request.method,
        headers.get("content-md5", query.get("content-md5", "")),
        headers.get("content-type", query.get("content-type", "")),
        expires,
        *(f"{name}:{amazon[name]}" for name in sorted(amazon)),
        _resource(request),
    ]
    return "\n".join(lines)


def _resource(request: Request) -> str:
    from botocore.auth import HmacV1Auth  # takes a while, and few clients sign so

    found = sorted(
        (name, equals, value)
        for (name, value), (_, equals, _) in zip(request.query, request.query_pairs, strict=True)
        if name in HmacV1Auth.QSAOfInterest
    )
    parts = "&".join(f"{name}={value}" if equals else name for name, equals, value in found)
    return f"{request.raw_path}?{parts}" if parts else request.raw_path


def _refuse_key(key_id: str) -> NoReturn:
    _refuse("InvalidAccessKeyId", f"The access key {key_id[:64]!r} does not exist in this service.")


def _refuse_signature() -> NoReturn:
    _refuse(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check the secret access"
        " key, the method and the headers.",
    )


def _refuse(code: str, message: str) -> NoReturn:
    raise AwsError(message, code=code)
