"""The failures of an instance, with messages in the form of FailureReason.

SageMaker has three prefixes: ``AlgorithmError`` (the user's code), ``ClientError`` (the user's data or request) and
``InternalServerError`` (an error of the service, the only one after which a retry makes sense).
"""

import errno
import re

__all__ = [
    "AlgorithmFailure",
    "ClientFailure",
    "InstanceFailure",
    "InternalFailure",
    "algorithm_reason",
    "ended_reason",
    "of_os_error",
]

_MAX_CHARACTERS = 1024
_KILLED = (137, -9)
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


def of_os_error(error: OSError, *, place: str) -> InstanceFailure:
    """Return the failure for an operating system error while writing ``place``, a path as the job sees it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ClientFailure(f"no space left on device: {place}. Free space, or give the job less data")
    return InternalFailure(f"{place}: {error.strerror or error}")


def algorithm_reason(report: str, *, peak_rss_bytes: int) -> AlgorithmFailure:
    """Return the failure that the runtime or the script reported in ``output/failure``.

    If a report in the training toolkit's form is too long, its message is shortened and the command kept.
    """
    text = report.strip()
    if re.search(r"(?m)^ExitCode (137|-9)\b", text) and "OutOfMemory" not in text:
        text += f"\n{_killed_note(peak_rss_bytes)}"
    room = _MAX_CHARACTERS - len("AlgorithmError: ")
    match = _MESSAGE.fullmatch(text)
    if len(text) > room and match:
        spare = room - len(match["head"]) - len(match["tail"]) - len(_CUT)
        if spare > 0:
            text = match["head"] + match["message"][:spare] + _CUT + match["tail"]
    return AlgorithmFailure(text)


def ended_reason(exit_code: int, *, stderr_tail: str, command: str, peak_rss_bytes: int) -> InstanceFailure:
    """Return the failure for a process that ended without a report.

    Args:
        exit_code: Exit status of the process.
        stderr_tail: The last output on standard error.
        command: The command, for the message.
        peak_rss_bytes: Peak memory, for the message after SIGKILL.
    """
    last = stderr_tail.strip().splitlines()[-1:] or [""]
    if last[0].startswith(("bwrap: ", "tidemill-sandbox: ")):
        return InternalFailure(f"the sandbox could not be entered: {last[0]}")
    message = _killed_note(peak_rss_bytes) if exit_code in _KILLED else stderr_tail.strip()
    report = f'ExecuteUserScriptError:\nExitCode {exit_code}\nErrorMessage "{message}"\nCommand "{command}"'
    return algorithm_reason(report, peak_rss_bytes=peak_rss_bytes)


def _killed_note(peak_rss_bytes: int) -> str:
    return f"OutOfMemory: Process killed by SIGKILL (signal 9); its peak memory was {peak_rss_bytes >> 20} MiB"


def _limit(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - len(_CUT)] + _CUT
