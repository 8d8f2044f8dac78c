"""Renew the copies of shared source before the distribution is built."""

import runpy
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])


class SharedSourceHook(BuildHookInterface):
    """Changes nothing: hatchling wants a hook, and the copies are renewed when it reads this file."""
