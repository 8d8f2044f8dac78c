"""Split a training step into the ops that run before, in and after the part that has variants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tidemill_tensorflow.compiler import functions, groups
from tidemill_tensorflow.compiler.devices import devices_of, place_beside_variables
from tidemill_tensorflow.compiler.end_of_data import EndOfData
from tidemill_tensorflow.compiler.fingerprints import fingerprint
from tidemill_tensorflow.compiler.flat_graphs import FlatGraph, flatten, node_of
from tidemill_tensorflow.compiler.fused_updates import fuse_updates
from tidemill_tensorflow.compiler.loop_sizes import loops_of, size_lists, sizes_of, with_sizes
from tidemill_tensorflow.compiler.noise import separate
from tidemill_tensorflow.compiler.random_numbers import SIZES, STATEFUL, replace_random_ops, with_kernels
from tidemill_tensorflow.compiler.regions import Cut, NotCompilable, Region, cut, has_effect, is_of_gradient, uncut
from tidemill_tensorflow.compiler.replicas import NOTHING, Replicas, ReplicaStep, build_step, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["Parts", "compiled_for", "is_training_step", "nodes_of", "take_apart"]

_DRAWN = "tidemill_drawn"
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
        step: The region that has variants.
        replicas: Regions of a step that runs on several devices; None on one device. The step then contains the
            reduction of the gradients and all that follows, and `after` is empty.
        graph: A graph with all symbolic tensors of `flat`.
        sources: See `functions.build`.
    """

    before: Callable[..., list[Any]]
    after: Callable[..., list[Any]]
    reads: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    results: tuple[int, ...]
    fingerprint: str
    random_ops: int
    sizes: int | None
    common_slots: int
    checks_after: bool
    can_wait: bool
    flat: FlatGraph
    step: Region
    replicas: Replicas | None
    graph: tf.Graph
    sources: Mapping[str, Any]
    name: str

    @cached_property
    def plain(self) -> functions.Part:
        """The step without XLA. It is built when it is first used: jobs with a stored decision may never use it."""
        return _plain(self.step, self.sources, name=f"{self.name}_plain", inline=False)

    def tensor_of(self, reference: str) -> Any:
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

    def shapes_of(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the shapes of all arguments of the step except variables and iterators."""
        return tuple([arguments[index].shape for index in self._shaped])

    def has_static_shapes(self) -> bool:
        """Return whether the graph alone determines the shapes of the step's inputs."""
        tensors = [self.sources[name] for name in self.step.inputs if name in self.sources]
        return all(tensor.shape.is_fully_defined() for tensor in tensors if tensor.dtype != tf.resource)

    def compiled(self) -> Any:
        """Return the step as a callable that XLA compiles."""
        return functions.build(self.step, self.sources, xla=True, name=f"{self.name}_xla")

    def compiled_for(self, arguments: Sequence[Any]) -> Any | None:
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
        rest = _plain(self.replicas.rest, self.sources, name=f"{self.name}_rest")
        return build_step(self.replicas, arguments, compile=self._of_replica, rest=rest, name=name)

    def _with_sizes(self, region: Region, arguments: Sequence[Any]) -> Region:
        """Return a region, with constants in place of sizes in lists if the shapes of its arguments determine them."""
        lists = size_lists(region.graph_def)
        loops = loops_of(self.flat, region, lists)
        if loops is None:
            return region
        given = dict(zip(region.inputs, arguments))  # noqa: B905 - Python 3.9 has no strict
        keep_devices = self.replicas is not None
        copied, kept = functions.copies([given[name] for name in loops.inputs], keep_devices=keep_devices)
        run = _plain(loops, self.sources, name=f"{self.name}_loops")
        sizes = sizes_of(lists, dict(zip(loops.outputs, run(*copied))))  # noqa: B905
        assert kept is not None  # the variables outlive the run
        return region if sizes is None else replace(region, graph_def=with_sizes(region.graph_def, sizes))

    def warm_up(self, function: Any, arguments: Sequence[Any]) -> float:
        """Run a variant on copies of the variables, which compiles it, and return the duration in seconds.

        Of a step that runs on several devices, only the part that XLA compiles is run.
        """
        if self.replicas is None:
            copied, kept = functions.copies(arguments)
            return functions.warm_up(function, copied, kept)
        return function.warm_up(arguments) if isinstance(function, ReplicaStep) else 0.0

    def _of_replica(self, region: Region, arguments: Sequence[Any]) -> Any:
        """Return the compiled region of one replica."""
        region = self._with_sizes(region, arguments)
        run = _without_noise(region, self.sources, arguments, name=self.name)
        return run or functions.build(region, self.sources, xla=True, name=f"{self.name}_xla")

    def fused(self) -> Any | None:
        """Return the plain step with updates in one kernel each, or None if the step has no such update."""
        graph_def, number = fuse_updates(self.step.graph_def, self.tensor_of)
        if number == 0:
            return None
        return _plain(replace(self.step, graph_def=graph_def), self.sources, name=f"{self.name}_fused", inline=False)

    def whole(self) -> Callable[..., list[Any]]:
        """Return a plain function that does the same as all parts together.

        It takes the flat arguments, the captures and the state of the stateful random ops, if there are any. It returns
        the function's flat results, and then the sizes.
        """
        region = uncut(self.flat)
        function = _plain(region, self.sources, name=f"{self.name}_whole")
        link = functions.Link(function, region.inputs, region.outputs)
        return functions.chain([link], [f"{name}:0" for name in self.flat.inputs], self.flat.outputs)

    @cached_property
    def end_of_data(self) -> EndOfData:
        """What a call of the function does although the data has ended."""
        return EndOfData(self.flat, lambda region, name: _plain(region, self.sources, name=f"{self.name}_{name}"))


def compiled_for(
    step: Region, sources: Mapping[str, Any], arguments: Sequence[Any], *, name: str
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
    step: Region, sources: Mapping[str, Any], arguments: Sequence[Any], *, name: str
) -> Callable[..., list[Any]] | None:
    """Return what `compiled_for` returns, as two functions that are called in turn."""
    separated = separate(step, arguments)
    if separated is None:
        return None
    slots = [f"input_{index}:0" for index in range(len(arguments))]
    known = {slot: sources[tensor] for slot, tensor in zip(slots, step.inputs) if tensor in sources}  # noqa: B905
    noise = _plain(separated.noise, known, name=f"{name}_noise")
    known.update(zip(separated.noise.outputs, noise.results))  # noqa: B905 - Python 3.9 has no strict
    rest = functions.build(separated.rest, known, xla=True, name=f"{name}_xla")
    links = [
        functions.Link(noise, separated.noise.inputs, separated.noise.outputs),
        functions.Link(rest, separated.rest.inputs, separated.rest.outputs),
    ]
    return functions.chain(links, slots, step.outputs)


def is_training_step(concrete: Any) -> bool:
    """Return whether a function computes gradients or applies them."""
    return any(node.op.startswith("ResourceApply") or is_of_gradient(node.name) for node in nodes_of(concrete))


def nodes_of(concrete: Any) -> Iterator[Any]:
    """Yield the nodes of a function and of all functions in its library."""
    graph_def = concrete.graph.as_graph_def()
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def take_apart(concrete: Any, *, name: str, communicates: bool = False, is_alone: bool = True) -> Parts:
    """Split the graph of a ConcreteFunction into parts.

    Args:
        concrete: The function.
        name: Prefix of the parts' names.
        communicates: Whether the function may communicate. Ops that communicate, and ops that depend on them, then run
            after the compiled part.
        is_alone: Whether the job has no other processes. With other processes, a function that does not communicate
            must not update variables by gradients, because all processes must run the same variant of the update.

    Raises:
        NotCompilable: XLA cannot compile the function, or would draw other random numbers.
    """
    flat = flatten(concrete)
    _refuse_distribution(flat.graph_def, communicates=communicates, is_alone=is_alone and not communicates)
    if len(devices_of(flat.graph_def.node)) > 1:
        place_beside_variables(concrete, flat.graph_def)
    if not is_alone and not communicates and _applies_gradients(flat.graph_def):
        raise NotCompilable(
            "it updates variables in a job of several processes, which have to do that alike: put the reduction of the"
            " gradients into the same function, or the update into one of its own"
        )
    random_ops = sum(node.op in STATEFUL for node in flat.graph_def.node)
    if random_ops > 0:
        placeholder = flat.graph_def.node.add(name=_DRAWN, op="Placeholder")
        placeholder.attr["dtype"].type = tf.int64.as_datatype_enum
        placeholder.attr["shape"].shape.dim.add(size=random_ops + 1)
    refused = replace_random_ops(flat.graph_def, drawn=_DRAWN if random_ops > 0 else None)
    if refused:
        raise NotCompilable(f"the random numbers of {refused[0]} would differ in XLA")
    inputs, own_results = (*flat.inputs, _DRAWN), flat.outputs
    if random_ops > 0:
        flat = replace(flat, inputs=inputs, outputs=(*flat.outputs, f"{SIZES}:0"))
    whole = cut(flat)
    if all(node.op in _NO_WORK for node in whole.step.graph_def.node):
        raise NotCompilable("nothing is left for XLA: the steps are a loop over the iterator (steps_per_execution > 1)")
    graph, sources = _symbolic(concrete, flat, whole)
    divided = split(flat, whole)
    if divided is not None:
        whole = replace(whole, step=divided.whole, after=NOTHING)
    slots = [f"{each}:0" for each in inputs]
    reads = []
    for region in (whole.before, whole.step, whole.after):
        reads.append(tuple(slots.index(tensor) for tensor in region.inputs))
        slots += region.outputs
    return Parts(
        before=_plain(whole.before, sources, name=f"{name}_before"),
        after=_plain(whole.after, sources, name=f"{name}_after"),
        reads=(reads[0], reads[1], reads[2]),
        results=tuple(slots.index(tensor) for tensor in own_results),
        fingerprint=fingerprint(whole.step.graph_def),
        random_ops=random_ops,
        sizes=slots.index(f"{SIZES}:0") if random_ops > 0 else None,
        common_slots=len(inputs) - 1,
        checks_after=any(has_effect(node.op) for node in whole.after.graph_def.node),
        can_wait=divided is None and _only_checks(whole.after.graph_def),
        flat=flat,
        step=whole.step,
        replicas=divided,
        graph=graph,
        sources=sources,
        name=name,
    )


def _plain(region: Region, sources: Mapping[str, Any], *, name: str, inline: bool = True) -> Any:
    own = replace(region, graph_def=with_kernels(region.graph_def))
    return functions.build(own, sources, xla=False, name=name, inline=inline)


def _refuse_distribution(graph_def: Any, *, communicates: bool, is_alone: bool) -> None:
    devices = devices_of(graph_def.node)
    if len(devices) > 1 and not is_alone:
        raise NotCompilable(
            f"each of several processes runs the step on several devices ({', '.join(devices)}): not compiled yet"
        )
    for node in graph_def.node:
        if groups.communicates(node) and not communicates and len(devices) < 2:
            raise NotCompilable(
                f"the step communicates ({node.op}) with a part of the processes, or in a way that is not known"
            )


def _only_checks(graph_def: Any) -> bool:
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


def _applies_gradients(graph_def: Any) -> bool:
    """Return whether a flat graph writes values that depend on gradients into variables."""
    nodes = {node.name: node for node in graph_def.node}
    waiting = [
        node.name
        for node in graph_def.node
        if node.op.startswith("Assign") and node.op.endswith(("VariableOp", "Variable"))
    ]
    if any(node.op.startswith("ResourceApply") for node in graph_def.node):
        return True
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if is_of_gradient(name):
            return True
        waiting += [node_of(reference) for reference in nodes[name].input if not reference.startswith("^")]
    return False


def _symbolic(concrete: Any, flat: FlatGraph, whole: Cut) -> tuple[tf.Graph, dict[str, Any]]:
    """Return a graph with all tensors of a flat graph, and the tensors that supply the types of the parts' inputs.

    All handles of variables have handle data.
    """
    sources: dict[str, Any] = {f"{tensor.op.name}:0": tensor for tensor in concrete.graph.inputs}
    graph = tf.Graph()
    with graph.as_default():
        given = {name: functions.placeholder(source) for name, source in sources.items()}
        tf.graph_util.import_graph_def(flat.graph_def, input_map=given, name="")
    for name in (*whole.before.outputs, *whole.step.outputs):
        sources.setdefault(name, graph.get_tensor_by_name(name))
    return graph, sources
