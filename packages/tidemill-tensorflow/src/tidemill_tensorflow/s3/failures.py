"""Map the errors of S3 and boto3 to TensorFlow's error codes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

# The codes of tensorflow/c/tf_status.h. `tf.errors` has one exception class per code.
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
        text: The error message, with the path.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@contextmanager
def as_filesystem_error(subject: object) -> Generator[None]:
    """Convert errors that boto3 raises in the block to `FilesystemError`, with S3's own code and message.

    Args:
        subject: The path that the error message names.
    """
    # Imported here, because a script that never uses S3 must not pay for this import.
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        yield
    except ClientError as error:
        answer = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = _BY_STATUS.get(status, UNAVAILABLE if status >= 500 else UNKNOWN)
        words = f"{answer.get('Code', status)}: {answer.get('Message', 'no reason given')}"
        raise FilesystemError(code, f"{subject}: {words}") from error
    except ParamValidationError as error:  # no request was sent: the path is no bucket or key, e.g. an empty key
        raise FilesystemError(INVALID_ARGUMENT, f"{subject}: {error}") from error
    except BotoCoreError as error:
        code = UNAUTHENTICATED if "redentials" in type(error).__name__ else UNAVAILABLE
        raise FilesystemError(code, f"{subject}: {error}") from error
