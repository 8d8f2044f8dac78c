"""Library errors that replace ExecuteUserScriptError as head of a failure report, as in SageMaker's training toolkit.

The toolkit searches the script's output for the names of TensorFlow's errors, and uses the first name of its list
that it finds. It compares substrings, so that FileNotFoundError becomes TensorFlow's NotFoundError; this module
compares whole names.
"""

from __future__ import annotations

import re

LIBRARY_MODULES = ("tensorflow.python.framework.errors", "horovod.", "smdistributed.")
"""An exception of a class defined in these modules heads the report."""

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
"""In the toolkit's order, which decides between several. Listed here, since the runtime must not import TensorFlow."""

_NAME = re.compile(r"(?<!\w)(" + "|".join(TENSORFLOW_ERRORS) + r")(?!\w)")
_QUALIFIED = re.compile(r"(?<![\w.])(?:horovod|smdistributed)\.(?:\w+\.)+([A-Z]\w*)(?=:|\s|$)")


def library_error_in(text: str) -> str:
    """Return the name of the library error that heads the report of a script that printed `text`; empty if none.

    Args:
        text: Standard error of the script.

    Returns:
        The first name of `TENSORFLOW_ERRORS` in the text, else a qualified name.
    """
    found = set(_NAME.findall(text))
    for name in TENSORFLOW_ERRORS:
        if name in found:
            return name
    qualified = _QUALIFIED.search(text)
    return qualified[1] if qualified else ""
