"""Turn expected errors into one-line messages."""

import sys
from dataclasses import dataclass

import typer
from typer.exceptions import TyperException

from tidemill.errors import JobFailed, TidemillError

_IN_USE = 3
_WRONG_USAGE = 2


class CommandFailed(TidemillError):
    """A command failed; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Message and exit code for the user."""

    text: str
    exit_code: int = 1
    code: str = "CommandFailed"
    """For programs: AWS's error code if the service refused a request, else the kind of error."""


def explain(error: Exception) -> Failure | None:
    """Return the failure for an expected error, or None for a bug.

    Args:
        error: What a verb raised.
    """
    if isinstance(error, JobFailed):
        # Keep all lines: the message contains the end of the user's own traceback.
        return Failure(str(error), code="JobFailed")
    if isinstance(error, TidemillError):
        return Failure(_one_line(error), _IN_USE if type(error).__name__ == "StateInUse" else 1, type(error).__name__)
    if isinstance(error, TyperException):
        text = error.format_message() if isinstance(error, typer.BadParameter) else error
        return Failure(_one_line(text), _WRONG_USAGE, "WrongUsage")
    # Commands that do not use the service do not load boto3; if it is not loaded, the error cannot be botocore's.
    botocore = sys.modules.get("botocore.exceptions")
    if botocore is not None:
        if isinstance(error, botocore.ClientError):
            answer = error.response.get("Error", {})
            code = answer.get("Code", "Error")
            return Failure(_one_line(f"{code}: {answer.get('Message', error)}"), code=code)
        if isinstance(
            error, botocore.EndpointConnectionError | botocore.ConnectionClosedError | botocore.HTTPClientError
        ):
            text = f"the service does not answer ({error}); see `tidemill status` and its log"
            return Failure(_one_line(text), code="NoAnswer")
        if isinstance(error, botocore.NoCredentialsError | botocore.PartialCredentialsError):
            return Failure(
                f"there are no keys for the service ({_one_line(error)}): set AWS_ACCESS_KEY_ID and"
                " AWS_SECRET_ACCESS_KEY as `tidemill keys add` printed them; `tidemill status` shows the service",
                code="NoKeys",
            )
        if isinstance(error, botocore.BotoCoreError):
            return Failure(_one_line(error))
    if isinstance(error, OSError) and error.filename is not None:
        return Failure(_one_line(f"{error.filename}: {error.strerror}"))
    return None


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
