"""Steps that run on several devices: XLA compiles the gradients of each replica, TensorFlow runs the rest.

The rest are the reduction of the gradients, the updates, and whatever else depends on values of several devices. Two
functions with the same reductions must not run at the same time: TensorFlow would add values of both. So the rest never
runs in the background, not even on copies of the variables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.graphs.devices import by_device, devices_of
from tidemill_tensorflow.compiler.graphs.nodes import NotCompilable, Region, Regions, has_effect, is_write, region_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import tensorflow as tf
    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tidemill_tensorflow.compiler.graphs.nodes import FlatGraph, TensorFunction

NOTHING = Region(graph_pb2.GraphDef(), (), ())
"""Region without nodes."""


@dataclass(frozen=True)
class Replicas:
    """Regions of a step that runs on several devices.

    Attributes:
        gradients: By device, the region that XLA compiles.
        rest: The region that runs after all of these.
        whole: Both together.
    """

    gradients: Mapping[str, Region]
    rest: Region
    whole: Region


@dataclass(frozen=True)
class ReplicaStep:
    """Compiled step.

    Attributes:
        gradients: Function that runs the compiled regions, each on its device.
        inputs: Names of the tensors that `gradients` takes.
    """

    gradients: functions.Part
    inputs: Sequence[str]
    _all_inputs: Sequence[str]
    _run: TensorFunction

    def __call__(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """Run the step."""
        return self._run(*arguments)

    def warm_up(self, arguments: Sequence[tf.Tensor]) -> float:
        """Run the gradients on copies of the variables, and return the duration in seconds."""
        given = dict(zip(self._all_inputs, arguments))
        copied, kept = functions.copies([given[name] for name in self.inputs], keep_devices=True)
        return functions.warm_up(self.gradients, copied, kept)


def split(flat: FlatGraph, parts: Regions) -> Replicas | None:
    """Split a step by device, or return None if it runs on one device.

    Raises:
        NotCompilable: The replicas share a variable that one of them writes.
    """
    nodes = {node.name: node for node in flat.graph_def.node}
    if len(devices_of(nodes.values())) < 2:
        return None
    own = {node.name: nodes[node.name] for node in parts.step.graph_def.node}
    after = [nodes[node.name] for node in parts.after.graph_def.node]
    names = by_device(own)
    _check_variables(own, names)
    return Replicas(
        gradients={device: region_of(flat, nodes, each, wanted_by=after) for device, each in names.items()},
        rest=parts.after,
        whole=region_of(flat, nodes, {*own, *(node.name for node in after)}, wanted_by=[]),
    )


def build_step(
    replicas: Replicas,
    arguments: Sequence[tf.Tensor],
    *,
    compile: Callable[[Region, Sequence[tf.Tensor]], TensorFunction],
    rest: TensorFunction,
    name: str,
) -> ReplicaStep:
    """Return the compiled step for the shapes of its arguments.

    Args:
        replicas: The regions.
        arguments: Arguments of `replicas.whole` in one run.
        rest: Callable of `replicas.rest`.
        name: Name of the function that runs the compiled regions.
    """
    given = dict(zip(replicas.whole.inputs, arguments))
    links = []
    for device, region in replicas.gradients.items():
        function = compile(region, [given[each] for each in region.inputs])
        links.append(functions.Link(function, region.inputs, region.outputs, device))
    inputs = tuple(dict.fromkeys(each for link in links for each in link.inputs))
    outputs = tuple(dict.fromkeys(each for link in links for each in link.outputs))
    own = [given[each] for each in inputs]
    run = functions.chain(links, inputs, outputs)
    gradients = functions.repeat(run, own, [True] * len(own), count=1, name=name)
    both = [
        functions.Link(gradients, inputs, outputs),
        functions.Link(rest, replicas.rest.inputs, replicas.rest.outputs),
    ]
    whole = functions.chain(both, replicas.whole.inputs, replicas.whole.outputs)
    return ReplicaStep(gradients, inputs, replicas.whole.inputs, whole)


def _check_variables(nodes: Mapping[str, NodeDef], names: Mapping[str, set[str]]) -> None:
    users: dict[str, set[str]] = {}
    for device, own in names.items():
        for name in own:
            if has_effect(nodes[name].op) and nodes[name].input:
                users.setdefault(nodes[name].input[0], set()).add(device)
    for node in nodes.values():
        if is_write(node) and len(users[node.input[0]]) > 1:
            raise NotCompilable(f"its replicas share a variable that the step writes (node {node.name})")
