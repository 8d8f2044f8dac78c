"""Make functions of regions, and warm them up on copies of the variables."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.ops import handle_data_util

from tidemill_tensorflow.compiler.background import beside_training
from tidemill_tensorflow.compiler.private_api import runner_of, without_inlining

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
    from tensorflow.types.experimental import GenericFunction

    from tidemill_tensorflow.compiler.graphs.nodes import Region, TensorFunction


def build(
    region: Region, sources: Mapping[str, tf.Tensor], *, xla: bool, name: str, inline: bool = True
) -> TensorFunction:
    """Return a callable that takes and returns flat lists of tensors.

    Args:
        region: The graph that the callable computes.
        sources: Symbolic tensors by input name, which supply dtypes, shapes and the variables behind handles. An input
            without an entry is the state of the stateful random ops.
        xla: Whether XLA compiles the callable.
        name: Name of the function in profiles and dumps.
        inline: Whether functions that call it contain its ops. If not, TensorFlow optimizes it once, however often it
            is called.
    """
    given = [sources.get(tensor) for tensor in region.inputs]
    specs = [_spec(source) for source in given]
    if not region.outputs and not region.graph_def.node:
        return _nothing

    def part(*arguments: tf.Tensor) -> list[tf.Tensor]:
        _copy_handles(given, arguments)
        mapping = {f"input_{index}:0": argument for index, argument in enumerate(arguments)}
        with tf.name_scope(""):
            found = tf.graph_util.import_graph_def(
                region.graph_def, input_map=mapping, return_elements=list(region.outputs), name=""
            )
        return list(found or ())

    part.__name__ = name
    if not xla:
        plain = tf.function(part, autograph=False, input_signature=specs)
        return Part(plain if inline else without_inlining(plain))
    compiled = Part(tf.function(part, autograph=False, input_signature=specs, jit_compile=True))

    def call(*arguments: tf.Tensor) -> list[tf.Tensor]:
        _copy_handles(given, arguments)
        return compiled(*arguments)

    # XLA compiles a function again for other attributes of its call. Calls from Python have attributes that calls from
    # functions lack, so all calls come from functions.
    call.__name__ = f"{name}_call"
    return Part(tf.function(call, autograph=False, input_signature=specs))


class Part:
    """Traced function that takes and returns flat lists of tensors, eagerly or inside another function.

    Args:
        traced: A ``tf.function`` with an input signature.
    """

    def __init__(self, traced: GenericFunction) -> None:
        # TensorFlow removes a function when its Python object is deleted.
        self._kept = (traced, traced.get_concrete_function())
        self._run = runner_of(self._kept[1])

    @property
    def concrete(self) -> ConcreteFunction:
        """The ConcreteFunction, which must be kept as long as a graph calls it."""
        return self._kept[1]

    @property
    def results(self) -> list[tf.Tensor]:
        """The symbolic tensors that the function returns."""
        return list(self._kept[1].outputs)

    def __call__(self, *arguments: tf.Tensor) -> list[tf.Tensor]:
        """Run the function."""
        return list(self._run(*arguments) or ())


@dataclass(frozen=True)
class Link:
    """Callable of a chain.

    Attributes:
        function: Callable from `build`.
        inputs: Names of the tensors that it takes.
        outputs: Names of the tensors that it returns.
        device: The device on which it runs; None for the device of the caller.
    """

    function: TensorFunction
    inputs: Sequence[str]
    outputs: Sequence[str]
    device: str | None = None


def chain(links: Sequence[Link], inputs: Sequence[str], outputs: Sequence[str]) -> TensorFunction:
    """Return a callable that runs several callables, each with results of earlier ones.

    Args:
        links: The callables, in the order of their runs.
        inputs: Names of the tensors that the returned callable takes.
        outputs: Names of the tensors that it returns.
    """
    slots = [*inputs, *(name for link in links for name in link.outputs)]
    index = {name: position for position, name in reversed(list(enumerate(slots)))}
    reads = [[index[name] for name in link.inputs] for link in links]
    results = [index[name] for name in outputs]

    def run(*arguments: tf.Tensor) -> list[tf.Tensor]:
        found = list(arguments)
        for link, own in zip(links, reads):
            with contextlib.nullcontext() if link.device is None else tf.device(link.device):
                found += link.function(*[found[position] for position in own])
        return [found[position] for position in results]

    return run


def repeat(
    part: TensorFunction,
    arguments: Sequence[tf.Tensor],
    is_common: Sequence[bool],
    *,
    count: int,
    name: str,
) -> Part:
    """Return a function that runs a part several times in sequence.

    Args:
        part: A callable from `build`.
        arguments: The arguments of one run, which supply dtypes, shapes and the variables behind handles.
        is_common: For each argument, whether it is the same in all runs.
        count: Number of runs.
        name: Name of the function.

    Returns:
        A function that takes the `distinct` arguments, and returns the results of all runs in one list.
    """
    flat = distinct([arguments] * count, is_common)

    def runs(*given: tf.Tensor) -> list[tf.Tensor]:
        _copy_handles(flat, given)
        first, left = list(given[: len(arguments)]), iter(given[len(arguments) :])
        results = list(part(*first))
        for _ in range(count - 1):
            results += part(*[one if same else next(left) for one, same in zip(first, is_common)])
        return results

    runs.__name__ = name
    specs = [tf.TensorSpec(argument.shape, argument.dtype) for argument in flat]
    return Part(tf.function(runs, autograph=False, input_signature=specs))


def distinct(arguments: Sequence[Sequence[tf.Tensor]], is_common: Sequence[bool]) -> list[tf.Tensor]:
    """Return the arguments of several runs in one list, in which common arguments appear only once."""
    first, *rest = arguments
    own = [argument for run in rest for argument, same in zip(run, is_common) if not same]
    return [*first, *own]


def placeholder(source: tf.Tensor) -> tf.Tensor:
    """Return a placeholder in the default graph with the dtype, shape and handle data of a symbolic tensor."""
    own = tf.compat.v1.placeholder(source.dtype, source.shape, name="tidemill_given")
    _copy_handles([source], [own])
    return own


def _copy_handles(sources: Sequence[tf.Tensor | None], arguments: Sequence[tf.Tensor]) -> None:
    """Copy handle data, the dtypes and shapes of variables, from sources to the arguments of a traced function.

    Sources may be None.
    """
    for source, argument in zip(sources, arguments):
        if source is not None and source.dtype in (tf.resource, tf.variant):
            handle_data_util.copy_handle_data(source, argument)


def _nothing(*arguments: tf.Tensor) -> list[tf.Tensor]:
    return []


def _spec(source: tf.Tensor | None) -> tf.TensorSpec:
    """Return the TensorSpec of an input. An input without a source is the state of the stateful random ops."""
    return tf.TensorSpec([None], tf.int64) if source is None else tf.TensorSpec(source.shape, source.dtype)


def copies(arguments: Sequence[tf.Tensor], *, keep_devices: bool = False) -> tuple[list[tf.Tensor], list[tf.Variable]]:
    """Return the arguments with a copy in place of each variable, and the variables that keep the copies alive.

    Args:
        arguments: Tensors and handles.
        keep_devices: Whether each copy is on the device of its variable, not on the device of the caller.

    Raises:
        ValueError: A resource is not a variable.
    """
    copied: list[tf.Tensor] = []
    kept: list[tf.Variable] = []
    for argument in arguments:
        if argument.dtype != tf.resource:
            copied.append(argument)
            continue
        data = getattr(argument, "_handle_data", None)
        if data is None or not data.is_set or not data.shape_and_type:
            raise ValueError("the step uses a resource that is no variable (a table, a queue, a random generator)")
        dtype = tf.as_dtype(data.shape_and_type[0].dtype)
        with tf.device(argument.device) if keep_devices else contextlib.nullcontext():
            variable = tf.Variable(tf.raw_ops.ReadVariableOp(resource=argument, dtype=dtype), trainable=False)
        kept.append(variable)
        copied.append(variable.handle)
    return copied, kept


def warm_up(function: Callable[..., object], arguments: Sequence[tf.Tensor], kept: Sequence[tf.Variable]) -> float:
    """Run a function once on copied arguments, which compiles it, and return the duration in seconds.

    The caller passes the variables in `kept` so that they outlive the run.
    """
    begin = time.perf_counter()
    with beside_training():
        function(*arguments)
    assert kept is not None
    return time.perf_counter() - begin
