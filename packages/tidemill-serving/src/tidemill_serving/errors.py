"""The error tree of the server, and TensorFlow's status codes with their HTTP statuses.

    ServingError
    ├── StartFailed     the server cannot start: no model, a model that does not load, an address in use
    └── RequestError    answers one request: a status code of TensorFlow and a message

A RequestError becomes ``{ "error": "<message>" }`` with the HTTP status that TensorFlow Serving maps the code to.
"""

from enum import Enum


class Code(Enum):
    """Status codes of TensorFlow: the number used by gRPC and the HTTP status used by REST."""

    OK = (0, 200)
    CANCELLED = (1, 499)
    UNKNOWN = (2, 500)
    INVALID_ARGUMENT = (3, 400)
    DEADLINE_EXCEEDED = (4, 504)
    NOT_FOUND = (5, 404)
    ALREADY_EXISTS = (6, 409)
    PERMISSION_DENIED = (7, 403)
    RESOURCE_EXHAUSTED = (8, 429)
    FAILED_PRECONDITION = (9, 400)
    ABORTED = (10, 409)
    OUT_OF_RANGE = (11, 400)
    UNIMPLEMENTED = (12, 501)
    INTERNAL = (13, 500)
    UNAVAILABLE = (14, 503)
    DATA_LOSS = (15, 500)
    UNAUTHENTICATED = (16, 401)

    def __init__(self, number: int, http_status: int) -> None:
        self.number = number
        self.http_status = http_status

    @classmethod
    def of(cls, number: int) -> "Code":
        """Return the code with that number; UNKNOWN if no code has it.

        Args:
            number: A code of gRPC, 0 to 16.
        """
        return _BY_NUMBER.get(number, cls.UNKNOWN)


_BY_NUMBER = {code.number: code for code in Code}


class ServingError(Exception):
    """Base class of the server's errors."""


class StartFailed(ServingError):
    """Raised if the server cannot start. The message goes to standard error; the exit status is 1."""


class RequestError(ServingError):
    """Raised if a request fails.

    Args:
        code: TensorFlow's status code; decides the HTTP status.
        message: Text for the client.
        http_status: HTTP status that overrides the code's, e.g. 415, which no code maps to.
        headers: Extra reply headers.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        http_status: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.http_status = http_status or code.http_status
        self.headers = headers


def invalid(message: str) -> RequestError:
    """Return an INVALID_ARGUMENT error: the request itself is wrong.

    Args:
        message: What was wrong, the value, what is allowed.

    Returns:
        HTTP status 400; gRPC code 3.
    """
    return RequestError(Code.INVALID_ARGUMENT, message)


def failed_precondition(message: str) -> RequestError:
    """Return a FAILED_PRECONDITION error: the request does not fit this model.

    Args:
        message: What the model lacks.

    Returns:
        HTTP status 400; gRPC code 9.
    """
    return RequestError(Code.FAILED_PRECONDITION, message)


def not_found(message: str) -> RequestError:
    """Return a NOT_FOUND error.

    Args:
        message: Which model, version or file.

    Returns:
        HTTP status 404; gRPC code 5.
    """
    return RequestError(Code.NOT_FOUND, message)
