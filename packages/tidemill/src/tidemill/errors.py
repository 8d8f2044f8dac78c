"""The error tree of the stack.

    TidemillError                 every error that this package raises deliberately
    ├── AwsError                  answers a client in AWS's own format: code, HTTP status, message
    │   ├── ValidationException   a member is malformed or not allowed (400)
    │   ├── ResourceInUse         the name is taken, or the resource is busy (400)
    │   ├── ResourceNotFound      no such resource (400)
    │   └── ...                   one class per code that is raised in several places
    ├── ConfigurationError        settings, state directory or keys cannot be used
    ├── EnvironmentBuildError     an environment for jobs or endpoints cannot be built
    │   └── MissingInterpreterError   this machine has no Python for the environment
    ├── LaunchError               an instance cannot be started
    │   ├── CapacityError             no machines of a cluster fit the instances
    │   └── MachinesBusy              the machines that fit run other instances
    ├── StateCorrupt              stored state fails its checksum
    ├── JobFailed                 a job that the SDK waited for failed
    ├── EndpointFailed            an endpoint that the SDK waited for failed
    ├── InferenceFailed           a request at an asynchronous endpoint failed
    └── ResultPending             a request at an asynchronous endpoint has no result yet

Codes are AWS's own; `tests/contract` compares them with botocore's models. A message says what was wrong,
the value received, what is allowed and what to do next. A message may quote a script, a model or a file name, so it is
shown without control characters (`printable`): tracebacks, the SDK and the command line all use `str(error)`.
"""

import re

_STATUSES = {
    "AccessDenied": 403,
    "AttemptOver": 409,
    "BucketAlreadyOwnedByYou": 409,
    "BucketNotEmpty": 409,
    "DeleteConflict": 409,
    "EntityAlreadyExists": 409,
    "InternalError": 500,
    "InternalFailure": 500,
    "InvalidAccessKeyId": 403,
    "InvalidPartNumber": 416,
    "InvalidRange": 416,
    "LimitExceeded": 409,
    "MethodNotAllowed": 405,
    "MisdirectedRequest": 421,
    "MissingAuthenticationToken": 403,
    "MissingContentLength": 411,
    "ModelError": 424,
    "NoSuchBucket": 404,
    "NoSuchEntity": 404,
    "NoSuchKey": 404,
    "NoSuchUpload": 404,
    "NoSuchVersion": 404,
    "NotImplemented": 501,
    "PreconditionFailed": 412,
    "RequestEntityTooLarge": 413,
    "RequestTimeTooSkewed": 403,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "ThrottlingException": 429,
    "UnrecognizedClientException": 403,
    "UnsupportedMediaTypeException": 415,
}
"""HTTP status by AWS's error code; of all other codes it is 400."""

# CSI, OSC/DCS/APC/PM strings with their terminators, two-character escapes.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return ``text`` without escape sequences and control characters, which could control a terminal.

    Tabs and line ends are kept. Of a line with carriage returns, as from progress bars, only the part that a terminal
    would show last is kept.

    Args:
        text: Any text.
    """
    if text.isprintable():  # cheap, and true for most texts
        return text
    return "\n".join(_printable_line(line) for line in text.split("\n"))


def _printable_line(line: str) -> str:
    shown = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROLS.sub("", shown)


class TidemillError(Exception):
    """Base class of every error that tidemill raises deliberately."""

    def __str__(self) -> str:
        return printable(super().__str__())


class AwsError(TidemillError):
    """An error that a client receives in AWS's wire format. The code of a subclass is its name, unless it gives one.

    Args:
        message: What was wrong, the value received, what is allowed, what to do next.
        code: AWS's error code, e.g. ``NoSuchKey``. Default: that of the class.
        status: HTTP status. Default: that of the code.
        headers: Extra reply headers, e.g. ``Content-Range`` of a 416.
        members: Extra members of the error body, by their wire name, e.g. ``OriginalStatusCode`` of a ModelError.
        close: Whether the connection must be closed after the reply, because the request body was not read.
    """

    code = "InternalFailure"

    def __init_subclass__(cls, code: str = "") -> None:
        if code or AwsError in cls.__bases__:
            cls.code = code or cls.__name__

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        headers: dict[str, str] | None = None,
        members: dict[str, object] | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.status = status or _STATUSES.get(self.code, 400)
        self.headers = headers or {}
        self.members = members or {}
        self.close = close


class ValidationException(AwsError):
    """A request member is malformed, out of range or not allowed."""


class ConflictException(AwsError):
    """The resource is not in a state that allows the operation, or another request changes it."""


class ResourceInUse(AwsError):
    """The name is taken, or the resource is not in a state that allows the operation."""


class ResourceNotFound(AwsError):
    """There is no such resource."""


class ResourceLimitExceeded(AwsError):
    """The request needs more than there is, however long it waits."""


class UnknownOperation(AwsError, code="UnknownOperationException"):
    """The service does not implement the operation."""


class ServiceUnavailable(AwsError):
    """The service cannot handle the request now (disk full, shutting down); the same request may succeed later."""


class PayloadMismatch(AwsError, code="XAmzContentSHA256Mismatch"):
    """The bytes of a body do not have the SHA-256 that its signature covers."""

    def __init__(self) -> None:
        super().__init__("The provided 'x-amz-content-sha256' header does not match what was computed.")


class ConfigurationError(TidemillError):
    """Settings, keys or the state directory are invalid."""


class EnvironmentBuildError(TidemillError):
    """An environment for jobs or endpoints could not be built."""


class MissingInterpreterError(EnvironmentBuildError):
    """This machine has no Python for an environment."""


class LaunchError(TidemillError):
    """An instance could not be started."""


class CapacityError(LaunchError):
    """The machines of a cluster, even if all were free, cannot run the instances of a job."""


class MachinesBusy(LaunchError):
    """The machines of a cluster can run the instances of a job when others have ended."""


class StateCorrupt(TidemillError):
    """A stored row or object fails its checksum."""


class JobFailed(TidemillError):
    """A training job, awaited by the SDK, ended in a state other than Completed."""


class EndpointFailed(TidemillError):
    """An endpoint, awaited by the SDK, ended in a state other than InService."""


class InferenceFailed(TidemillError):
    """A request at an asynchronous endpoint failed."""


class ResultPending(TidemillError):
    """A request at an asynchronous endpoint has no result yet."""
