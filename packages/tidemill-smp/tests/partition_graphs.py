"""Graphs of units for the tests of the cut, and the best cut of small graphs by exhaustive search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions, evaluate
from smdistributed.modelparallel.tensorflow.partitioning.units import Edge, ModelOutput, Unit, UnitGraph


def chain(times: Sequence[float], parameter_bytes: Sequence[int] | None = None, size: int = 1000) -> UnitGraph:
    """Return units u0 -> u1 -> ...; a third of their time is the forward pass."""
    sizes = parameter_bytes or [1000] * len(times)
    units = tuple(
        Unit(name=f"u{i}", layer_path=f"u{i}", forward_us=t / 3, backward_us=t * 2 / 3, parameter_bytes=b)
        for i, (t, b) in enumerate(zip(times, sizes, strict=True))
    )
    edges = tuple(Edge(f"u{i}", f"u{i + 1}", size) for i in range(len(times) - 1))
    return UnitGraph(units, edges, (ModelOutput(f"u{len(times) - 1}", 40),))


def is_whole(graph: UnitGraph, inside: set[int]) -> bool:
    """Return whether units are connected by undirected edges."""
    links = [(graph.index[e.source], graph.index[e.target]) for e in graph.edges]
    reached = {min(inside)}
    while True:
        more = {b for a, b in links if a in reached} | {a for a, b in links if b in reached}
        if not (more & inside) - reached:
            return reached == inside
        reached |= more & inside


def is_legal(graph: UnitGraph, assignment: Sequence[int], options: CutOptions) -> bool:
    """Return whether every partition is non-empty, no edge points backward, and, if required, each is connected."""
    if set(assignment) != set(range(options.partitions)):
        return False
    if any(assignment[graph.index[e.source]] > assignment[graph.index[e.target]] for e in graph.edges):
        return False
    if not (options.contiguous and is_whole(graph, set(range(len(graph.units))))):
        return True
    return all(is_whole(graph, {i for i, p in enumerate(assignment) if p == part}) for part in set(assignment))


def all_cuts(graph: UnitGraph, options: CutOptions) -> Iterator[tuple[int, ...]]:
    """Yield every legal assignment by enumeration: no unit is on an earlier partition than its predecessors."""
    sources: list[list[int]] = [[] for _ in graph.units]
    for edge in graph.edges:
        sources[graph.index[edge.target]].append(graph.index[edge.source])

    def extend(begun: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(begun) == len(graph.units):
            yield begun
            return
        for part in range(max((begun[i] for i in sources[len(begun)]), default=0), options.partitions):
            yield from extend((*begun, part))

    return (assignment for assignment in extend(()) if is_legal(graph, assignment, options))


def measures(graph: UnitGraph, assignment: Sequence[int], options: CutOptions) -> tuple[int, int, int]:
    """Return the first, second and third objective."""
    result = evaluate(graph, assignment, options)
    time, size = max(result.time_ns), max(result.bytes)
    communication = sum(result.time_ns) - sum(result.compute_ns)
    return (time, size, communication) if options.optimize == "speed" else (size, time, communication)


def best(graph: UnitGraph, options: CutOptions) -> tuple[int, int, int]:
    """Return the least first objective, and within its slack the least second and third."""
    found = [measures(graph, assignment, options) for assignment in all_cuts(graph, options)]
    first = min(found)[0]
    within = [m for m in found if m[0] <= first + int(first * options.slack)]
    _, second, third = min(within, key=lambda m: m[1:])
    return first, second, third


@st.composite
def graphs(draw: st.DrawFn, *, most: int, shape: str = "any") -> UnitGraph:
    """Random graphs of units: a chain, a chain with up to four skips, or any graph."""
    count = draw(st.integers(3, most))
    # Deliberately skewed: most units are small, some are a hundred times as large.
    amount = st.sampled_from([0, 1, 3, 10, 40, 100, 400]) | st.integers(0, 1000)

    def unit(i: int) -> Unit:
        return Unit(
            name=f"u{i}",
            forward_us=draw(amount),
            backward_us=draw(amount),
            parameter_bytes=draw(amount) * 1000,
            slot_bytes=draw(amount) * 1000,
            activation_bytes=draw(amount) * 100,
        )

    def edge(a: int, b: int) -> Edge:
        return Edge(f"u{a}", f"u{b}", draw(amount) * 100, draw(st.sampled_from(["", "x"])))

    pairs: list[tuple[int, int]] = [(i, i + 1) for i in range(count - 1)]
    anywhere = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(lambda p: p[0] < p[1])
    if shape == "skips":
        pairs += draw(st.lists(anywhere, max_size=4))
    elif shape == "any":
        pairs = draw(st.lists(anywhere, max_size=2 * count))
    edges = {(e.source, e.target, e.tensor): e for e in (edge(a, b) for a, b in pairs)}
    outputs = (ModelOutput(f"u{count - 1}", draw(amount) * 10),)
    return UnitGraph(tuple(unit(i) for i in range(count)), tuple(edges.values()), outputs, draw(amount))


def options(**fixed: Any) -> st.SearchStrategy[CutOptions]:
    """Random options, including the costs of communication."""
    choices: dict[str, st.SearchStrategy[Any]] = {
        "partitions": st.integers(2, 3),
        "microbatches": st.sampled_from([1, 2, 8]),
        "optimize": st.sampled_from(["memory", "speed"]),
        "pipeline": st.sampled_from(["interleaved", "simple"]),
        "contiguous": st.booleans(),
        "message_us": st.sampled_from([0.0, 10.0, 100.0]),
        "byte_us": st.sampled_from([0.0, 0.0003, 0.01]),
    }
    return st.builds(CutOptions, **{**choices, **{name: st.just(value) for name, value in fixed.items()}})
