"""Jobs under MPI: `supervisor` runs mpirun and owns the ranks; MPI starts `entry` in place of each rank."""

from __future__ import annotations

__all__: list[str] = []
