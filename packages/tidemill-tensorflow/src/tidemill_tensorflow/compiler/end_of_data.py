"""Ops of a step that TensorFlow runs although the data has ended.

A `fit` on a data set of unknown length calls its step once more than there are batches. The iterator then has no next
element, and the call fails, but TensorFlow has run the ops that do not depend on the element. In Keras 3, these advance
the optimizer's number of iterations and the seeds of dropout. Steps in parts run the same ops, so that they continue
with the numbers of the script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tidemill_tensorflow.compiler.flat_graphs import full_name, node_of
from tidemill_tensorflow.compiler.groups import communicates
from tidemill_tensorflow.compiler.random_numbers import SIZES
from tidemill_tensorflow.compiler.regions import Region, is_write, reach, region_of, users_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidemill_tensorflow.compiler.flat_graphs import FlatGraph

__all__ = ["EndOfData"]

_TAKES = frozenset({"IteratorGetNext", "IteratorGetNextSync"})
"""Ops that fail if there is no next element."""


class EndOfData:
    """What a call of a function does although the iterator has no next element.

    Args:
        flat: The graph of the function.
        build: Builds a plain callable of a region; the second argument is its name.
    """

    def __init__(self, flat: FlatGraph, build: Callable[[Region, str], Callable[..., list[Any]]]) -> None:
        self._slots = [f"{name}:0" for name in flat.inputs]
        nodes = {node.name: node for node in flat.graph_def.node}
        users = users_of(nodes.values(), control=True)
        waiting = reach([name for name, node in nodes.items() if node.op in _TAKES], users)
        effects = [name for name, node in nodes.items() if name not in waiting and is_write(node)]
        self._effects: tuple[Callable[..., list[Any]], list[int]] | None = None
        if waiting and effects and not any(communicates(nodes[name]) for name in effects):
            region = _region(flat, nodes, effects, [])
            self._effects = build(region, "without_batch"), self._reads(region)
        self._sizes: tuple[Callable[..., list[Any]], list[int], list[int]] | None = None
        sizes = [full_name(reference) for reference in nodes[SIZES].input] if SIZES in nodes else []
        own = [node_of(size) for size in sizes if node_of(size) not in waiting]
        if waiting and own:
            region = _region(flat, nodes, own, [nodes[SIZES]])
            positions = [sizes.index(output) for output in region.outputs]
            self._sizes = build(region, "sizes_without_batch"), self._reads(region), positions
        self._random_ops = len(sizes)

    def run(self, slots: Sequence[Any]) -> None:
        """Run the ops with effects.

        Args:
            slots: The flat arguments, the captures and the state of the stateful random ops, if there are any.
        """
        if self._effects is not None:
            function, reads = self._effects
            function(*[slots[index] for index in reads])

    def sizes(self, slots: Sequence[Any]) -> Any:
        """Return the number of values that each stateful random op draws, as `Draws.add` takes them."""
        found = np.zeros(self._random_ops, np.int64)
        if self._sizes is not None:
            function, reads, positions = self._sizes
            found[positions] = [int(size) for size in function(*[slots[index] for index in reads])]
        return found

    def _reads(self, region: Region) -> list[int]:
        return [self._slots.index(tensor) for tensor in region.inputs]


def _region(flat: FlatGraph, nodes: Mapping[str, Any], names: Iterable[str], wanted_by: list[Any]) -> Region:
    """Return the region of some nodes and of all their inputs."""
    inputs = {name: [node_of(reference) for reference in node.input] for name, node in nodes.items()}
    return region_of(flat, nodes, reach(names, inputs) - set(flat.inputs), wanted_by=wanted_by)
