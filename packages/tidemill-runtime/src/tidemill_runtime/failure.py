"""``output/failure``: the reason of a failure, with the user's own exception, in the length DescribeTrainingJob shows.

The format is that of SageMaker's toolkit: four lines (head, ExitCode, ErrorMessage, Command). The platform shows 1,024
characters including a prefix, so the message is shortened: first the outermost frames, then the end of the text.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tidemill_runtime.earlier_keras import advice
from tidemill_runtime.library_errors import LIBRARY_MODULES, library_error_in
from tidemill_runtime.startup import is_users_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MAX_CHARACTERS = 1024 - len("AlgorithmError: ")
MAX_COMMAND_CHARACTERS = 320
MAX_TAIL_LINES = 8
MAX_ADVISED_CHARACTERS = 300
"""Length of a message that advice follows, so that the advice is not cut off."""
SILENT_END = (
    "the script ended with exit code {exit_code} and wrote nothing to standard error: it called sys.exit({exit_code})"
    " or os._exit({exit_code}), or the program that it became did; its log has what it printed"
)

MISSING_MODULE = re.compile(r"No module named '(horovod|smdistributed)(?:\.[\w.]+)?'")
MISSING_HINT = (
    "{message} ({module} is part of the environments of TensorFlow {since}: set framework_version to one of"
    " those, or list a package that has it in requirements.txt)"
)
MODULES_SINCE = {"horovod": "1.15 and newer on Python 3", "smdistributed": "2.12 and newer on Python 3.10 or newer"}

FRAME_LINE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+)(, in (?P<function>.+))?')


@dataclass(frozen=True)
class Problem:
    """An uncaught exception, or the last output of a script that failed without one.

    Attributes:
        kind: Type of the exception; empty without an exception.
        message: Text of the exception, or the last lines of standard error.
        frames: ``{file, line, function, text}`` of the user's own code, the innermost last.
        module: Module that defines the type.
        printed_error: Name of the library error that the script printed on standard error, if any. It heads the report
            unless the exception itself is an error of a library.
        where: The process of the script that failed; empty if there is only one.
        keras: Version of Keras in that process, if it is known.
        owner: Module of Keras whose object lacks `attribute`; empty for other objects and exceptions.
        attribute: The missing attribute.
    """

    kind: str = ""
    message: str = ""
    frames: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    module: str = ""
    printed_error: str = ""
    where: str = ""
    keras: str = ""
    owner: str = ""
    attribute: str = ""


def write(path: Path, text: str) -> None:
    """Write the report, unless the script has written its own.

    Args:
        path: Path of the report, ``/opt/ml/output/failure``.
        text: What is written as UTF-8.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def read_report(directory: Path, *, pid: int) -> Problem | None:
    """Return the exception that ended the script, or else the newest one of its children; None without any.

    Args:
        directory: Directory of the reports, ``PID.json``.
        pid: Process id of the script, whose report wins.
    """
    own = directory / f"{pid}.json"
    others = sorted(directory.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return next(filter(None, map(_read_problem, (own, *others))), None)


def describe_end(*, exit_code: int, report: Problem | None, stderr_tail: str, where: str = "") -> Problem:
    """Describe the end of a script.

    Args:
        exit_code: Exit code of the script, negative for a signal.
        report: The uncaught exception, if one was reported.
        stderr_tail: The end of standard error, for scripts that end without an exception: sys.exit, os._exit, crashes.
        where: The process of the script, if there are several.

    Returns:
        The problem to report.
    """
    problem = _described(exit_code, report, stderr_tail)
    printed_error = library_error_in(stderr_tail)
    return replace(problem, printed_error=printed_error, where=where) if printed_error or where else problem


def compose(*, problem: Problem, exit_code: int, command: Sequence[str], head: str = "ExecuteUserScriptError") -> str:
    """Compose the four lines of the report.

    Args:
        problem: The exception or last output.
        exit_code: Exit code of the command.
        command: Argument vector of the command.
        head: First word of the report; an error of a known library replaces it.

    Returns:
        The lines; with the platform's prefix at most 1,024 characters.
    """
    if problem.kind and problem.module.startswith(LIBRARY_MODULES):
        head = problem.kind.rpartition(".")[2]
    elif problem.printed_error:
        head = problem.printed_error
    frame = f'{head}:\nExitCode {exit_code}\nErrorMessage ""\nCommand ""'
    room = MAX_CHARACTERS - len(frame)
    line = " ".join(map(shlex.quote, command))
    shortest = _message(problem, max_characters=room)
    line = _cut(line, max(MAX_COMMAND_CHARACTERS, room - len(shortest)))
    message = _message(problem, max_characters=room - len(line))
    return f'{head}:\nExitCode {exit_code}\nErrorMessage "{message}"\nCommand "{line}"'


def _read_problem(path: Path) -> Problem | None:
    """Return the exception in a file; None for one that is torn, or no report: the script can write there, too."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        frames = tuple({**frame, "file": frame["file"], "line": frame["line"]} for frame in report["frames"])
        return Problem(
            str(report["type"]),
            str(report["message"]),
            frames,
            str(report["module"]),
            keras=str(report.get("keras", "")),
            owner=str(report.get("owner", "")),
            attribute=str(report.get("attribute", "")),
        )
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError):
        return None


def _described(exit_code: int, report: Problem | None, stderr_tail: str) -> Problem:
    if exit_code in (137, -signal.SIGKILL):
        # What sent the signal is known outside of the job: the shim adds whether the kernel did, for lack of memory.
        problem = _from_text(stderr_tail)
        return Problem(message=_lines(_signal_text(signal.SIGKILL), problem.message))
    if exit_code < 0:
        problem = _from_text(stderr_tail)
        return Problem(problem.kind, _lines(_signal_text(-exit_code), problem.message), problem.frames)
    problem = report or _from_text(stderr_tail)
    missing = MISSING_MODULE.search(problem.message) if problem.kind == "ModuleNotFoundError" else None
    if missing is not None:
        module = missing.group(1)
        message = MISSING_HINT.format(message=problem.message.strip(), module=module, since=MODULES_SINCE[module])
        return replace(problem, message=message)
    todo = advice(
        message=problem.message,
        keras=problem.keras,
        owner=problem.owner,
        attribute=problem.attribute,
        line=str(problem.frames[-1].get("text", "")) if problem.frames else "",
    )
    if problem.kind and todo:
        return replace(problem, message=f"{_cut(problem.message.strip(), MAX_ADVISED_CHARACTERS)} ({todo})")
    if problem.kind or problem.message:
        return problem
    return Problem(message=SILENT_END.format(exit_code=exit_code))


def _message(problem: Problem, *, max_characters: int) -> str:
    first = ": ".join(part for part in (problem.where, problem.kind, problem.message.strip()) if part)
    frames = [_frame_text(frame) for frame in problem.frames]
    innermost = frames[-1] if frames else ""
    first = _cut(first, max(0, max_characters - len(innermost)))
    room = max_characters - len(first)
    kept: list[str] = []
    for text in reversed(frames):
        room -= len(text)
        if room < 0:
            break
        kept.insert(0, text)
    return _cut(first + "".join(kept), max_characters)


def _frame_text(frame: Mapping[str, Any]) -> str:
    where = f'\n  File "{frame["file"]}", line {frame["line"]}'
    where += f", in {frame['function']}" if frame.get("function") else ""
    return _cut(where, 200) + (f"\n    {_cut(str(frame['text']), 160)}" if frame.get("text") else "")


def _from_text(tail: str) -> Problem:
    """Return the last traceback in the script's output, or else its last lines."""
    _, marker, trace = tail.rpartition("Traceback (most recent call last):\n")
    problem = _from_traceback(trace.splitlines()) if marker else None
    if problem:
        return problem
    lines = [line for line in tail.splitlines() if line.strip() and not line.startswith("tidemill: ")]
    return Problem(message="\n".join(lines[-MAX_TAIL_LINES:]))


def _from_traceback(lines: Sequence[str]) -> Problem | None:
    frames: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        match = FRAME_LINE.fullmatch(line)
        if match:
            frames.append({**match.groupdict(), "text": ""})
        elif line.startswith("    ") and frames:
            frames[-1]["text"] = frames[-1]["text"] or line.strip()
        elif not line.startswith(" "):
            kind, _, message = line.partition(": ")
            own = [frame for frame in frames if is_users_file(frame["file"])]
            return Problem(kind, _lines(message, *lines[number + 1 :]), tuple(own or frames))
    return None


def _signal_text(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"Process killed by {name} (signal {number})"


def _lines(*lines: str) -> str:
    return "\n".join(line for line in lines if line)


def _cut(text: str, max_characters: int) -> str:
    if len(text) <= max_characters:
        return text
    return text[: max(0, max_characters - 3)] + "..."[: max(0, max_characters)]
