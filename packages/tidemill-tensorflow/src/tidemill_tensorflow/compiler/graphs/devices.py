"""Find the device of each node of a step that runs on several devices, one replica of the model on each."""

from __future__ import annotations

import functools
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

import tensorflow as tf

from tidemill_tensorflow.compiler.graphs.nodes import data_inputs, node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

INPUT_OPS = ("Placeholder", "IteratorGetNext", "Optional")
"""Name prefixes of the ops that pass on the function's arguments and the elements of its iterators."""


def devices_of(nodes: Iterable[NodeDef]) -> list[str]:
    """Return the full names of the devices on which a script placed nodes, sorted."""
    return sorted({_full(node.device) for node in nodes if node.device})


def place_beside_variables(concrete: ConcreteFunction, graph_def: GraphDef) -> None:
    """Place the ops on variables that are on no device on the device of their variable, as TensorFlow does.

    Args:
        graph_def: Its flat graph, which is changed.
    """
    captures = concrete.graph.captures
    devices = {inner.op.name: outer.device for outer, inner in captures if inner.dtype == tf.resource}
    for node in graph_def.node:
        if not node.device and node.input:
            node.device = devices.get(node_of(node.input[0]), "")


def exchanges(nodes: Mapping[str, NodeDef]) -> dict[str, set[str]]:
    """Return the nodes that combine values of several devices, or use a value of another device.

    Returns:
        By node: the node itself if it is on no device, else the nodes whose values come from another device.
    """
    return _made_on(nodes)[1] if len(devices_of(nodes.values())) > 1 else {}


def shared(nodes: Mapping[str, NodeDef]) -> set[str]:
    """Return the nodes, except constants, that the script placed on no device, and that several devices use."""
    return {name for name, devices in _used_on(nodes).items() if len(devices) > 1 and not _is_anywhere(nodes[name])}


def on_no_device(nodes: Mapping[str, NodeDef]) -> set[str]:
    """Return the nodes that the script placed on no device, and whose values no device uses."""
    return {name for name, devices in _used_on(nodes).items() if not devices}


def by_device(nodes: Mapping[str, NodeDef]) -> dict[str, set[str]]:
    """Return the nodes of each device. Each device that uses a constant has it.

    Args:
        nodes: Nodes without `exchanges` and without `shared` nodes.
    """
    names = devices_of(nodes.values())
    found: dict[str, set[str]] = {device: set() for device in names}
    for name, devices in _used_on(nodes).items():
        for device in devices or names[:1]:
            found[device].add(name)
    return {device: own for device, own in found.items() if own}


def _made_on(nodes: Mapping[str, NodeDef]) -> tuple[dict[str, frozenset[str]], dict[str, set[str]]]:
    """Return, for each node, its own device, or else the devices of the values that it uses; and the `exchanges`."""
    found: dict[str, frozenset[str]] = {}
    exchanging: dict[str, set[str]] = {}
    for name in _order(nodes):
        inputs = [each for each in data_inputs(nodes[name]) if each in nodes]
        own, others = _own(nodes[name]), frozenset().union(*(found[each] for each in inputs))
        found[name] = own or (others if len(others) < 2 and not _is_anywhere(nodes[name]) else frozenset())
        if len(own | others) > 1:
            exchanging[name] = {each for each in inputs if found[each] - own} if own else {name}
    return found, exchanging


def _used_on(nodes: Mapping[str, NodeDef]) -> dict[str, frozenset[str]]:
    """Return, for each node, the devices from `_made_on`, or else the devices of the nodes that use its values."""
    found, _ = _made_on(nodes)
    users: dict[str, set[str]] = {name: set() for name in nodes}
    for name in reversed(_order(nodes)):
        found[name] = found[name] or frozenset(users[name])
        for each in data_inputs(nodes[name]):
            if each in nodes:
                users[each] |= found[name]
    return found


def _order(nodes: Mapping[str, NodeDef]) -> list[str]:
    """Return the names of nodes, each one after the nodes whose values it uses."""
    edges = {name: [each for each in data_inputs(node) if each in nodes] for name, node in nodes.items()}
    return list(TopologicalSorter(edges).static_order())


def _own(node: NodeDef) -> frozenset[str]:
    return frozenset({_full(node.device)}) if node.device and not _is_anywhere(node) else frozenset()


def _is_anywhere(node: NodeDef) -> bool:
    """Return whether a node's own device does not count: constants can have copies, and arguments are copied."""
    return bool(node.op == "Const" or node.op.startswith(INPUT_OPS))


@functools.cache
def _full(device: str) -> str:
    """Return the full name of a device. Strategies omit the replica, which is always 0."""
    return str(tf.DeviceSpec.from_string(device).replace(replica=0).to_string())
