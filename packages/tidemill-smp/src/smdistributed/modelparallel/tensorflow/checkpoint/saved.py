"""A checkpoint to restore: one bundle of the whole model, or one bundle per rank that saved it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smdistributed.modelparallel.tensorflow.checkpoint.bundles import Bundle, exists
from smdistributed.modelparallel.tensorflow.partitioning.automatic import Decision


@dataclass
class Saved:
    """The bundles of one checkpoint, in the order in which a rank searches them."""

    name: str
    """Name for messages: a path, or the part of it that is the same on all ranks."""
    prefixes: Sequence[Path]
    missing: list[Path] = field(default_factory=list)
    """Bundles that are not on this file system, which is an error only if one of their values is needed."""
    cuts: Sequence[Decision] = ()
    """Automatic placement of each model; see `Commit.cuts`."""
    _opened: dict[Path, tuple[Bundle, Any]] = field(default_factory=dict)

    @classmethod
    def of_ranks(cls, name: str, prefixes: Sequence[Path], *, first: int, cuts: Sequence[Decision] = ()) -> Saved:
        """Return a checkpoint with one bundle per rank of the replica.

        Args:
            name: See `Saved.name`.
            first: The `mp_rank` of the restoring process, which searches the bundle of that number first.
            cuts: See `Saved.cuts`.
        """
        order = sorted(range(len(prefixes)), key=lambda rank: (rank != first, rank))
        here = [prefixes[rank] for rank in order if exists(prefixes[rank])]
        return cls(name, here, [prefixes[rank] for rank in order if prefixes[rank] not in here], cuts)

    def bundles(self) -> Iterator[tuple[Bundle, Any]]:
        """Yield each bundle with its object graph."""
        for prefix in self.prefixes:
            if prefix not in self._opened:
                bundle = Bundle(prefix)
                self._opened[prefix] = bundle, bundle.object_graph()
            yield self._opened[prefix]

    def close(self) -> None:
        """Close the files."""
        self._opened.clear()
