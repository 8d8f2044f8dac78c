"""Measure the environments on the disk."""

import os
from collections.abc import Callable
from pathlib import Path

_BLOCK_BYTES = 512


class LayerSizes:
    """Measures complete layers once: their files never change."""

    def __init__(self) -> None:
        self._known: dict[Path, int] = {}

    def of(self, *layers: Path, stopped: Callable[[], bool] = lambda: False) -> int:
        """Return the size of layers on the disk. Blocks while a layer is measured for the first time.

        Files shared with the package cache count, because it is unknown who else uses them.

        Args:
            *layers: Directories of complete layers.
            stopped: Whether to give up; then the sizes measured so far count.
        """
        for layer in layers:
            if layer not in self._known and not stopped():
                self._known[layer] = _measured(layer)
        return sum(self._known.get(layer, 0) for layer in layers)


def _measured(directory: Path) -> int:
    total = 0
    for parent, _, names in os.walk(directory):
        total += sum(os.lstat(os.path.join(parent, name)).st_blocks for name in names) * _BLOCK_BYTES  # noqa: PTH118
    return total
