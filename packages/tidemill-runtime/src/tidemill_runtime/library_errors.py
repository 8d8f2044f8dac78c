"""Library errors that head a failure report in place of ExecuteUserScriptError, as SageMaker's training toolkit has it.

The toolkit looks for the names of TensorFlow's errors in the script's output and takes the first one of its list
that occurs. It compares substrings, by which FileNotFoundError becomes TensorFlow's NotFoundError; here whole names are
compared.
"""

from __future__ import annotations

import re

__all__ = ["LIBRARY_MODULES", "library_error_in"]

LIBRARY_MODULES = ("tensorflow.python.framework.errors", "horovod.", "smdistributed.")
"""An exception of a class that is defined here heads the report."""

TENSORFLOW_ERRORS = (
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "InaccessibleTensorError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OperatorNotAllowedInGraphError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "XlaRuntimeError",
)
"""In the toolkit's order, which decides between several. A list, since the runtime must not import TensorFlow."""

_NAME = re.compile(r"(?<!\w)(" + "|".join(TENSORFLOW_ERRORS) + r")(?!\w)")
_QUALIFIED = re.compile(r"(?<![\w.])(?:horovod|smdistributed)\.(?:\w+\.)+([A-Z]\w*)(?=:|\s|$)")


def library_error_in(text: str) -> str:
    """Name of the library error that heads the report of a script which printed `text`; empty if it names none."""
    found = set(_NAME.findall(text))
    for name in TENSORFLOW_ERRORS:
        if name in found:
            return name
    qualified = _QUALIFIED.search(text)
    return qualified[1] if qualified else ""
