"""Packages for the code of a multi-model endpoint's models: for all models, and for each model by itself."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.code import (
    OVERLAY_VARIABLE,
    UserCode,
    install_packages,
    names_packages,
    python_of,
    required_packages,
)
from tidemill_serving.multi_model.directory import remove


class ModelPackages:
    """Installs packages in this endpoint only, before the code that needs them is imported.

    Args:
        common: The requirements.txt for all models, which need not exist.
        environment: Environment variables of the server.
    """

    def __init__(self, common: Path, environment: Mapping[str, str]) -> None:
        self._common = common
        self._environment = environment
        self._shared: asyncio.Future[str] | None = None
        self._own: set[str] = set()

    async def install(self, code: UserCode) -> UserCode:
        """Return the code with an interpreter that has the packages for all models and those of its requirements.txt.

        Raises:
            StartFailed: The packages cannot be installed; pip's output is in the log.
        """
        own = required_packages(code)
        if own is None or own == self._common:
            return replace(code, python=await self._common_python())
        files = [self._common, own] if names_packages(self._common) else [own]
        python = await asyncio.to_thread(install_packages, files)
        self._own.add(python)
        return replace(code, python=python)

    def remove(self, code: UserCode) -> None:
        """Remove the packages that `install` installed for this code alone, if any.

        Args:
            code: The code of a model that was unloaded.
        """
        if code.python in self._own:
            self._own.remove(code.python)
            remove(Path(code.python).parents[1])

    async def _common_python(self) -> str:
        """Return the interpreter with the packages for all models, which are installed once."""
        if self._environment.get(OVERLAY_VARIABLE) or not names_packages(self._common):
            return python_of(self._environment)
        if self._shared is None:
            self._shared = asyncio.ensure_future(asyncio.to_thread(install_packages, [self._common]))
        try:
            return await asyncio.shield(self._shared)  # other models wait for it too
        except StartFailed:
            self._shared = None  # the next model tries again
            raise
