"""Extracts segments of the traced graph as callable functions."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Graph, Tensor
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.random_ops import draws_numbers, vary_seeds
from smdistributed.modelparallel.tensorflow.engine.segments import Segment
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.graph_names import SEGMENT
from tensorflow.core.framework import graph_pb2
from tensorflow.python.eager import context
from tensorflow.python.framework import importer, ops

_FORGOTTEN = ("_class", "_gradient_op_type")
"""Attributes that refer to ops which may not be in the segment."""


class SegmentFunction:
    """A segment as a function, callable in a graph or eagerly."""

    def __init__(
        self, function: Callable[..., Sequence[Tensor]], inputs: Sequence[Output], outputs: Sequence[Output]
    ) -> None:
        self._function = function
        self.inputs = tuple(inputs)
        """Its inputs: outputs of other segments, leaves of the microbatch, tensors of the caller's graph."""
        self.outputs = tuple(outputs)

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[list[Any], Any]:
        """Run the segment on the tensors of `inputs`.

        Returns:
            The tensors of `outputs`, and a tensor that is ready when the segment has finished, with its side effects.
        """
        *outputs, finished = self._function(*tensors)
        return outputs, finished


class WholeGraph:
    """A graph from which parts are copied."""

    def __init__(self, graph: Graph) -> None:
        self.definition = graph.as_graph_def()
        self._nodes = {node.name: node for node in self.definition.node}

    def part(self, names: Sequence[str]) -> graph_pb2.GraphDef:
        """Return a copy of some nodes in their order, with unresolved inputs from other nodes.

        Returns:
            A GraphDef with the library of the whole graph.
        """
        members = set(names)
        part = graph_pb2.GraphDef(library=self.definition.library, versions=self.definition.versions)
        for name in names:
            node = part.node.add()
            node.CopyFrom(self._nodes[name])
            inputs = [name for name in node.input if not name.startswith("^") or name[1:] in members]
            del node.input[:]
            node.input.extend(inputs)
            for attribute in _FORGOTTEN:
                node.attr.pop(attribute, None)
        return part


class Extractor:
    """Builds functions from the segments of one trace."""

    def __init__(self, trace: Trace, *, jit_compile: bool = False) -> None:
        self._trace = trace
        self._graph = WholeGraph(trace.graph)
        self._jit_compile = jit_compile

    def functions(self, segment: Segment, num_microbatches: int) -> list[SegmentFunction]:
        """Build the function of `segment` per microbatch; a single one if the segment has no seeded random ops.

        Args:
            num_microbatches: At least 1.

        Returns:
            As many functions; the same one several times if it draws no numbers.
        """
        definition = self._graph.part([self._trace.nodes[index].name for index in segment.nodes])
        if not draws_numbers(definition):
            return [self._function(segment, definition)] * num_microbatches
        found = []
        for microbatch in range(num_microbatches):
            own = graph_pb2.GraphDef()
            own.CopyFrom(definition)
            made = vary_seeds(own, microbatch)
            function = self._function(segment, own)
            _register(made, function)
            found.append(function)
        return found

    def _function(self, segment: Segment, definition: graph_pb2.GraphDef) -> SegmentFunction:
        trace = self._trace
        captured = {
            output: trace.captures[output]
            for output in segment.inputs
            if output in trace.captures and isinstance(trace.captures[output], ops.EagerTensor)
        }
        given = [output for output in segment.inputs if output not in captured]
        effects = [trace.nodes[index].name for index in trace.effects if index in set(segment.nodes)]

        def body(*tensors: Tensor) -> list[Tensor]:
            graph = ops.get_default_graph()
            known = {self._name(output): tensor for output, tensor in zip(given, tensors, strict=True)}
            known |= {self._name(output): graph.capture(tensor) for output, tensor in captured.items()}
            wanted = [self._name(output) for output in segment.outputs]
            # The nodes keep their names, so that an error names the op as the user's script created it.
            found = importer.import_graph_def(definition, input_map=known, return_elements=wanted + effects, name="")
            outputs, done = found[: len(wanted)], found[len(wanted) :]
            with tf.control_dependencies([tensor.op for tensor in outputs] + done):
                return [*outputs, tf.constant(True, name="finished")]

        body.__name__ = SEGMENT
        # If inlined, the graph optimizer would deduplicate the recomputation, and keep the activations.
        attributes = {"_noinline": True} if segment.is_recomputed else None
        function = tf.function(
            body, autograph=False, jit_compile=self._jit_compile or None, experimental_attributes=attributes
        )
        return SegmentFunction(function.get_concrete_function(*map(self._spec, given)), given, segment.outputs)

    def _name(self, output: Output) -> str:
        return f"{self._trace.nodes[output[0]].name}:{output[1]}"

    def _spec(self, output: Output) -> tf.TensorSpec:
        tensor = self.tensor(output)
        return tf.TensorSpec(tensor.shape, tensor.dtype)

    def tensor(self, output: Output) -> Tensor:
        """Return the tensor of the traced graph, for its dtype and static shape.

        Args:
            output: Index of the node and of its output.
        """
        return self._trace.graph.get_operation_by_name(self._trace.nodes[output[0]].name).outputs[output[1]]


def _register(functions: Sequence[Any], user: SegmentFunction) -> None:
    """Register function definitions with the runtime for the lifetime of `user`, as for functions of the script."""
    runtime = context.context()
    for function in functions:
        runtime.add_function_def(function)
        weakref.finalize(user, runtime.remove_function, function.signature.name)
