"""Programs that AWS's SDKs send beside the user's code: those of ModelTrainer, and those of remote functions.

They run as the container entry point, as sent, but for two things. ModelTrainer's MPI driver needs a daemon of ssh on
every instance; `mpi_driver` takes its place. A remote function needs the package ``sagemaker`` of its client, which the
platform installs first.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tidemill_runtime.events import emit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidemill_runtime.layout import Layout

_MODEL_TRAINER = "sm_drivers"
_REMOTE_FUNCTION = "sagemaker_remote_function_bootstrap"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)*", re.ASCII)
_OF_SSH = "start_sshd_daemon"
"""Function that AWS's own MPI driver calls; a driver without it is the user's."""
_IN_PLACE = """\
# In place of the driver that the SDK sent, which reaches instances by ssh.
import os
import sys

python = {python!r}
os.execv(python, [python, "-I", "-m", "tidemill_runtime.mpi_driver", sys.executable])
"""


def is_remote_function(layout: Layout, entrypoint: Sequence[str]) -> bool:
    """Return whether a job runs a function of a client's program (``@remote``, RemoteExecutor, ``@step``).

    Args:
        layout: Paths of the channels.
        entrypoint: The container entry point with its arguments.
    """
    return str(layout.channel(_REMOTE_FUNCTION) / "job_driver.sh") in entrypoint


def needed_sdk(layout: Layout, entrypoint: Sequence[str]) -> Path | None:
    """Return a requirements.txt with the package ``sagemaker`` that a remote function needs; None for other jobs.

    A function is deserialized by the version of the SDK that has serialized it.

    Args:
        layout: Paths; the file is written below its private directory.
        entrypoint: The container entry point with its arguments.
    """
    if not is_remote_function(layout, entrypoint):
        return None
    version = _option(entrypoint, "--client_sagemaker_pysdk_version")
    if not _VERSION.fullmatch(version):
        return None  # an old client names none, and its requirements have to
    file = layout.private / "remote-function" / "requirements.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"sagemaker=={version}\n", encoding="ascii")
    return file


def replace_driver(layout: Layout, entrypoint: Sequence[str]) -> None:
    """Put the MPI driver of this platform in the place of ModelTrainer's.

    Args:
        layout: Paths of the channels with the programs.
        entrypoint: The container entry point with its arguments.
    """
    directory = layout.channel(_MODEL_TRAINER)
    main = directory / "sm_train.sh"
    if str(main) not in " ".join(entrypoint) or not main.is_file():
        return
    driver = directory / "distributed_drivers" / "mpi_driver.py"
    if f"/distributed_drivers/{driver.name}" in _text(main) and driver.is_file() and _OF_SSH in _text(driver):
        driver.unlink()  # never written in place: it may be a link to the stored object
        driver.write_text(_IN_PLACE.format(python=sys.executable), encoding="utf-8")
        emit("driver.replaced", file=str(driver))


def is_drivers_report(path: Path) -> bool:
    """Return whether a failure report only says that a driver of ModelTrainer has called a command that failed.

    Args:
        path: ``output/failure``.
    """
    return path.is_file() and f"/{_MODEL_TRAINER}/common/utils.py" in _text(path)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _option(entrypoint: Sequence[str], name: str) -> str:
    """Return the word behind an option; empty without the option."""
    return next((value for option, value in zip(entrypoint, entrypoint[1:]) if option == name), "")
