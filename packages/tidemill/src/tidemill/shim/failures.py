"""The failures of an instance, with messages in the form of FailureReason.

SageMaker has three prefixes: ``AlgorithmError`` (the user's code), ``ClientError`` (the user's data or request) and
``InternalServerError`` (an error of the service, the only one after which a retry makes sense).
"""

import errno
import re

_MAX_CHARACTERS = 1024
_KILLED = re.compile(r"(?m)^ExitCode (137|-9)\b")
_SIGKILL = "Process killed by SIGKILL (signal 9)"
_OUT_OF_MEMORY = "OutOfMemory: "
_MESSAGE = re.compile(r'(?s)(?P<head>.*?ErrorMessage ")(?P<message>.*)(?P<tail>"\s*\nCommand .*)')
_CUT = "..."


class InstanceFailure(Exception):
    """The instance has failed; the message is its FailureReason.

    Args:
        text: The reason, to which the class adds its prefix. The message is cut at 1,024 characters.

    Attributes:
        reason: The reason without prefix, not cut.
    """

    head = "InternalServerError"

    def __init__(self, text: str) -> None:
        self.reason = text
        super().__init__(_limit(f"{type(self).head}: {text}"))


class AlgorithmFailure(InstanceFailure):
    """The user's code failed."""

    head = "AlgorithmError"


class ClientFailure(InstanceFailure):
    """The user's data or request caused the failure."""

    head = "ClientError"


class InternalFailure(InstanceFailure):
    """The service caused the failure."""


class InstanceLost(InternalFailure):
    """The instance lost what it needs outside of itself, such as the network of the job."""


def of_os_error(error: OSError, *, place: str) -> InstanceFailure:
    """Return the failure for an operating system error while writing ``place``, a path as the job sees it.

    Args:
        error: What the system said.

    Returns:
        ClientFailure if the disk is full.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ClientFailure(f"no space left on device: {place}. Free space, or give the job less data")
    return InternalFailure(f"{place}: {error.strerror or error}")


def algorithm_reason(report: str, *, out_of_memory: bool = False) -> AlgorithmFailure:
    """Return the failure that the runtime or the script reported in ``output/failure``.

    If a report in the training toolkit's form is too long, its message is shortened and the command kept.

    Args:
        out_of_memory: Whether the kernel has killed a process of the instance for lack of memory. A report of an end by
            SIGKILL then begins with OutOfMemory. Default: false; the script or another process sent the signal.
    """
    text = report.strip()
    if out_of_memory and _KILLED.search(text) and _OUT_OF_MEMORY not in text:
        named = text.replace(_SIGKILL, _OUT_OF_MEMORY + _SIGKILL, 1)
        text = named if named != text else f"{text}\n{_OUT_OF_MEMORY}{_SIGKILL}"
    room = _MAX_CHARACTERS - len("AlgorithmError: ")
    match = _MESSAGE.fullmatch(text)
    if len(text) > room and match:
        spare = room - len(match["head"]) - len(match["tail"]) - len(_CUT)
        if spare > 0:
            text = match["head"] + match["message"][:spare] + _CUT + match["tail"]
    return AlgorithmFailure(text)


def ended_reason(
    exit_code: int, *, stderr_tail: str, command: str, peak_rss_bytes: int, out_of_memory: bool = False
) -> InstanceFailure:
    """Return the failure for a process that ended without a report.

    Args:
        exit_code: Exit status of the process.
        stderr_tail: The last output on standard error.
        command: The command, for the message.
        peak_rss_bytes: Peak memory, for the message after SIGKILL.
        out_of_memory: As for `algorithm_reason`.
    """
    last = stderr_tail.strip().splitlines()[-1:] or [""]
    if last[0].startswith(("bwrap: ", "tidemill-sandbox: ")):
        return InternalFailure(f"the sandbox could not be entered: {last[0]}")
    message = stderr_tail.strip()
    if exit_code in (137, -9):
        message = f"{_SIGKILL}; its peak memory was {peak_rss_bytes >> 20} MiB"
    report = f'ExecuteUserScriptError:\nExitCode {exit_code}\nErrorMessage "{message}"\nCommand "{command}"'
    return algorithm_reason(report, out_of_memory=out_of_memory)


def _limit(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - len(_CUT)] + _CUT
