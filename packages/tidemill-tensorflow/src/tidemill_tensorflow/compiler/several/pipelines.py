"""Variants of a function that runs a pipeline of smp (`smdistributed.modelparallel`).

The function calls the segments of a rank and exchanges tensors with other ranks in between. A segment is a traced
function of its own, which the microbatches share. The variants have the ops of the script's function in the same order,
except that XLA computes the segments, or that one kernel updates each variable. So a rank sends and receives the same
in all variants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function_def_to_graph

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.graphs.fingerprints import fingerprint
from tidemill_tensorflow.compiler.graphs.flat_graphs import flatten
from tidemill_tensorflow.compiler.graphs.fused_updates import fuse_updates
from tidemill_tensorflow.compiler.graphs.nodes import (
    FlatGraph,
    NotCompilable,
    communicates,
    full_name,
    node_of,
    nodes_of,
    uncut,
)
from tidemill_tensorflow.compiler.graphs.parts import compiled_for
from tidemill_tensorflow.compiler.graphs.random_numbers import add_functions, draws_by_state, replace_random_ops
from tidemill_tensorflow.compiler.graphs.regions import reason_outside
from tidemill_tensorflow.compiler.variants.traced import first_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import Region, TensorFunction

_SEGMENT = "smp_segment"
_TRAINING = "smp_training_pipeline"
_AVERAGING = "smp_averaging"
_MEASURED = "smp_measured_layer"
"""Names that smp gives to functions and ops (its module `graph_names`): to functions that compute a segment; to an op
in functions that train, on all ranks of a replica; to an op in functions that average gradients over the replicas; to
functions that measure a layer."""
_NOT_NUMBERS = (tf.resource, tf.variant, tf.string)


@dataclass(frozen=True)
class Compiled:
    """Segments that XLA compiles.

    Attributes:
        calls: By name of a segment's function: the function that replaces it, and the indices of the call's inputs that
            the function reads.
        refused: Reasons why the other segments stay as they are.
        compile_s: Duration of the first runs, in seconds.
    """

    calls: Mapping[str, tuple[functions.Part, tuple[int, ...]]]
    refused: tuple[str, ...]
    compile_s: float


@dataclass(frozen=True)
class TracedPipeline:
    """A function with calls of segments, as a graph in which all other calls are inlined.

    Attributes:
        segments: By function name: the first call of each segment, which supplies the arguments for its compilation.
        definitions: By name: the functions of the graph.
        sources: Symbolic tensors of the function's flat arguments and captures, by input name.
        shapes: Static shapes of tensors outside of calls, by name. TensorFlow cannot infer all of them from the graph.
        name: Prefix of the names of functions.
        fingerprint: Digest of the graph.
    """

    flat: FlatGraph
    segments: Mapping[str, NodeDef]
    definitions: Mapping[str, FunctionDef]
    sources: Mapping[str, tf.Tensor]
    shapes: Mapping[str, tf.TensorShape]
    name: str
    fingerprint: str

    def recording(self) -> Callable[..., tuple[list[tf.Tensor], dict[str, tf.Tensor]]]:
        """Return a callable that runs the function plain, and also returns the segments' arguments and results.

        These are those of the first microbatch, by the names of tensors of the flat graph.
        """
        wanted = dict.fromkeys(
            reference
            for call in self.segments.values()
            for reference in [*_data_inputs(call), *_results(call)]
            if node_of(reference) not in self.flat.inputs
        )
        run = self._callable(replace(self.flat, outputs=(*self.flat.outputs, *wanted)), f"{self.name}_recording")
        own = [f"{name}:0" for name in self.flat.inputs]

        def record(*arguments: tf.Tensor) -> tuple[list[tf.Tensor], dict[str, tf.Tensor]]:
            found = run(*arguments)
            number = len(self.flat.outputs)
            return found[:number], {**dict(zip(own, arguments)), **dict(zip(wanted, found[number:]))}

        return record

    def compile(self, values: Mapping[str, tf.Tensor]) -> Compiled:
        """Compile the segments, on copies of the variables that they use.

        Args:
            values: Arguments of the segments, from `recording`.

        """
        calls: dict[str, tuple[functions.Part, tuple[int, ...]]] = {}
        refused: list[str] = []
        compile_s = 0.0
        for name, call in self.segments.items():
            given = [values[reference] for reference in _data_inputs(call)]
            try:
                region, reads = self._region(name)
                arguments = [given[index] for index in reads]
                function = self._in_xla(region, arguments, f"{self.name}_{len(calls)}")
                copied, kept = functions.copies(arguments)
                compile_s += functions.warm_up(function, copied, kept)
            except NotCompilable as error:
                refused.append(str(error))
            except (ValueError, TypeError, tf.errors.OpError) as error:
                refused.append(f"XLA does not compile it: {first_lines(error)}")
            else:
                calls[name] = (function, reads)
        return Compiled(calls, tuple(dict.fromkeys(refused)), compile_s)

    def variant(self, values: Mapping[str, tf.Tensor], compiled: Compiled | None) -> TensorFunction | None:
        """Return a callable that takes and returns what the flat graph does, with each update of Adam in one kernel.

        Args:
            values: Results of the segments, from `recording`. Only their shapes count.
            compiled: The segments that XLA computes; None for TensorFlow's kernels.

        Returns:
            None if nothing would differ from the script's function.
        """
        graph_def, number = fuse_updates(self.flat.graph_def, self._tensor_of(values))
        flat = replace(self.flat, graph_def=graph_def)
        if compiled is None or not compiled.calls:
            return self._callable(flat, f"{self.name}_fused") if number else None
        changed = graph_pb2.GraphDef()
        changed.CopyFrom(graph_def)
        for function, _ in compiled.calls.values():
            add_functions(changed, function.concrete)
        for node in changed.node:
            name = node.attr["f"].func.name if "f" in node.attr else None
            if name in compiled.calls:
                _redirect(node, *compiled.calls[name])
        run = self._callable(replace(flat, graph_def=changed), f"{self.name}_xla")
        kept = compiled  # TensorFlow removes a function when its Python object is deleted

        def variant(*arguments: tf.Tensor) -> list[tf.Tensor]:
            assert kept is not None
            return run(*arguments)

        return variant

    def _region(self, name: str) -> tuple[Region, tuple[int, ...]]:
        """Return a segment's graph for XLA, and the indices of the call's inputs that it reads."""
        definition = self.definitions[name]
        graph = function_def_to_graph.function_def_to_graph(definition)
        flat = flatten(SimpleNamespace(graph=graph))
        library = {function.signature.name: function for function in flat.graph_def.library.function}
        for node in flat.graph_def.node:
            reason = reason_outside(node, library)
            if reason is not None:
                raise NotCompilable(f"XLA has no kernel for {reason} (node {node.name})")
        strange = [tensor for tensor in graph.outputs if tensor.dtype in _NOT_NUMBERS]
        strange += [tensor for tensor in graph.inputs if tensor.dtype in (tf.variant, tf.string)]
        if strange:
            raise NotCompilable(f"it exchanges a {strange[0].dtype.name} with another segment, as a loop does")
        if not all(each.shape.is_fully_defined() for each in graph.inputs if each.dtype != tf.resource):
            raise NotCompilable("the size of a tensor is only known when it runs: use batches of one size")
        refused = replace_random_ops(flat.graph_def, drawn=None)
        if refused:
            raise NotCompilable(f"the random numbers of {refused[0]} would differ in XLA")
        region = uncut(flat)
        own = [f"{each}:0" for each in flat.inputs]
        return region, tuple(own.index(tensor) for tensor in region.inputs)

    def _in_xla(self, region: Region, arguments: Sequence[tf.Tensor], name: str) -> functions.Part:
        sources = dict(zip(region.inputs, arguments))
        function = compiled_for(region, sources, arguments, name=name)
        if function is not None:
            return function
        inner = functions.build(region, sources, xla=True, name=f"{name}_xla")
        return functions.repeat(inner, arguments, [True] * len(arguments), count=1, name=f"{name}_call")

    def _callable(self, flat: FlatGraph, name: str) -> TensorFunction:
        region = uncut(flat)
        function = functions.build(region, self.sources, xla=False, name=name)
        link = functions.Link(function, region.inputs, region.outputs)
        return functions.chain([link], [f"{each}:0" for each in flat.inputs], flat.outputs)

    def _tensor_of(self, values: Mapping[str, tf.Tensor]) -> Callable[[str], tf.Tensor]:
        """Return a function that returns the symbolic tensor of an input reference.

        TensorFlow does not know the shapes of the results of calls, so they are added to a copy of the graph.
        """
        shapes = {
            (name, index): values[result].shape
            for name, call in self.segments.items()
            for index, result in enumerate(_results(call))
        }
        copy = graph_pb2.GraphDef()
        copy.CopyFrom(self.flat.graph_def)
        ensured: dict[str, str] = {}
        added: set[str] = set()
        for node in self.flat.graph_def.node:
            called = node.attr["f"].func.name if "f" in node.attr else ""
            for index, result in enumerate(_results(node) if called in self.segments else ()):
                ensured[result] = f"{node.name}/tidemill_shape_{index}"
                added.add(ensured[result])
                check = copy.node.add(name=ensured[result], op="EnsureShape", input=[result])
                check.attr["T"].type = node.attr["Tout"].list.type[index]
                check.attr["shape"].shape.CopyFrom(shapes[called, index].as_proto())
        for node in copy.node:
            if node.name not in added:
                inputs = [ensured.get(full_name(reference), reference) for reference in node.input]
                del node.input[:]
                node.input.extend(inputs)
        graph = tf.Graph()
        with graph.as_default():
            given = {name: functions.placeholder(source) for name, source in self.sources.items()}
            tf.graph_util.import_graph_def(copy, input_map=given, name="")

        def tensor_of(reference: str) -> tf.Tensor:
            name = full_name(ensured.get(full_name(reference), reference))
            if name in self.sources:
                return self.sources[name]
            tensor = graph.get_tensor_by_name(name)
            if name in self.shapes:
                tensor.set_shape(self.shapes[name])
            return tensor

        return tensor_of


def is_measurement(concrete: ConcreteFunction) -> bool:
    """Return whether smp itself made a function, to measure a layer."""
    return _MEASURED in concrete.graph.name


def is_pipeline(nodes: Iterable[NodeDef]) -> bool:
    """Return whether a function with these nodes trains by a pipeline of smp. The same on all ranks of a replica."""
    return any(node.op == "NoOp" and _TRAINING in node.name for node in nodes)


def averages(nodes: Iterable[NodeDef]) -> bool:
    """Return whether a function with these nodes averages gradients over the replicas."""
    return any(communicates(node) or (node.op == "NoOp" and _AVERAGING in node.name) for node in nodes)


def find_pipeline(concrete: ConcreteFunction, *, name: str) -> TracedPipeline:
    """Return the pipeline of a ConcreteFunction.

    Args:
        name: Prefix of the names of functions.

    Raises:
        NotCompilable: The function draws random numbers by a state.
    """
    if any(map(draws_by_state, nodes_of(concrete))):
        raise NotCompilable("it draws noise by a state, and communicates with other processes")
    flat = flatten(concrete, kept=_SEGMENT)
    segments: dict[str, NodeDef] = {}
    for node in flat.graph_def.node:
        called = node.attr["f"].func.name if "f" in node.attr else ""
        if _SEGMENT in called:
            segments.setdefault(called, node)
    return TracedPipeline(
        flat=flat,
        segments=segments,
        definitions={function.signature.name: function for function in flat.graph_def.library.function},
        sources={f"{tensor.op.name}:0": tensor for tensor in concrete.graph.inputs},
        shapes={tensor.name: tensor.shape for op in concrete.graph.get_operations() for tensor in op.outputs},
        name=name,
        fingerprint=fingerprint(flat.graph_def),
    )


def _data_inputs(node: NodeDef) -> list[str]:
    return [full_name(reference) for reference in node.input if not reference.startswith("^")]


def _results(call: NodeDef) -> list[str]:
    return [f"{call.name}:{index}" for index in range(len(call.attr["Tout"].list.type))]


def _redirect(node: NodeDef, function: functions.Part, reads: Sequence[int]) -> None:
    """Turn a call of a segment into a call of another function. The names of the node's outputs stay the same."""
    data = _data_inputs(node)
    control = [reference for reference in node.input if reference.startswith("^")]
    del node.input[:]
    node.input.extend([*(data[index] for index in reads), *control])
    signature = function.concrete.function_def.signature
    kept = {key: node.attr[key] for key in ("config_proto", "executor_type") if key in node.attr}
    attributes = {key: type(value).FromString(value.SerializeToString()) for key, value in kept.items()}
    node.op = "StatefulPartitionedCall"
    node.ClearField("attr")
    for key, value in attributes.items():
        node.attr[key].CopyFrom(value)
    node.attr["Tin"].list.type.extend(argument.type for argument in signature.input_arg)
    node.attr["Tout"].list.type.extend(result.type for result in signature.output_arg)
    node.attr["f"].func.name = signature.name
