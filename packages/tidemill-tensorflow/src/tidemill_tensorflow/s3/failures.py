"""What S3 answers, as TensorFlow's error codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNKNOWN",
    "FilesystemError",
    "as_filesystem_error",
]

# Of tensorflow/c/tf_status.h; `tf.errors` has an exception for each.
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
INTERNAL = 13
UNAVAILABLE = 14
UNAUTHENTICATED = 16

_BY_STATUS = {
    400: INVALID_ARGUMENT,
    401: UNAUTHENTICATED,
    403: PERMISSION_DENIED,
    404: NOT_FOUND,
    409: ABORTED,
    412: FAILED_PRECONDITION,
    416: OUT_OF_RANGE,
    429: RESOURCE_EXHAUSTED,
    507: RESOURCE_EXHAUSTED,
}


class FilesystemError(Exception):
    """A failure that TensorFlow raises as one of ``tf.errors``.

    Attributes:
        code: TensorFlow's error code.
        text: What went wrong, with the path.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@contextmanager
def as_filesystem_error(subject: object) -> Iterator[None]:
    """Raise what boto3 raises inside as `FilesystemError`, with S3's own words.

    Args:
        subject: What the words are about: a path.
    """
    # Imported here: a script that never touches S3 does not pay for it.
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = _BY_STATUS.get(status, UNAVAILABLE if status >= 500 else UNKNOWN)
        words = f"{answer.get('Code', status)}: {answer.get('Message', 'no reason given')}"
        raise FilesystemError(code, f"{subject}: {words}") from error
    except BotoCoreError as error:
        code = UNAUTHENTICATED if "redentials" in type(error).__name__ else UNAVAILABLE
        raise FilesystemError(code, f"{subject}: {error}") from error
