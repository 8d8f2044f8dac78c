"""Cut a flat graph into three regions: before, in and after the compiled part.

XLA has no kernels for some ops of ordinary training steps: the iterator's next element, assertions, prints, and the ops
with which Keras packs results. Such ops run before the compiled part if the step needs their results, otherwise after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.framework import kernels

from tidemill_tensorflow.compiler.background import first_compilation
from tidemill_tensorflow.compiler.graphs.devices import INPUT_OPS, devices_of, exchanges, on_no_device, shared
from tidemill_tensorflow.compiler.graphs.nodes import (
    FlatGraph,
    NotCompilable,
    Regions,
    communicates,
    data_inputs,
    has_effect,
    is_of_gradient,
    is_read,
    is_write,
    node_of,
    reach,
    region_of,
    users_of,
)
from tidemill_tensorflow.compiler.graphs.random_numbers import REPLACED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_EFFECTS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2", "Print"})
"""Ops that XLA drops silently. They run outside of the compiled part."""
_OUTSIDE_WORLD = frozenset({"XlaCallModule", "XlaRecv", "XlaSend"})
"""Ops that XLA compiles, but that may have effects outside of the graph: a compiled step first runs on copies."""
_PLAIN_INPUTS = frozenset({"Placeholder", "Const", "NoOp"})
_COPIES = frozenset({"ConcatV2", "ExpandDims", "Identity", "IdentityN", "Pack", "Reshape"})
_FUNCTIONAL = ("then_branch", "else_branch", "cond", "body", "f", "branches")


def cut(flat: FlatGraph) -> Regions:
    """Cut a flat graph.

    Raises:
        NotCompilable: The step has an op without an XLA kernel between compilable ops, or communicates before the
            gradients.
    """
    nodes = {node.name: node for node in flat.graph_def.node}
    functions = {function.signature.name: function for function in flat.graph_def.library.function}
    outside = {name for name, node in nodes.items() if reason_outside(node, functions) is not None}
    users = users_of(nodes.values())
    inputs = {name: data_inputs(node) for name, node in nodes.items()}
    arguments = set(flat.inputs)
    exchanging = exchanges(nodes)
    before: set[str] = set()
    after = _from_communication(nodes, exchanging)
    for name in outside - after:
        below = reach([name], users)
        if not any(has_effect(nodes[other].op) for other in below - outside):
            after |= below
        else:
            above = reach([name], inputs)
            _check_free_of_state(nodes, name, above - {name}, functions)
            before |= above
    after -= before
    if len(devices_of(nodes.values())) > 1:
        for name in _needed_by_replicas(nodes, exchanging, before | after):
            above = reach([name], inputs)
            _check_before_replicas(nodes, name, above, functions)
            before |= above
        left = {name: node for name, node in nodes.items() if name not in before | after | arguments}
        after |= {name for name in on_no_device(left) if not has_effect(nodes[name].op)}
    step = set(nodes) - before - after - arguments
    for name, node in nodes.items():
        if name in step and communicates(node):
            raise NotCompilable(f"it communicates before the gradients ({node.op}, node {name})")
    return Regions(
        before=region_of(
            flat, nodes, before - arguments, wanted_by=[nodes[name] for name in nodes if name not in before]
        ),
        step=region_of(flat, nodes, step, wanted_by=[nodes[name] for name in after]),
        after=region_of(flat, nodes, after, wanted_by=[]),
    )


def _needed_by_replicas(
    nodes: Mapping[str, NodeDef], exchanging: Mapping[str, set[str]], others: set[str]
) -> Iterator[str]:
    """Yield the nodes that have to run before the replicas of a step, because several devices use their values.

    Args:
        exchanging: Result of `exchanges`.
        others: Nodes that run before or after the step in any case.
    """
    needed = {each for name, sources in exchanging.items() if name not in others for each in sources} - others
    yield from sorted(needed)
    yield from sorted(shared({name: node for name, node in nodes.items() if name not in others | needed}))


def _from_communication(nodes: Mapping[str, NodeDef], exchanging: Mapping[str, set[str]]) -> set[str]:
    """Return the nodes that communicate, their direct and indirect successors, and the nodes that only these use.

    Nodes that exchange values between devices count as communication.

    Nodes that only these use are, for example, reads of optimizer state. In the compiled part they would become extra
    outputs. A read is not moved if a node before the communication writes the same variable or waits for the read.
    Nodes that depend on the input are only moved if they copy values, as when gradients are packed into one tensor:
    XLA would copy element by element.
    """
    successors = users_of(nodes.values(), control=True)
    after = reach(_reductions(nodes, exchanging), successors)
    if not after:
        return after
    inputs = {name for name, node in nodes.items() if node.op == "Placeholder"}
    variables = {node.input[0] for name, node in nodes.items() if name not in after and is_write(node)}
    data = [name for name in inputs if nodes[name].attr["dtype"].type != tf.resource.as_datatype_enum]
    data += [name for name, node in nodes.items() if has_effect(node.op) and not is_read(node)]
    from_input = reach(data, successors)
    waiting = list(after)
    while waiting:
        for reference in nodes[waiting.pop()].input:
            name = node_of(reference)
            node = nodes[name]
            if name in after or name in inputs or (is_read(node) and node.input[0] in variables):
                continue
            if name in from_input and node.op not in _COPIES:
                continue
            if all(user in after for user in successors.get(name, ())):
                after.add(name)
                waiting.append(name)
    return after


def _reductions(nodes: Mapping[str, NodeDef], exchanging: Mapping[str, set[str]]) -> list[str]:
    """Return the nodes that communicate, except those of the input pipeline, on which the gradients depend.

    The input pipeline communicates because the workers of a strategy agree in every step whether a batch is left.
    """
    gradients = [name for name in nodes if is_of_gradient(name)]
    below = reach(gradients, users_of(nodes.values()))
    above = reach(gradients, {name: data_inputs(node) for name, node in nodes.items()})
    sources = {**exchanging, **{name: {name} for name, node in nodes.items() if communicates(node)}}
    return [name for name, found in sources.items() if found & below or name not in above]


def reason_outside(node: NodeDef, functions: Mapping[str, FunctionDef]) -> str | None:
    """Return the op that prevents the compilation of a node, or None."""
    if node.op == "Const" and node.attr["dtype"].type == tf.string.as_datatype_enum:
        # The text of an assertion. XLA has no strings, so the compiled part cannot return one.
        return "Const of strings"
    if node.op in _PLAIN_INPUTS or node.op in REPLACED:
        return None
    if node.op in _EFFECTS | _OUTSIDE_WORLD or not _has_xla_kernel(node.op):
        return str(node.op)
    reasons = (reason_outside(inner, functions) for inner in _inner_nodes(node, functions))
    return next((reason for reason in reasons if reason is not None), None)


def _inner_nodes(node: NodeDef, functions: Mapping[str, FunctionDef]) -> Iterator[NodeDef]:
    """Yield the nodes of the functions that a node calls."""
    values = [node.attr[key] for key in _FUNCTIONAL if key in node.attr]
    for callee in [each for value in values for each in (value.func, *value.list.func)]:
        if callee.name in functions:
            yield from functions[callee.name].node_def


_KERNELS: dict[str, bool] = {}


def _has_xla_kernel(op: str) -> bool:
    if not _KERNELS:
        first_compilation(tf.function(lambda: tf.constant(1) + 1, jit_compile=True))  # registers XLA's kernels
        _KERNELS["AddV2"] = True
    if op not in _KERNELS:
        found = kernels.get_registered_kernels_for_op(op)
        _KERNELS[op] = any(kernel.device_type == "XLA_CPU_JIT" for kernel in found.kernel)
    return _KERNELS[op]


def _check_free_of_state(
    nodes: Mapping[str, NodeDef], name: str, above: set[str], functions: Mapping[str, FunctionDef]
) -> None:
    for other in above:
        if not _is_input(nodes[other], functions):
            inner = reason_outside(nodes[name], functions)
            text = "" if inner == nodes[name].op else f" inside a {nodes[name].op}"
            raise NotCompilable(f"XLA has no kernel for {inner}{text} (node {name}), and the step needs its result")


def _check_before_replicas(
    nodes: Mapping[str, NodeDef], name: str, above: set[str], functions: Mapping[str, FunctionDef]
) -> None:
    for other in above:
        if not _is_input(nodes[other], functions):
            raise NotCompilable(
                f"before the gradients, its replicas on several devices use a common value ({nodes[name].op}, node"
                f" {name}) that depends on state ({nodes[other].op})"
            )


def _is_input(node: NodeDef, functions: Mapping[str, FunctionDef]) -> bool:
    """Return whether a node may run before the step: its only state is an iterator, or it communicates."""
    if node.op.startswith(INPUT_OPS) or communicates(node):
        return True
    if node.op in ("If", "StatelessIf"):
        names = [node.attr[key].func.name for key in ("then_branch", "else_branch")]
        return all(_is_input(inner, functions) for name in names for inner in functions[name].node_def)
    return not has_effect(node.op)
