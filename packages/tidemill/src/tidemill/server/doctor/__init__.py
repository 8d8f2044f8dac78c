"""Checks of the machine and of the service, for `tidemill doctor` and for the operation RunDoctor."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tidemill.core.findings import Finding
from tidemill.server.doctor.machine import MACHINE_CHECKS
from tidemill.server.doctor.service import SERVICE_CHECKS, shell

if TYPE_CHECKING:
    from tidemill.settings import Settings

__all__ = ["examine", "shell"]


def examine(settings: "Settings") -> Iterator[Finding]:
    """Run every check of the machine and of the service, the fundamental ones first.

    No check runs code of users. One check asks an environment's TensorFlow for GPUs, in a process with a time limit.

    Args:
        settings: The settings of the service, or of the command.
    """
    for check in (*MACHINE_CHECKS, *SERVICE_CHECKS):
        yield check(settings)
