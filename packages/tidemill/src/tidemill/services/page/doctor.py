"""RunDoctor: the checks of `tidemill doctor`, on the machine and with the settings of the service."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidemill.core.findings import Finding
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context

__all__ = ["DoctorOperations"]

_LIMIT_S = 60.0


class DoctorOperations(Operations):
    """Runs the checks. Requests that come while they run share their result.

    Args:
        examine: Runs the checks one after the other; blocks.
    """

    def __init__(self, examine: Callable[[], Iterator[Finding]]) -> None:
        self._examine = examine
        self._run: asyncio.Task[None] | None = None
        self._found: list[Finding] = []

    async def run_doctor(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """RunDoctor. Answers after a minute with what was found, if a check takes longer."""
        if self._run is None or self._run.done():
            self._found = []
            self._run = asyncio.create_task(asyncio.to_thread(self._collect, self._found), name="doctor")
        run, found = self._run, self._found
        await asyncio.wait({run}, timeout=_LIMIT_S)
        if run.done():
            run.result()
        return {
            "Findings": [
                {"Name": each.name, "Level": str(each.level), "Text": each.text, "Remedy": each.remedy}
                for each in list(found)
            ],
            "Complete": run.done(),
        }

    def _collect(self, found: list[Finding]) -> None:
        found.extend(self._examine())
