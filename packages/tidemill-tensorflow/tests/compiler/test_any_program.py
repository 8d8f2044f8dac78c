"""Programs of any form, taken apart, against the same programs in plain TensorFlow: results, variables, gradients."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.graphs.fingerprints import fingerprint
from tidemill_tensorflow.compiler.graphs.flat_graphs import flatten
from tidemill_tensorflow.compiler.graphs.nodes import NotCompilable, node_of, reach, users_of
from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart

Instruction = tuple[Any, ...]
places = st.integers(0, 4)
simple = st.one_of(
    st.tuples(st.sampled_from(("add", "multiply", "concat rows")), places, places),
    st.tuples(st.sampled_from(("tanh", "softmax", "half of the rows", "identity")), places),
    st.tuples(st.just("constant"), st.integers(-3, 3)),
    st.tuples(st.just("read"), st.integers(0, 1)),
    st.tuples(st.sampled_from(("assign", "assign_add")), st.integers(0, 1), places),
    st.tuples(st.just("check"), places),
)
programs = st.recursive(
    st.lists(simple, min_size=1, max_size=4),
    lambda inner: st.lists(
        simple
        | st.tuples(st.sampled_from(("call", "call twice")), inner, places)
        | st.tuples(st.just("branch"), inner, places)
        | st.tuples(st.just("loop"), inner, places),
        min_size=1,
        max_size=4,
    ),
    max_leaves=8,
)


FEW = settings(max_examples=10, phases=(Phase.explicit, Phase.generate))
"""Each program is traced and taken apart, and a failing one is shown as it is: to find a smaller one takes minutes."""


class Program(tf.Module):
    """A program over two variables and a batch of rows of 3 numbers.

    Args:
        instructions: What it does, in order; each adds a tensor to a list, and names earlier ones by their places.
    """

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        super().__init__()
        self.state = [tf.Variable(tf.linspace(0.0, 1.0, 3)), tf.Variable(tf.linspace(1.0, -1.0, 3))]
        self._instructions = instructions

    def run(self, batch: Any) -> Any:
        """Return the sum of the last results."""
        with tf.GradientTape() as tape:
            values = self._perform(self._instructions, batch)
            loss = tf.add_n([tf.reduce_mean(each) for each in values[-3:]])
        gradients = tape.gradient(loss, self.state, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        return [loss, values[-1], *gradients]

    def _perform(self, instructions: Sequence[Instruction], batch: Any) -> list[Any]:
        values = [batch]
        for name, *given_ in instructions:
            if name in ("call", "call twice", "branch", "loop"):
                values.append(self._inner(name, given_[0], values[given_[1] % len(values)]))
            elif name == "constant":
                values.append(tf.fill([2, 3], float(given_[0])))
            elif name == "read":
                values.append(tf.reshape(self.state[given_[0]], [1, 3]) * 1.0)
            elif name in ("assign", "assign_add"):
                mean = tf.tanh(tf.reduce_mean(values[given_[1] % len(values)], 0))
                getattr(self.state[given_[0]], name)(mean)
            elif name == "check":
                value = values[given_[0] % len(values)]
                tf.debugging.assert_all_finite(value, "a value that is no number")
            else:
                values.append(combined(name, [values[place % len(values)] for place in given_]))
        return values

    def _inner(self, kind: str, instructions: Sequence[Instruction], value: Any) -> Any:
        def body(value: Any) -> Any:
            return rows_of(self._perform(instructions, value)[-1])

        if kind == "branch":
            return tf.cond(tf.reduce_sum(value) > 0.0, lambda: body(value), lambda: rows_of(value) * 0.5)
        if kind == "loop":
            start = (0, rows_of(value))
            return tf.while_loop(lambda i, _: i < 2, lambda i, each: (i + 1, body(each)), start)[1]
        function = tf.function(body, autograph=False)
        called = function(value)
        return called if kind == "call" else function(called)


def rows_of(value: Any) -> Any:
    """Return two rows, so that branches and loops have one shape."""
    return tf.ensure_shape(tf.concat([value, value], 0)[:2], [2, 3])


def combined(name: str, values: list[Any]) -> Any:
    if name in ("tanh", "softmax", "identity"):
        return {"tanh": tf.tanh, "softmax": tf.nn.softmax, "identity": tf.identity}[name](values[0])
    if name == "half of the rows":
        return values[0][: tf.shape(values[0])[0] // 2 + 1]
    first, second = (rows_of(value) for value in values)
    return {"add": first + second, "multiply": first * second, "concat rows": tf.concat([first, second], 0)}[name]


def traced(instructions: Sequence[Instruction]) -> tuple[Program, Any]:
    program = Program(instructions)
    function = tf.function(program.run, autograph=False, input_signature=[tf.TensorSpec([None, 3])])
    return program, function.get_concrete_function()


def performed(parts: Parts, arguments: list[Any]) -> list[Any]:
    """Run the three parts of a program without XLA."""
    slots = [*arguments, None]
    slots += parts.before(*[slots[index] for index in parts.reads[0]])
    slots += parts.plain(*[slots[index] for index in parts.reads[1]])
    slots += parts.after(*[slots[index] for index in parts.reads[2]])
    return [slots[index] for index in parts.results]


BATCHES = [
    np.linspace(-1, 1, 3 * rows, dtype="float32").reshape(rows, 3) + shift for rows, shift in ((2, 0.5), (3, -1))
]


def is_documented(instructions: Sequence[Instruction], refusal: str) -> bool:
    """Return whether a program is one that the compiler refuses: the step needs a branch or loop that checks a value.

    XLA has no kernel for the check, and only XLA's part can have the rest of the branch.
    """
    inner = [each for each in instructions if each[0] in ("branch", "loop", "call", "call twice")]
    checks = any(name == "check" for each in inner for name, *_ in flattened(each[1]))
    pattern = r"XLA has no kernel for CheckNumerics\w* inside a \w+ \(node [^)]*\), and the step needs its result"
    return checks and re.fullmatch(pattern, refusal) is not None


def flattened(instructions: Sequence[Instruction]) -> list[Instruction]:
    nested = [each[1] for each in instructions if isinstance(each[-2], list)]
    return [*instructions, *(each for inner in nested for each in flattened(inner))]


@FEW
@given(programs)
def test_a_program_in_parts_computes_assigns_and_derives_what_it_does_whole(instructions: list[Instruction]) -> None:
    program, whole = traced(instructions)
    twin, other = traced(instructions)
    try:
        parts = take_apart(other, name="program")
    except NotCompilable as error:
        assert is_documented(instructions, str(error)), error
        return
    for batch in BATCHES:
        wanted = whole(tf.constant(batch))
        found = performed(parts, [tf.constant(batch), *other.captured_inputs])
        for one, reference in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, reference, rtol=1e-5, atol=1e-6)
        for one, reference in zip(twin.state, program.state, strict=True):
            np.testing.assert_allclose(one, reference, rtol=1e-5, atol=1e-6)


@FEW
@given(programs)
def test_a_flat_graph_has_no_calls_and_each_of_its_inputs_comes_from_a_node_before(
    instructions: list[Instruction],
) -> None:
    _, concrete = traced(instructions)
    flat = flatten(concrete)
    nodes = {node.name: node for node in flat.graph_def.node}
    assert len(nodes) == len(flat.graph_def.node), "names are unique"
    assert not {"PartitionedCall", "StatefulPartitionedCall"} & {node.op for node in nodes.values()}
    assert set(flat.inputs) <= nodes.keys()
    assert {node_of(each) for each in flat.outputs} <= nodes.keys()
    inputs = {name: [node_of(each) for each in node.input] for name, node in nodes.items()}
    for name, each in inputs.items():
        assert set(each) <= nodes.keys(), name
        assert name not in reach(each, inputs), "no circle"
    users = users_of(nodes.values(), control=True)
    assert {(name, user) for name, all_ in users.items() for user in all_} == {
        (name, user) for user, each in inputs.items() for name in each
    }
    used = {value.func.name for node in nodes.values() for value in node.attr.values() if value.HasField("func")} | {
        name
        for function in flat.graph_def.library.function
        for node in function.node_def
        for name in (value.func.name for value in node.attr.values() if value.HasField("func"))
    }
    assert {function.signature.name for function in flat.graph_def.library.function} == used


def digest(program: list[Instruction]) -> str:
    return fingerprint(traced(program)[1].graph.as_graph_def())


@settings(FEW, max_examples=5)
@given(programs)
def test_a_digest_is_that_of_the_program_and_not_of_its_names(instructions: list[Instruction]) -> None:
    first = digest(instructions)
    assert digest(instructions) == first, "a second trace has other numbers in its names"
    assert digest([*instructions, ("constant", 1)]) != first


def test_the_values_of_a_program_count_in_its_digest() -> None:
    assert len({digest([("constant", value), ("add", 0, 1)]) for value in (1, 2, 1001)}) == 3


@pytest.mark.parametrize("kind", ["branch", "loop"])
def test_a_check_in_a_branch_whose_result_the_step_needs_is_refused_by_name(kind: str) -> None:
    program: list[Instruction] = [("read", 0), (kind, [("check", 0), ("tanh", 0)], 1), ("assign", 0, 2)]
    with pytest.raises(NotCompilable) as refused:
        take_apart(traced(program)[1], name="refused")
    assert is_documented(program, str(refused.value)), refused.value
    assert not is_documented([("tanh", 0)], str(refused.value)), "without a check no program is refused"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_check_of_the_program_fails_in_parts_as_it_does_whole(value: float) -> None:
    _, whole = traced([("check", 0), ("tanh", 0)])
    parts = take_apart(whole, name="checked")
    batch = tf.constant([[value, 0.0, 0.0]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="a value that is no number"):
        whole(batch)
    with pytest.raises(tf.errors.InvalidArgumentError, match="a value that is no number"):
        performed(parts, [batch, *whole.captured_inputs])
