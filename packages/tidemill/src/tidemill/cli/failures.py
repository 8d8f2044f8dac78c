"""Which errors are expected, and the one line that each becomes."""

import sys
from dataclasses import dataclass

from tidemill.errors import JobFailed, TidemillError

__all__ = ["CommandFailed", "Failure", "explain"]

_IN_USE = 3


class CommandFailed(TidemillError):
    """The verb could not do what was asked; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What the user is told."""

    text: str
    exit_code: int = 1


def explain(error: Exception) -> Failure | None:
    """The line for an expected error, or None for a bug."""
    if isinstance(error, JobFailed):
        # Its lines are the end of the user's own traceback.
        return Failure(str(error))
    if isinstance(error, TidemillError):
        return Failure(_one_line(error), _IN_USE if type(error).__name__ == "StateInUse" else 1)
    # boto3 is loaded only by verbs that talk to the service: where it is not loaded, the error is not its.
    botocore = sys.modules.get("botocore.exceptions")
    if botocore is not None:
        if isinstance(error, botocore.ClientError):
            answer = error.response.get("Error", {})
            return Failure(_one_line(f"{answer.get('Code', 'Error')}: {answer.get('Message', error)}"))
        if isinstance(
            error, botocore.EndpointConnectionError | botocore.ConnectionClosedError | botocore.HTTPClientError
        ):
            return Failure(_one_line(f"the service does not answer ({error}); see `tidemill status` and its log"))
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(_one_line(f"{error.filename}: {error.strerror}"))
    return None


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
