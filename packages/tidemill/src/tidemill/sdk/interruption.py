"""Ctrl-C while a client waits for a job: detach from the job or stop it, and end without a traceback.

The wait ends with a `KeyboardInterrupt`, so that a client script does not continue without a model. Its traceback is
suppressed in Python and in notebooks, since it would not tell the user anything new.
"""

import sys
from types import TracebackType
from typing import Any, TextIO

from tidemill.sdk.console import Console

_QUESTION = "Ctrl-C: [d]etach and let the training job go on, or [s]top it? [d] "
_STOP = frozenset({"s", "stop"})


def on_interrupt(session: Any, job_name: str, *, console: Console, answers: TextIO | None = None) -> KeyboardInterrupt:
    """Detach from the job or stop it, and print how to follow it again. On a terminal the user is asked which.

    Args:
        session: Stops the job.
        job_name: The job.
        console: Prints the question and the outcome.
        answers: Stream to read the answer from; None means standard input. If it is not a terminal, the user is not
            asked and the job continues.

    Returns:
        The exception to end the wait with.
    """
    if _wants_to_stop(console, sys.stdin if answers is None else answers):
        session.stop_training_job(job_name)
        console.say(f"Stopping training job {job_name}; the model that it has saved is kept.")
        console.say(f"  follow: tidemill logs -f {job_name}")
    else:
        say_detached(console, "training job", job_name, attach="TensorFlow.attach")
    return _without_traceback()


def say_detached(console: Console, title: str, job_name: str, *, attach: str) -> None:
    """Print that the wait ended and the job did not, and how to follow or stop the job.

    Args:
        console: Prints the lines.
        title: ``training job`` or ``transform job``.
        job_name: The job.
        attach: Function of the SDK that attaches to the job.
    """
    console.say(f"\nNo longer waiting; {title} {job_name} goes on.")
    console.say(f"  attach: {attach}({job_name!r}), or tidemill logs -f {job_name}")
    console.say(f"  stop:   tidemill stop {job_name}")


def _wants_to_stop(console: Console, answers: TextIO | None) -> bool:
    if answers is None or answers.closed or not answers.isatty():
        return False
    console.ask(_QUESTION)
    try:
        return answers.readline().strip().lower() in _STOP
    except KeyboardInterrupt:  # a second Ctrl-C detaches
        return False


def _without_traceback() -> KeyboardInterrupt:
    """Return an exception for which no traceback is printed.

    It is not a subclass, because the interpreter exits by SIGINT, as shells expect, only for this exact class.
    """
    quiet: Any = KeyboardInterrupt()
    quiet._render_traceback_ = list  # IPython and notebooks call this and print nothing
    present = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if error is not quiet:
            present(kind, error, trace)

    sys.excepthook = hook
    return quiet
