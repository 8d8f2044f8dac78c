"""Named fault points, with which tests can break the stack at exactly one place.

A point costs one dictionary look-up if no fault is armed. Faults are armed by the environment::

    TIDEMILL_FAULTS="control.create.committed:exit;store.object.rename:enospc:1:2"

Each entry is ``point:action[:probability[:count[:skip]]]``. The action is ``exit`` (SIGKILL to this process), ``eio``
or ``enospc`` (an OSError), ``delay=SECONDS``, or ``wait=FILE``, which waits until the file exists; its path contains no
colon. The first ``skip`` passes have no effect. ``point`` may end in ``*``.
Every hit is appended to the file named by ``TIDEMILL_FAULTS_LOG`` before the action, so that a test can prove that its
fault happened.
"""

import errno
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class _Fault:
    action: str
    probability: float
    remaining: int
    skip: int


def _parse(text: str) -> dict[str, _Fault]:
    armed: dict[str, _Fault] = {}
    for entry in filter(None, text.split(";")):
        name, action, *rest = entry.split(":")
        probability = float(rest[0]) if rest else 1.0
        count, skip = (int(rest[i]) if len(rest) > i else default for i, default in ((1, 1), (2, 0)))
        armed[name] = _Fault(action, probability, count, skip)
    return armed


_armed = _parse(os.environ.get("TIDEMILL_FAULTS", ""))
_random = random.Random(int(os.environ.get("TIDEMILL_FAULTS_SEED", "0")))  # noqa: S311


def point(name: str) -> None:
    """Pass the fault point ``name``, which has no effect unless the environment arms it.

    Raises:
        OSError: The point is armed with ``eio`` or ``enospc``.
    """
    if not _armed:
        return
    fault = _armed.get(name) or next(
        (f for pattern, f in _armed.items() if pattern.endswith("*") and name.startswith(pattern[:-1])), None
    )
    if fault is None:
        return
    if fault.skip > 0:
        fault.skip -= 1
        return
    if fault.remaining <= 0 or _random.random() >= fault.probability:
        return
    fault.remaining -= 1
    _record(name, fault.action)
    if fault.action == "exit":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.action.startswith("delay="):
        time.sleep(float(fault.action.removeprefix("delay=")))
    elif fault.action.startswith("wait="):
        _wait_for(Path(fault.action.removeprefix("wait=")))
    elif fault.action in ("eio", "enospc"):
        raise OSError(getattr(errno, fault.action.upper()), f"fault injected at {name}")
    else:
        raise ValueError(
            f"TIDEMILL_FAULTS: unknown action {fault.action!r} at {name}; use exit, eio, enospc, delay=S or wait=FILE"
        )


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)


def _record(name: str, action: str) -> None:
    path = os.environ.get("TIDEMILL_FAULTS_LOG")
    if path:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(fd, f"{name} {action} {os.getpid()}\n".encode())
        os.fsync(fd)
        os.close(fd)
