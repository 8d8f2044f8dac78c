"""Gives seeded random ops different seeds per microbatch.

The kernel of a stateful random op generates numbers from its seed. A step has one copy of the kernel per microbatch,
all with the same seed, so all would draw the same numbers. The copies for the second and later microbatches therefore
get other seeds. Ops without a seed, and the stateless ops of Keras's layers, need no change.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import NodeDef
from tensorflow.core.framework import graph_pb2

_copies = itertools.count()
_STEP = 0x9E3779B1
"""Odd, so that multiples of it differ modulo 2^31."""
_SEEDED = frozenset(
    {
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoisson",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
        "RandomUniform",
        "RandomUniformInt",
        "TruncatedNormal",
    }
)


def draws_numbers(definition: graph_pb2.GraphDef) -> bool:
    """Return whether a graph, or a function that it calls, contains a random op with a seed.

    Args:
        definition: A GraphDef with its library.
    """
    return _is_seeded(definition.node) or bool(_calls(definition.node) & _drawing_functions(definition))


def vary_seeds(definition: graph_pb2.GraphDef, microbatch: int) -> list[Any]:
    """Change the seeds of a graph in place; the first microbatch keeps the seeds of the script.

    Returns:
        New function definitions, which the graph calls instead of the script's.
    """
    if microbatch == 0:
        return []
    drawing = _drawing_functions(definition)
    # Steps may share a function of the script: each gets its own copy, whose lifetime is that of the step.
    names = {name: f"{name}_microbatch_{microbatch}_{next(_copies)}" for name in drawing}
    made = []
    for function in list(definition.library.function):
        if function.signature.name in names:
            copy = definition.library.function.add()
            copy.CopyFrom(function)
            copy.signature.name = names[function.signature.name]
            _vary(copy.node_def, names, microbatch)
            made.append(copy)
    _vary(definition.node, names, microbatch)
    return made


def _vary(nodes: Iterable[NodeDef], names: dict[str, str], microbatch: int) -> None:
    for node in nodes:
        if _has_seed(node):
            node.attr["seed2"].i = (node.attr["seed2"].i + microbatch * _STEP) % (1 << 31) or 1
    for called in _called(nodes):
        if called.name in names:
            called.name = names[called.name]


def _drawing_functions(definition: graph_pb2.GraphDef) -> frozenset[str]:
    """Return the functions that contain a seeded random op, or call one that does."""
    calls = {function.signature.name: _calls(function.node_def) for function in definition.library.function}
    found = {function.signature.name for function in definition.library.function if _is_seeded(function.node_def)}
    while more := {name for name, called in calls.items() if called & found} - found:
        found |= more
    return frozenset(found)


def _calls(nodes: Iterable[NodeDef]) -> set[str]:
    return {called.name for called in _called(nodes) if called.name}


def _called(nodes: Iterable[NodeDef]) -> Iterator[Any]:
    """Yield the references of nodes to functions; their names can be set."""
    for node in nodes:
        for value in node.attr.values():
            yield from (value.func, *value.list.func)


def _is_seeded(nodes: Iterable[NodeDef]) -> bool:
    return any(_has_seed(node) for node in nodes)


def _has_seed(node: NodeDef) -> bool:
    return node.op in _SEEDED and bool(node.attr["seed"].i or node.attr["seed2"].i)
