"""A checkpoint to be restored: one bundle of the whole model, or one for each rank that saved it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.tensorflow.checkpoint.bundles import Bundle, exists

__all__ = ["Saved"]


@dataclass
class Saved:
    """The bundles of one checkpoint, in the order in which a rank looks into them."""

    name: str
    """What the user calls it: a path, or the part of it that is the same on all ranks."""
    prefixes: Sequence[Path]
    missing: list[Path] = field(default_factory=list)
    """Bundles that are not on this file system; that is an error only if something in them is needed."""
    _opened: dict[Path, tuple[Bundle, Any]] = field(default_factory=dict)

    @classmethod
    def of_ranks(cls, name: str, prefixes: Sequence[Path], *, first: int) -> Saved:
        """A checkpoint with a bundle per rank of the replica.

        Args:
            name: See `Saved.name`.
            prefixes: By rank of the replica that saved.
            first: The rank of the replica that restores; it looks into the bundle of that number first.
        """
        order = sorted(range(len(prefixes)), key=lambda rank: (rank != first, rank))
        here = [prefixes[rank] for rank in order if exists(prefixes[rank])]
        return cls(name, here, [prefixes[rank] for rank in order if prefixes[rank] not in here])

    def bundles(self) -> Iterator[tuple[Bundle, Any]]:
        """Each bundle with its graph of objects."""
        for prefix in self.prefixes:
            if prefix not in self._opened:
                bundle = Bundle(prefix)
                self._opened[prefix] = bundle, bundle.object_graph()
            yield self._opened[prefix]

    def close(self) -> None:
        """Let go of the files."""
        self._opened.clear()
