"""The data exchanged between wire and services: a context, and plain dictionaries in botocore's shapes.

A handler gets the parsed, validated input members of its operation and returns the output members. Handlers never see
HTTP, and the wire never sees domain objects.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tidemill.errors import AwsError
from tidemill.wire.signing.credentials import Credential


@dataclass(frozen=True, slots=True)
class Caller:
    """The signer of a request."""

    access_key_id: str
    arn: str


class Writer(Protocol):
    """A caller that may not change every object that its policy allows it to write."""

    def publisher_of(self, bucket: str, key: str) -> str:
        """Return the publisher to record with an object that the caller writes; empty if it publishes nothing.

        Args:
            bucket: Name of the bucket.
        """
        ...

    def keeps(self, bucket: str, key: str) -> bool:
        """Return whether the caller has to keep an object if another job published it.

        Args:
            bucket: Name of the bucket.
        """
        ...

    def refusal(self, action: str, bucket: str, key: str, *, publisher: str | None) -> AwsError | None:
        """Return the error if the caller may not do ``action``, e.g. ``s3:DeleteObject``, to an existing object.

        Args:
            publisher: The recorded publisher; None if an earlier version stored the object without one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Facts about a request that a handler gets in addition to its input members."""

    request_id: str
    service: str
    """botocore's service name: sagemaker, sagemaker-runtime, logs, cloudwatch, s3, sts, iam."""
    operation: str
    """Name of the operation in the model, e.g. ``CreateTrainingJob``."""
    caller: Caller
    region: str
    headers: Mapping[str, str]
    """Request headers, names in lower case."""
    scheme: str = "http"
    """``http`` or ``https``, as the client reached the service."""
    address: str = ""
    """IP address of the client; empty if it is not known."""
    internal: bool = False
    """Whether the service itself performs the operation, e.g. for a step of a pipeline."""
    presigned: bool = False
    """Whether the request has a signature that its key's owner gave to somebody else: a presigned URL or form."""
    of_page: bool = False
    """Whether a session of the page sends the request, instead of a signer."""
    writer: Writer | None = None
    """Limits the changes of objects; None for callers without limits."""
    kms_keys: Sequence[str] = ()
    """The KMS keys that the request names, except for requests of S3, whose handlers look them up."""
    permits: Callable[[str, str], bool] = lambda action, arn: True
    """Whether the caller may do an action, e.g. ``sagemaker:DescribeTrainingJob``, to a resource that a request does
    not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBody:
    """A streaming reply body that is a slice of a file."""

    path: Path
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer with an HTTP status or headers that differ from the model. A plain mapping is a 200.

    A streaming ``Body`` member is bytes, a FileBody or an asynchronous iterator of bytes.
    """

    members: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Handler(Protocol):
    """One operation. A streaming ``Body`` in ``request`` is an asynchronous iterator of verified, decoded bytes. It
    raises at its end if signature, checksum or length are wrong, so publish nothing before it is exhausted."""

    def __call__(self, request: dict[str, Any], context: Context) -> Awaitable[Mapping[str, Any] | Reply]: ...


class Authorizer(Protocol):
    """Calls the handler of a validated request, or refuses the request."""

    def handle(
        self, handler: Handler, request: dict[str, Any], context: Context, credential: Credential
    ) -> Awaitable[Mapping[str, Any] | Reply]:
        """Call the handler if the credential has all permissions that the request needs.

        Raises:
            AwsError: A permission is missing, or an error of the handler.
        """
        ...


class Service(Protocol):
    """One AWS service: its handlers by operation name. Other operations get the protocol's error for unknown ones."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...


BodyStream = AsyncIterator[bytes]
