"""Signature Version 4: verify the sender and the integrity of a request, signed by header or presigned URL.

The signature covers a canonical text of the request. S3 signs the path as sent; every other service signs the
normalized path, encoded once more. A plus sign in a query is not decoded to a space.

Cheap checks come first, so that requests of strangers cost little: form, key, token, time and scope before any hash.
The body of a JSON request is hashed before the signature is compared. S3's signature covers the announced hash, which
the body stream then verifies.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import NoReturn
from urllib.parse import quote, unquote_to_bytes

from tidemill.core.clock import Clock
from tidemill.errors import AwsError, PayloadMismatch
from tidemill.wire.request import Request
from tidemill.wire.signing.credentials import Credential, CredentialLookup, check_token
from tidemill.wire.signing.key import ALGORITHM, signing_key
from tidemill.wire.signing.sigv2 import verify_sigv2, verify_sigv2_policy
from tidemill.wire.timestamps import parse_rfc822

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
MAX_SKEW_S = 15 * 60
MAX_PRESIGNED_S = 7 * 24 * 3600
MAX_AUTHORIZATION_BYTES = 4096

_STAMP = re.compile(r"\d{8}T\d{6}Z", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_SPACES = re.compile(r" {2,}")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9\-_.~/]*", re.ASCII)
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-_.~]*", re.ASCII)
_HEADER_FORM = (
    f"the form is 'Authorization: {ALGORITHM} Credential=KEY/DATE/REGION/SERVICE/aws4_request, SignedHeaders=...,"
    " Signature=...'"
)
_QUERY_NAMES = ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request with valid form, key, token, time and scope, whose signature may still have to be compared."""

    credential: Credential
    stamp: str = ""
    """Time of signing, e.g. ``20261121T100000Z``."""
    scope: str = ""
    """``DATE/REGION/SERVICE/aws4_request``."""
    key: bytes = b""
    """The derived signing key, which also signs the chunks of a body."""
    signature: str = ""
    signed: str = ""
    """Names of the signed headers, joined by semicolons."""
    presigned: bool = False
    verified: bool = False
    """Whether there is no signature left to compare: it has been (the old presigned form), or a session replaces it."""
    of_page: bool = False
    """Whether a session of the page sends the request, which is not signed."""


class Verifier:
    """Verifies requests.

    Args:
        credentials: Finds secrets.
        clock: Compared with the time of signing.
        strict_region: Whether to refuse scopes of other regions. Default: False, because the service has one state for
            all regions that clients may be set to.
    """

    def __init__(
        self, credentials: CredentialLookup, *, region: str, clock: Clock, strict_region: bool = False
    ) -> None:
        self._credentials = credentials
        self._region = region
        self._clock = clock
        self._strict_region = strict_region

    def claim(self, request: Request, *, service: str) -> Claim:
        """Check everything except the signature.

        Args:
            request: The head of the request.
            service: The service's signing name.

        Raises:
            AwsError: The request is not signed, or its signature cannot be valid.
        """
        authorization = request.headers.get("authorization")
        presigned = "X-Amz-" in request.query_string and any(
            name in request.query_map for name in ("X-Amz-Signature", "X-Amz-Algorithm", "X-Amz-Credential")
        )
        old_presigned = (
            service == "s3" and "AWSAccessKeyId" in request.query_string and "AWSAccessKeyId" in request.query_map
        )
        if authorization is None and not presigned and not old_presigned:
            _refuse("MissingAuthenticationToken", f"The request is not signed; {_HEADER_FORM}.")
        if authorization is None:
            return self._claim_query(request, service) if presigned else self._claim_old(request)
        if presigned or old_presigned:
            _refuse(
                "InvalidArgument", "A request is signed either by its Authorization header or by its query, not both."
            )
        return self._claim_header(request, authorization, service)

    def verify_whole(self, claim: Claim, request: Request, body: bytes) -> None:
        """Compare the signature of a request whose whole body is here, of any service but S3.

        Args:
            claim: The result of ``claim``.
            body: Its body as it was sent.

        Raises:
            PayloadMismatch: The body has another hash than the one that a header announces.
            AwsError: SignatureDoesNotMatch (403).
        """
        digest = hashlib.sha256(body).hexdigest()
        announced = request.headers.get("x-amz-content-sha256")
        if announced is not None and not hmac.compare_digest(announced.encode(), digest.encode()):
            raise PayloadMismatch
        self.verify(claim, request, payload=digest, is_s3=False)

    def verify(self, claim: Claim, request: Request, *, payload: str, is_s3: bool) -> None:
        """Compare the signature.

        Args:
            claim: The result of ``claim``.
            payload: Hash of the body in hexadecimal, or the keyword in its place.
            is_s3: Whether the path is signed by S3's rules.

        Raises:
            AwsError: SignatureDoesNotMatch (403).
        """
        if claim.verified:
            return
        query = canonical_query(request, leave_out="X-Amz-Signature" if claim.presigned else None)
        for path in path_candidates(request.raw_path, is_s3=is_s3):
            text = _canonical_request(
                request, path=path, query=query, signed=claim.signed, names=claim.signed.split(";"), payload=payload
            )
            digest = hashlib.sha256(text).hexdigest()
            string = f"{ALGORITHM}\n{claim.stamp}\n{claim.scope}\n{digest}"
            code = _keyed(claim.key).copy()
            code.update(string.encode("utf-8"))
            if hmac.compare_digest(code.hexdigest(), claim.signature):
                return
        _refuse_signature()

    def claim_form(self, fields: Mapping[str, str]) -> Claim:
        """Verify who signed the policy of a presigned POST.

        Args:
            fields: The fields of the form by name in lower case.

        Raises:
            AwsError: The policy is not signed, or its signature does not match.
        """
        policy = fields.get("policy", "")
        if not policy or not (fields.keys() & {"x-amz-signature", "signature"}):
            _refuse(
                "AccessDenied",
                "The form is not signed: it needs the fields policy and x-amz-signature, as generate_presigned_post"
                " makes them.",
            )
        if "x-amz-signature" not in fields:
            credential = verify_sigv2_policy(fields, self._credentials, now_ms=self._clock.now_ms())
            return Claim(credential, presigned=True, verified=True)
        if fields.get("x-amz-algorithm") != ALGORITHM or not _STAMP.fullmatch(fields.get("x-amz-date", "")):
            _refuse(
                "InvalidArgument",
                f"The form needs x-amz-algorithm {ALGORITHM}, and x-amz-date in the form 20261121T100000Z.",
            )
        credential, scope = self._credential(
            fields.get("x-amz-credential", ""), fields.get("x-amz-security-token"), "s3"
        )
        self._check_scope(scope, "s3")
        _check_date(scope, fields["x-amz-date"])
        date, region, service, _ = scope
        key = signing_key(credential.secret_access_key, date, region, service)
        expected = hmac.digest(key, policy.encode(), "sha256").hex()
        if not hmac.compare_digest(expected.encode(), fields["x-amz-signature"].encode()):
            _refuse_signature()
        return Claim(credential, presigned=True, verified=True)

    def _claim_header(self, request: Request, authorization: str, service: str) -> Claim:
        fields = _authorization_fields(authorization)
        stamp = _stamp(request)
        credential, scope = self._credential(fields["Credential"], request.headers.get("x-amz-security-token"), service)
        self._check_scope(scope, service)
        _check_date(scope, stamp)
        self._check_skew(stamp)
        return self._finish(request, credential, scope, stamp, fields["SignedHeaders"], fields["Signature"])

    def _claim_query(self, request: Request, service: str) -> Claim:
        fields = _query_fields(request)
        stamp, lifetime_s = fields["X-Amz-Date"], int(fields["X-Amz-Expires"])
        credential, scope = self._credential(
            fields["X-Amz-Credential"], request.query_map.get("X-Amz-Security-Token"), service
        )
        self._check_scope(scope, service)
        _check_date(scope, stamp)
        age_s = self._clock.now_ms() / 1000 - _seconds(stamp)
        if age_s < -MAX_SKEW_S:
            _refuse("AccessDenied", f"Request is not yet valid: it is dated {stamp}, {self._now_text()}.")
        if age_s > lifetime_s:
            _refuse(
                "AccessDenied",
                f"Request has expired: it was signed at {stamp} for {lifetime_s} s, {self._now_text()}.",
            )
        return self._finish(
            request, credential, scope, stamp, fields["X-Amz-SignedHeaders"], fields["X-Amz-Signature"], presigned=True
        )

    def _claim_old(self, request: Request) -> Claim:
        credential = verify_sigv2(request, self._credentials, now_ms=self._clock.now_ms())
        return Claim(credential, presigned=True, verified=True)

    def _finish(
        self,
        request: Request,
        credential: Credential,
        scope: Sequence[str],
        stamp: str,
        signed: str,
        signature: str,
        *,
        presigned: bool = False,
    ) -> Claim:
        _check_signed_headers(request, signed)
        if not _SIGNATURE.fullmatch(signature):
            _refuse("IncompleteSignature", "Signature must be 64 lower-case hexadecimal digits.")
        date, region, service, _ = scope
        return Claim(
            credential,
            stamp=stamp,
            scope="/".join(scope),
            key=signing_key(credential.secret_access_key, date, region, service),
            signature=signature,
            signed=signed,
            presigned=presigned,
        )

    def _credential(self, text: str, token: str | None, service: str) -> tuple[Credential, list[str]]:
        key_id, *scope = text.split("/")
        if len(scope) != 4 or not key_id or scope[3] != "aws4_request":
            _refuse(
                "IncompleteSignature",
                f"Credential must have the form KEY/DATE/REGION/SERVICE/aws4_request; received {text[:128]!r}.",
            )
        credential = self._credentials.lookup(key_id)
        if credential is None:
            _refuse_key(key_id, service)
        if token is not None or credential.session_token is not None:
            check_token(credential, token, now_ms=self._clock.now_ms())
        return credential, scope

    def _check_scope(self, scope: Sequence[str], service: str) -> None:
        if scope[2] != service:
            _refuse(
                "SignatureDoesNotMatch",
                f"Credential should be scoped to correct service: {service!r}; received {scope[2][:64]!r}.",
            )
        if self._strict_region and scope[1] != self._region:
            _refuse(
                "AuthorizationHeaderMalformed",
                f"The authorization header is malformed; the region {scope[1][:64]!r} is wrong; expecting"
                f" {self._region!r}.",
            )

    def _check_skew(self, stamp: str) -> None:
        if abs(self._clock.now_ms() / 1000 - _seconds(stamp)) > MAX_SKEW_S:
            _refuse(
                "RequestTimeTooSkewed",
                f"The difference between the request time and the server's time is too large: the request is dated"
                f" {stamp}, {self._now_text()}; at most {MAX_SKEW_S // 60} minutes are allowed. Set the clock.",
            )

    def _now_text(self) -> str:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return f"the server's time is {now:%Y%m%dT%H%M%SZ}"


@lru_cache(maxsize=512)
def _keyed(key: bytes) -> hmac.HMAC:
    """Return a code that has read the key and nothing else; copied for each request, since the key takes longest."""
    return hmac.new(key, digestmod="sha256")


def canonical_query(request: Request, *, leave_out: str | None = None) -> str:
    """Return the query parameters, encoded uniformly and sorted.

    Args:
        leave_out: Name of the parameter with the signature itself.
    """
    if not request.query_string:
        return ""
    pairs = [(_recode(name), _recode(value)) for name, _, value in request.query_pairs if name != leave_out]
    pairs.sort()
    return "&".join(f"{name}={value}" for name, value in pairs)


def path_candidates(raw_path: str, *, is_s3: bool) -> list[str]:
    """Return the canonical forms that a client may have signed for this path, the most likely one first.

    For S3 both the bytes as sent and their canonical encoding are tried: clients differ in the characters that they
    encode, and both forms mean the same key.

    Args:
        raw_path: Path as it was sent.
        is_s3: Whether the service is S3.
    """
    if not is_s3:
        raw_path = _normalise(raw_path)
    if _PLAIN_PATH.fullmatch(raw_path):
        return [raw_path]
    if not is_s3:
        return [quote(raw_path, safe="/-_.~")]
    tidy = quote(unquote_to_bytes(raw_path.encode("latin-1")), safe="/-_.~")
    return [raw_path] if tidy == raw_path else [raw_path, tidy]


def _authorization_fields(text: str) -> dict[str, str]:
    if len(text) > MAX_AUTHORIZATION_BYTES:
        _refuse(
            "IncompleteSignature",
            f"The Authorization header has {len(text)} bytes; at most {MAX_AUTHORIZATION_BYTES} are read.",
        )
    algorithm, _, rest = text.partition(" ")
    if algorithm != ALGORITHM:
        _refuse("IncompleteSignature", f"Authorization of the kind {algorithm[:32]!r} is not accepted; {_HEADER_FORM}.")
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals or name in fields:
            _refuse("IncompleteSignature", f"The Authorization header is malformed at {part[:64]!r}; {_HEADER_FORM}.")
        fields[name] = value
    missing = [name for name in ("Credential", "SignedHeaders", "Signature") if not fields.get(name)]
    if missing:
        _refuse("IncompleteSignature", f"Authorization header requires {', '.join(missing)}; {_HEADER_FORM}.")
    return fields


def _query_fields(request: Request) -> dict[str, str]:
    found = request.query_map
    wrong: str | None = None
    if found.get("X-Amz-Algorithm") != ALGORITHM:
        wrong = f"X-Amz-Algorithm must be {ALGORITHM}"
    names = [name for name, _ in request.query if name.startswith("X-Amz-")]
    missing = [name for name in _QUERY_NAMES if not found.get(name)]
    if missing:
        wrong = f"{', '.join(missing)} must be given"
    elif len(set(names)) != len(names):
        wrong = "a parameter is given twice"
    elif not _STAMP.fullmatch(found["X-Amz-Date"]):
        wrong = "X-Amz-Date must have the form 20261121T100000Z"
    elif not (
        found["X-Amz-Expires"].isascii() and found["X-Amz-Expires"].isdigit() and len(found["X-Amz-Expires"]) < 9
    ):
        wrong = "X-Amz-Expires must be a number of seconds"
    elif not 1 <= int(found["X-Amz-Expires"]) <= MAX_PRESIGNED_S:
        wrong = f"X-Amz-Expires must be between 1 and {MAX_PRESIGNED_S} seconds; received {found['X-Amz-Expires']}"
    if wrong:
        _refuse("AuthorizationQueryParametersError", f"Error parsing the query's signature parameters: {wrong}.")
    return found


def _stamp(request: Request) -> str:
    stamp = request.headers.get("x-amz-date") or request.headers.get("date")
    if stamp is None:
        _refuse("IncompleteSignature", "A signed request needs the header X-Amz-Date, e.g. 20261121T100000Z.")
    if _STAMP.fullmatch(stamp):
        return stamp
    try:
        return f"{parse_rfc822(stamp).astimezone(UTC):%Y%m%dT%H%M%SZ}"
    except (ValueError, TypeError, OverflowError):
        _refuse(
            "IncompleteSignature", f"Date must be in ISO-8601 'basic format', 20261121T100000Z; got {stamp[:64]!r}."
        )


@lru_cache(maxsize=256)
def _seconds(stamp: str) -> float:
    try:
        return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        _refuse("IncompleteSignature", f"There is no such time as {stamp!r}.")


def _check_date(scope: Sequence[str], stamp: str) -> None:
    if scope[0] != stamp[:8]:
        _refuse(
            "SignatureDoesNotMatch",
            f"Date in Credential scope does not match the request's date: {scope[0][:32]!r} against {stamp[:8]!r}.",
        )


def _check_signed_headers(request: Request, signed: str) -> None:
    signed_names = _names_in(signed)
    absent = signed_names - request.headers.keys()
    if absent:
        _refuse(
            "SignatureDoesNotMatch",
            f"Headers were signed that the request does not have: {', '.join(sorted(absent))[:256]}.",
        )
    unsigned = [
        name for name in request.headers if name not in signed_names and (name == "host" or name.startswith("x-amz-"))
    ]
    if unsigned:
        _refuse(
            "AccessDenied",
            f"There were headers present in the request which were not signed: {', '.join(sorted(unsigned))[:256]}.",
        )


@lru_cache(maxsize=512)
def _names_in(signed: str) -> frozenset[str]:
    names = signed.split(";")
    if names != sorted(set(names)) or signed != signed.lower():
        _refuse("IncompleteSignature", "SignedHeaders must be lower-case names in order, each once.")
    return frozenset(names)


def _canonical_request(
    request: Request, *, path: str, query: str, signed: str, names: Iterable[str], payload: str
) -> bytes:
    """Join the six parts.

    Args:
        request: The request with the signed headers.
        path: One of ``path_candidates``.
        query: The result of ``canonical_query``.
        signed: The signed header names, joined by semicolons, as the client wrote them.
        names: The same names, sorted.
        payload: The hash of the body, or the keyword in its place.
    """
    headers = _canonical_headers(request, names)
    return f"{request.method}\n{path}\n{query}\n{headers}\n{signed}\n{payload}".encode("latin-1", "replace")


def _canonical_headers(request: Request, names: Iterable[str]) -> str:
    """Return one line per name; runs of spaces become one space."""
    lines: list[str] = []
    for name in names:
        value = request.headers.get(name, "").strip()
        lines.append(f"{name}:{_SPACES.sub(' ', value) if '  ' in value else value}\n")
    return "".join(lines)


def _normalise(path: str) -> str:
    if path == "/" or not ("//" in path or "/." in path):
        return path
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")


def _recode(text: str) -> str:
    if _PLAIN_QUERY.fullmatch(text):
        return text
    return quote(unquote_to_bytes(text.encode("latin-1")), safe="-_.~")


def _refuse_key(key_id: str, service: str) -> NoReturn:
    code = "InvalidAccessKeyId" if service == "s3" else "UnrecognizedClientException"
    _refuse(
        code,
        f"The access key {key_id[:64]!r} does not exist in this service; `tidemill env` prints the right one.",
    )


def _refuse_signature() -> NoReturn:
    _refuse(
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match the signature you provided. Check the secret access"
        " key and that nothing between client and service changes the request.",
    )


def _refuse(code: str, message: str) -> NoReturn:
    raise AwsError(message, code=code)
