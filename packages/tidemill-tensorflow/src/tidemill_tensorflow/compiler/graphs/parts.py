"""Split a training step into the ops that run before, in and after the part that has variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import tensorflow as tf

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.graphs.fingerprints import fingerprint
from tidemill_tensorflow.compiler.graphs.fused_updates import fuse_updates
from tidemill_tensorflow.compiler.graphs.loop_sizes import loops_of, size_lists, sizes_of, with_sizes
from tidemill_tensorflow.compiler.graphs.nodes import NotCompilable, Region, Regions, has_effect
from tidemill_tensorflow.compiler.graphs.noise import separate
from tidemill_tensorflow.compiler.graphs.random_numbers import SIZES
from tidemill_tensorflow.compiler.graphs.regions import cut
from tidemill_tensorflow.compiler.graphs.replicas import NOTHING, Replicas, ReplicaStep, build_step, split
from tidemill_tensorflow.compiler.graphs.unsplit import Unsplit, build_plain, unsplit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction

_CHECK = "Assert"
_NO_WORK = frozenset({"Const", "Identity", "NoOp", "Placeholder"})


@dataclass(frozen=True)
class Parts:
    """Callables of a step, and the slots that they read.

    Slots hold, in this order, the flat arguments and captures, the state of the stateful random ops, and the results of
    each part.

    Attributes:
        before: Callable that runs first, with ops such as the iterator's next element.
        after: Callable that runs last, with assertions, prints and packed results.
        reads: Slot indices that `before`, the step and `after` read.
        results: Slot indices of the function's flat results.
        fingerprint: Digest that names the step in the store of decisions.
        random_ops: Number of stateful random ops of the step.
        sizes: Slot index of the sizes of their results (see `Draws.add`); None without such ops.
        common_slots: Number of flat arguments and captures, which are the first slots.
        checks_after: Whether `after` has assertions, so that every run needs it, and not only the last one of several.
        can_wait: Whether `after` may run after later steps: it neither reads nor writes state, and computes no sizes.
        whole: The function before it was split.
        step: The region that has variants.
        replicas: Regions of a step that runs on several devices; None on one device. The step then contains the
            reduction of the gradients and all that follows, and `after` is empty.
        graph: A graph with all symbolic tensors of the flat graph.
        sources: See `functions.build`.
    """

    before: TensorFunction
    after: TensorFunction
    reads: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    results: tuple[int, ...]
    fingerprint: str
    random_ops: int
    sizes: int | None
    common_slots: int
    checks_after: bool
    can_wait: bool
    whole: Unsplit
    step: Region
    replicas: Replicas | None
    graph: tf.Graph
    sources: Mapping[str, tf.Tensor]
    name: str

    @cached_property
    def plain(self) -> TensorFunction:
        """The step without XLA. It is built when it is first used: jobs with a stored decision may never use it."""
        return build_plain(self.step, self.sources, name=f"{self.name}_plain", inline=False)

    def tensor_of(self, reference: str) -> tf.Tensor:
        """Return the symbolic tensor of an input reference of the step's graph."""
        name, _, index = reference.partition(":")
        is_input = name.startswith("input_") and name[6:].isdigit()
        tensor = self.step.inputs[int(name[6:])] if is_input else f"{name}:{index or 0}"
        return self.sources[tensor] if tensor in self.sources else self.graph.get_tensor_by_name(tensor)

    @cached_property
    def _shaped(self) -> tuple[int, ...]:
        """Indices of the step's inputs that are no variables: large models have hundreds of inputs."""
        known = [self.sources.get(name) for name in self.step.inputs]
        return tuple(index for index, each in enumerate(known) if each is None or each.dtype != tf.resource)

    def shapes_of(self, arguments: Sequence[tf.Tensor]) -> tuple[tf.TensorShape, ...]:
        """Return the shapes of all arguments of the step except variables and iterators."""
        return tuple([arguments[index].shape for index in self._shaped])

    def names_of(self, arguments: Sequence[tf.Tensor]) -> tuple[str, ...]:
        """Return the tensor names ``node:k`` of all arguments of the step except variables and iterators."""
        named = zip(self.step.inputs, arguments)
        return tuple(name for name, argument in named if argument.dtype != tf.resource)

    def has_static_shapes(self) -> bool:
        """Return whether the graph alone determines the shapes of the step's inputs."""
        tensors = [self.sources[name] for name in self.step.inputs if name in self.sources]
        return all(tensor.shape.is_fully_defined() for tensor in tensors if tensor.dtype != tf.resource)

    def compiled(self) -> TensorFunction:
        """Return the step as a callable that XLA compiles."""
        return functions.build(self.step, self.sources, xla=True, name=f"{self.name}_xla")

    def compiled_for(self, arguments: Sequence[tf.Tensor]) -> TensorFunction | None:
        """Return the step for the shapes of these arguments, in which XLA compiles all but the random numbers.

        None if the step runs on one device, has no sizes in lists (see `loop_sizes`), and no random numbers, or none
        that can be separated.
        """
        if self.replicas is None:
            step = self._with_sizes(self.step, arguments)
            found = compiled_for(step, self.sources, arguments, name=self.name)
            if found is None and step is not self.step:
                return functions.build(step, self.sources, xla=True, name=f"{self.name}_xla")
            return found
        name = f"{self.name}_xla_for_shapes"
        rest = build_plain(self.replicas.rest, self.sources, name=f"{self.name}_rest")
        return build_step(self.replicas, arguments, compile=self._of_replica, rest=rest, name=name)

    def _with_sizes(self, region: Region, arguments: Sequence[tf.Tensor]) -> Region:
        """Return a region, with constants in place of sizes in lists if the shapes of its arguments determine them."""
        lists = size_lists(region.graph_def)
        loops = loops_of(self.whole.flat, region, lists)
        if loops is None:
            return region
        given = dict(zip(region.inputs, arguments))
        keep_devices = self.replicas is not None
        copied, kept = functions.copies([given[name] for name in loops.inputs], keep_devices=keep_devices)
        run = build_plain(loops, self.sources, name=f"{self.name}_loops")
        sizes = sizes_of(lists, dict(zip(loops.outputs, run(*copied))))
        assert kept is not None  # the variables outlive the run
        return region if sizes is None else replace(region, graph_def=with_sizes(region.graph_def, sizes))

    def warm_up(self, function: TensorFunction, arguments: Sequence[tf.Tensor]) -> float:
        """Run a variant on copies of the variables, which compiles it, and return the duration in seconds.

        Of a step that runs on several devices, only the part that XLA compiles is run.
        """
        if self.replicas is None:
            copied, kept = functions.copies(arguments)
            return functions.warm_up(function, copied, kept)
        return function.warm_up(arguments) if isinstance(function, ReplicaStep) else 0.0

    def _of_replica(self, region: Region, arguments: Sequence[tf.Tensor]) -> TensorFunction:
        """Return the compiled region of one replica."""
        region = self._with_sizes(region, arguments)
        run = _without_noise(region, self.sources, arguments, name=self.name)
        return run or functions.build(region, self.sources, xla=True, name=f"{self.name}_xla")

    def fused(self) -> TensorFunction | None:
        """Return the plain step with updates in one kernel each, or None if the step has no such update."""
        graph_def, number = fuse_updates(self.step.graph_def, self.tensor_of)
        if number == 0:
            return None
        step = replace(self.step, graph_def=graph_def)
        return build_plain(step, self.sources, name=f"{self.name}_fused", inline=False)


def compiled_for(
    step: Region, sources: Mapping[str, tf.Tensor], arguments: Sequence[tf.Tensor], *, name: str
) -> functions.Part | None:
    """Return a function for the shapes of these arguments, in which XLA compiles all but the random numbers.

    None if the region has no random numbers, or none that can be separated.

    Args:
        step: The region, after `replace_random_ops`.
        sources: See `functions.build`.
        arguments: The arguments of one run.
        name: Prefix of the names of functions.
    """
    run = _without_noise(step, sources, arguments, name=name)
    if run is None:
        return None
    return functions.repeat(run, arguments, [True] * len(arguments), count=1, name=f"{name}_xla_for_shapes")


def _without_noise(
    step: Region, sources: Mapping[str, tf.Tensor], arguments: Sequence[tf.Tensor], *, name: str
) -> TensorFunction | None:
    """Return what `compiled_for` returns, as two functions that are called in turn."""
    separated = separate(step, arguments)
    if separated is None:
        return None
    slots = [f"input_{index}:0" for index in range(len(arguments))]
    known = {slot: sources[tensor] for slot, tensor in zip(slots, step.inputs) if tensor in sources}
    noise = build_plain(separated.noise, known, name=f"{name}_noise")
    assert isinstance(noise, functions.Part)  # the region is not empty
    known.update(zip(separated.noise.outputs, noise.results))
    rest = functions.build(separated.rest, known, xla=True, name=f"{name}_xla")
    links = [
        functions.Link(noise, separated.noise.inputs, separated.noise.outputs),
        functions.Link(rest, separated.rest.inputs, separated.rest.outputs),
    ]
    return functions.chain(links, slots, step.outputs)


def take_apart(
    concrete: ConcreteFunction,
    *,
    name: str,
    may_communicate: bool = False,
    is_alone: bool = True,
    whole: Unsplit | None = None,
) -> Parts:
    """Split the graph of a ConcreteFunction into parts.

    Args:
        name: Prefix of the parts' names.
        may_communicate: Whether the function may communicate. Ops that communicate, and ops that depend on them, then
            run after the compiled part.
        is_alone: Whether the job has no other processes. With other processes, a function that does not communicate
            must not update variables by gradients, because all processes must run the same variant of the update.
        whole: The function's flat graph, if it is already made.

    Raises:
        NotCompilable: XLA cannot compile the function, or would draw other random numbers.
    """
    if whole is None:
        whole = unsplit(concrete, name=name, may_communicate=may_communicate, is_alone=is_alone)
    flat, inputs, random_ops = whole.flat, whole.inputs, whole.random_ops
    three = cut(flat)
    if all(node.op in _NO_WORK for node in three.step.graph_def.node):
        raise NotCompilable("nothing is left for XLA: the steps are a loop over the iterator (steps_per_execution > 1)")
    graph, sources = _symbolic(whole, three)
    divided = split(flat, three)
    if divided is not None:
        three = replace(three, step=divided.whole, after=NOTHING)
    slots = [f"{each}:0" for each in inputs]
    reads = []
    for region in (three.before, three.step, three.after):
        reads.append(tuple(slots.index(tensor) for tensor in region.inputs))
        slots += region.outputs
    return Parts(
        before=build_plain(three.before, sources, name=f"{name}_before"),
        after=build_plain(three.after, sources, name=f"{name}_after"),
        reads=(reads[0], reads[1], reads[2]),
        results=tuple(slots.index(tensor) for tensor in whole.results),
        fingerprint=fingerprint(three.step.graph_def),
        random_ops=random_ops,
        sizes=slots.index(f"{SIZES}:0") if random_ops > 0 else None,
        common_slots=len(inputs) - 1,
        checks_after=any(has_effect(node.op) for node in three.after.graph_def.node),
        can_wait=divided is None and _only_checks(three.after.graph_def),
        whole=whole,
        step=three.step,
        replicas=divided,
        graph=graph,
        sources=sources,
        name=name,
    )


def _only_checks(graph_def: GraphDef) -> bool:
    """Return whether all ops with effects are assertions or branches around assertions, and none computes sizes."""
    functions = {function.signature.name: function.node_def for function in graph_def.library.function}
    waiting = list(graph_def.node)
    while waiting:
        node = waiting.pop()
        if node.name == SIZES or (has_effect(node.op) and node.op not in (_CHECK, "If")):
            return False
        for branch in ("then_branch", "else_branch") if node.op == "If" else ():
            waiting += functions[node.attr[branch].func.name]
    return True


def _symbolic(whole: Unsplit, three: Regions) -> tuple[tf.Graph, dict[str, tf.Tensor]]:
    """Return a graph with all tensors of a flat graph, and the tensors that supply the types of the parts' inputs.

    All handles of variables have handle data.
    """
    sources = dict(whole.sources)
    graph = tf.Graph()
    with graph.as_default():
        given = {name: functions.placeholder(source) for name, source in sources.items()}
        tf.graph_util.import_graph_def(whole.flat.graph_def, input_map=given, name="")
    for name in (*three.before.outputs, *three.step.outputs):
        sources.setdefault(name, graph.get_tensor_by_name(name))
    return graph, sources
