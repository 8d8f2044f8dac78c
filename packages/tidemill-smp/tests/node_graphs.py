"""Graphs built by hand or by hypothesis, for tests without TensorFlow graphs, and an interpreter for them."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.engine.schedule import Schedule
from smdistributed.modelparallel.tensorflow.engine.segments import SegmentCut


class Graph:
    """Nodes in the order in which they are added."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(
        self,
        name: str,
        *inputs: int,
        type: str = "Op",
        controls: Sequence[int] = (),
        handles: Sequence[int] = (),
        work: float = 1.0,
        stateful: bool = False,
    ) -> int:
        index = len(self.nodes)
        taken = tuple((source, 0) for source in (*inputs, *handles))
        held = tuple((source, 0) for source in handles)
        self.nodes.append(Node(index, name, type, taken, tuple(controls), held, work, stateful))
        return index

    def given(self, name: str) -> int:
        return self.add(name, type="Placeholder", work=0.0)

    def constant(self, name: str) -> int:
        return self.add(name, type="Const", work=0.0)


def value_of(nodes: Sequence[Node]) -> list[int]:
    """Return the value of each node: a number that depends on all its inputs."""
    values: list[int] = []
    for node in nodes:
        values.append(_compute(node, [values[source] for source, _ in node.inputs]))
    return values


def _compute(node: Node, inputs: Sequence[int]) -> int:
    return hash((node.name, *inputs))


def simulate(
    nodes: Sequence[Node], cut: SegmentCut, schedule: Schedule, num_partitions: int
) -> list[dict[Output, int]]:
    """Simulate a step: each rank runs its tasks in order, and waits for messages.

    Returns:
        The values of each partition for the last microbatch, at the end.

    Raises:
        AssertionError: If the ranks wait for each other, or a segment lacks an input.
    """
    tasks = [list(schedule.of(partition)) for partition in range(num_partitions)]
    held: dict[tuple[int, int], dict[Output, int]] = {}
    sent: dict[tuple[int, int, Output], int] = {}
    placeholders = {(node.index, 0): _compute(node, []) for node in nodes if node.type == "Placeholder"}
    segments = [cut.of(partition) for partition in range(num_partitions)]
    while any(tasks):
        moved = False
        for partition in range(num_partitions):
            while tasks[partition]:
                task = tasks[partition][0]
                values = held.setdefault((partition, task.microbatch), dict(placeholders))
                segment = segments[partition][task.level]
                incoming = {m.output for m in cut.messages if m.target == partition and m.output in segment.inputs}
                ready = {output: sent.get((partition, task.microbatch, output)) for output in incoming - set(values)}
                if None in ready.values():
                    break
                values |= {output: value for output, value in ready.items() if value is not None}
                _run_segment(nodes, segment, values)
                for message in cut.messages:
                    made = cut.levels.get((partition, message.output[0]))
                    if message.source == partition and made == task.level:
                        sent[message.target, task.microbatch, message.output] = values[message.output]
                tasks[partition].pop(0)
                moved = True
        assert moved, f"the ranks wait for each other: {[line[:1] for line in tasks]}"
    last = max(microbatch for _, microbatch in held) if held else 0
    for message in cut.messages:
        values = held.setdefault((message.target, last), dict(placeholders))
        values[message.output] = sent[message.target, last, message.output]
    return [held.get((partition, last), dict(placeholders)) for partition in range(num_partitions)]


def _run_segment(nodes: Sequence[Node], segment: Any, values: dict[Output, int]) -> None:
    local = {output: values[output] for output in segment.inputs}
    for index in segment.nodes:
        local[index, 0] = _compute(nodes[index], [local[source] for source in nodes[index].inputs])
    values |= {output: local[output] for output in segment.outputs}


@st.composite
def owned_graphs(draw: Any) -> tuple[list[Node], list[int], int, list[tuple[Output, int]]]:
    """Nodes with random owners, and random results."""
    num_partitions = draw(st.integers(1, 4))
    graph, owners = Graph(), []
    for number in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["Placeholder", "Const", "Op", "Op", "Op", "Random"]))
        earlier = st.integers(0, number - 1)
        count = 0 if number == 0 or kind in ("Placeholder", "Const") else draw(st.integers(0, 3))
        inputs = [draw(earlier) for _ in range(count)]
        controls = [draw(earlier)] if number and kind == "Op" and draw(st.integers(0, 9)) == 0 else []
        name = f"gradient_tape/{number}" if draw(st.booleans()) else f"forward/{number}"
        graph.add(name, *inputs, type=kind, controls=controls, stateful=kind == "Random")
        free = kind in ("Placeholder", "Const")
        owners.append(ALL if free else draw(st.integers(ALL, num_partitions - 1)))
        if not free and owners[-1] == ALL and kind == "Random":
            owners[-1] = 0
    wanted = draw(st.lists(st.integers(0, len(owners) - 1), min_size=1, max_size=4))
    results = [((index, 0), draw(st.sampled_from([ALL, owners[index]]))) for index in wanted]
    return graph.nodes, owners, num_partitions, results
