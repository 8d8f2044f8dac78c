"""Renew the copies of shared source before they are packed."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CopiesHook(BuildHookInterface):
    """Copies what the runtime shares with the service; a source archive contains the copies."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Run in a checkout only."""
        copies = Path(self.root).parents[1] / "shared" / "copies.py"
        if copies.is_file():
            runpy.run_path(str(copies))["main"]([self.root])
