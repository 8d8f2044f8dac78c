"""Replace Ray's placement by directories of this machine, in a service whose PYTHONPATH has this directory.

The setting `ray_address` names the directory of the simulated machines. Agents are real processes.
"""

import sys
import types
from pathlib import Path


def _placement(address: str, *, shares: object) -> object:
    del shares  # each instance has a machine of its own
    sys.path.append(str(Path(__file__).parents[3] / "packages/tidemill/tests/doubles"))
    from process_placement import ProcessPlacement

    return ProcessPlacement(Path(address))


_module = types.ModuleType("tidemill.executors.ray.placement")
_module.RayPlacement = _placement  # type: ignore[attr-defined]
sys.modules[_module.__name__] = _module
