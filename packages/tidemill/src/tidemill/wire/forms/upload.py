"""Turn a presigned POST into a PutObject, and its answer into the one that the form asks for.

A form has the headers of a put as fields, under the same names except for ``acl`` and ``tagging``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream, Receive, open_body
from tidemill.wire.forms.policy import Policy
from tidemill.wire.forms.reader import FormReader
from tidemill.wire.operations import operation
from tidemill.wire.protocols.serialize_xml import element
from tidemill.wire.reply import HttpReply
from tidemill.wire.request import Request
from tidemill.wire.signing.sigv4 import UNSIGNED_PAYLOAD, Claim, Verifier

_CONTENT_HEADERS = frozenset(
    ("cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires")
)
_OF_SIGNATURE = frozenset(
    ("x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signature")
)
_STATUSES = ("200", "201", "204")


@dataclass(frozen=True, slots=True, kw_only=True)
class FormUpload:
    """A form whose policy allows the upload.

    Attributes:
        claim: The signer of the policy.
        request: The head of the put.
        path: ``Bucket`` and ``Key``.
        body: The bytes of the file.
        fields: The fields of the form by name in lower case.
    """

    claim: Claim
    request: Request
    path: Mapping[str, str]
    body: BodyStream
    fields: Mapping[str, str]

    @classmethod
    async def open(
        cls, request: Request, receive: Receive, *, bucket: str, verifier: Verifier, limit_bytes: int, now_ms: int
    ) -> "FormUpload":
        """Read a form up to its file, and check its signature and its policy.

        Args:
            request: The head of the POST.
            receive: Receives the body.
            bucket: Bucket of the URL.
            verifier: Verifies the signature.
            limit_bytes: Maximum size of the file.
            now_ms: Wall time.

        Raises:
            AwsError: The form is malformed, not signed, or not allowed by its policy.
        """
        reader = FormReader(receive, request.headers.get("content-type", ""))
        fields, filename = await reader.fields()
        if "key" not in fields:
            raise AwsError("The form has no field named key.", code="InvalidArgument")
        claim = verifier.claim_form(fields)
        key = fields["key"].replace("${filename}", filename)
        policy = Policy.parse(fields["policy"])
        policy.check(fields, bucket=bucket, key=key, now_ms=now_ms)
        put = _put_request(request, fields, bucket=bucket, key=key)
        body = open_body(put, claim, _Sized(reader, policy).receive, payload=UNSIGNED_PAYLOAD, limit_bytes=limit_bytes)
        return cls(claim=claim, request=put, path={"Bucket": bucket, "Key": key}, body=body, fields=fields)

    def reply(self, members: Mapping[str, Any]) -> HttpReply:
        """Return the answer that the form asks for: 204 by default.

        Args:
            members: The output members of PutObject.
        """
        bucket, key, etag = self.path["Bucket"], self.path["Key"], members["ETag"]
        place = f"{self.request.scheme}://{self.request.headers.get('host', 'localhost')}/{bucket}/{quote(key)}"
        headers = [(b"location", place.encode()), (b"etag", etag.encode())]
        target = self.fields.get("success_action_redirect") or self.fields.get("redirect") or ""
        if _is_url(target):
            found = urlencode({"bucket": bucket, "key": key, "etag": etag})
            joined = f"{target}{'&' if '?' in target else '?'}{found}"
            return HttpReply(303, [(b"location", joined.encode()), headers[1]])
        status = self.fields.get("success_action_status", "")
        if status not in _STATUSES:
            status = "204"
        if status != "201":
            return HttpReply(int(status), headers)
        parts = (("Location", place), ("Bucket", bucket), ("Key", key), ("ETag", etag))
        text = "".join(element(name, value) for name, value in parts)
        document = f'<?xml version="1.0" encoding="UTF-8"?>\n<PostResponse>{text}</PostResponse>'
        return HttpReply(201, [*headers, (b"content-type", b"application/xml")], document.encode())


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    return url.scheme in ("http", "https") and bool(url.netloc) and text.isprintable()


class _Sized:
    """The bytes of the file, refused if their number is outside the policy's range."""

    def __init__(self, reader: FormReader, policy: Policy) -> None:
        self._reader = reader
        self._policy = policy
        self._received_bytes = 0

    async def receive(self) -> tuple[bytes, bool]:
        data, more = await self._reader.receive_file()
        self._received_bytes += len(data)
        most = self._policy.max_bytes
        if most is not None and self._received_bytes > most:
            raise AwsError(
                f"Your proposed upload exceeds the maximum allowed size of {most} bytes.",
                code="EntityTooLarge",
                members={"MaxSizeAllowed": most},
                close=True,
            )
        if not more and self._received_bytes < self._policy.min_bytes:
            raise AwsError(
                f"Your proposed upload of {self._received_bytes} bytes is smaller than the minimum allowed size of"
                f" {self._policy.min_bytes} bytes.",
                code="EntityTooSmall",
                members={"ProposedSize": self._received_bytes, "MinSizeAllowed": self._policy.min_bytes},
            )
        return data, more


def _put_request(request: Request, fields: Mapping[str, str], *, bucket: str, key: str) -> Request:
    headers = {"host": request.headers.get("host", ""), "transfer-encoding": "chunked"}
    for name, value in fields.items():
        header = "x-amz-acl" if name == "acl" else name
        if header not in _CONTENT_HEADERS and (not header.startswith("x-amz-") or header in _OF_SIGNATURE):
            continue
        if not value.isprintable():
            raise AwsError(f"The field {name!r} holds a control character: {value[:128]!r}.", code="InvalidArgument")
        headers[header] = value
    if "tagging" in fields:
        headers["x-amz-tagging"] = _tagging(request, fields["tagging"], bucket=bucket, key=key)
    latin = {name: value.encode("utf-8").decode("latin-1") for name, value in headers.items()}  # as in any request
    return Request(
        "PUT", f"/{quote(bucket)}/{quote(key)}", headers=latin, scheme=request.scheme, address=request.address
    )


def _tagging(request: Request, text: str, *, bucket: str, key: str) -> str:
    """Return the tags of the field ``tagging``, the document of PutObjectTagging, in the form of the header."""
    spec = operation("s3", "PutObjectTagging", "rest-xml")
    members = spec.read(request, {"Bucket": bucket, "Key": key}, text.encode(), [])
    tags = members.get("Tagging", {}).get("TagSet", [])
    return urlencode([(tag.get("Key", ""), tag.get("Value", "")) for tag in tags])
