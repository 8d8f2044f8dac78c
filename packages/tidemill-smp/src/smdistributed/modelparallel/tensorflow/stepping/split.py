"""A batch, cut into microbatches.

    split = split_arguments(inspect.signature(body), args, kwargs, num_microbatches=4)
    plan = plans.get(split.piece_key())             # everything of a microbatch that a trace depends on
    for mb in range(4):
        args, kwargs = split.rebuild(split.values(mb))

What is cut: tensors, variables (read), NumPy arrays and what else offers `__array__`, ragged and sparse tensors, and
objects with `smp_slice(num_mb, mb, axis)`; all of them also inside lists, tuples, namedtuples, mappings and sets. Other
Python values go to every microbatch as they are. The axis is 0, or the argument's in `input_split_axes`; arguments
named in `non_split_inputs` are passed whole.

Sizes that are known when the graph is built are checked there; the others by an assertion op when the graph runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPSplitError
from smdistributed.modelparallel.tensorflow.stepping.structure import (
    Container,
    Identity,
    LeafNode,
    Node,
    static_key,
    take_apart,
)

__all__ = ["Leaf", "Sliceable", "Sliced", "Split", "SplitArguments", "Static", "Whole", "split_arguments"]


@runtime_checkable
class Sliceable(Protocol):
    """An object that knows how to cut itself."""

    def smp_slice(self, num_mb: int, mb: int, axis: int) -> Any:
        """The piece of microbatch `mb` of `num_mb`."""
        ...


@dataclass(frozen=True)
class Split:
    """A tensor that was cut."""

    name: str
    """Where it stands in the call, such as `x['image']`."""
    pieces: tuple[Any, ...]
    """One tensor (`tf.Tensor`, `tf.RaggedTensor` or `tf.SparseTensor`) per microbatch."""
    spec: tf.TypeSpec
    """Fits every piece; the cut axis is None where the size of the batch is not known."""

    def value(self, microbatch: int) -> Any:
        """What microbatch `microbatch` gets."""
        return self.pieces[microbatch]

    def key(self) -> Hashable:
        """What a trace depends on."""
        return "split", self.spec


@dataclass(frozen=True)
class Whole:
    """A tensor that goes to every microbatch."""

    name: str
    tensor: Any
    """A `tf.Tensor`, or a composite tensor."""
    spec: tf.TypeSpec

    def value(self, microbatch: int) -> Any:
        """What microbatch `microbatch` gets."""
        del microbatch
        return self.tensor

    def key(self) -> Hashable:
        """What a trace depends on."""
        return "whole", self.spec


@dataclass(frozen=True)
class Static:
    """A Python value that goes to every microbatch."""

    name: str
    static: Any

    def value(self, microbatch: int) -> Any:
        """What microbatch `microbatch` gets."""
        del microbatch
        return self.static

    def key(self) -> Hashable:
        """What a trace depends on."""
        return "static", static_key(self.static)


@dataclass(frozen=True)
class Sliced:
    """What `smp_slice` gave, where the pieces differ in more than the values of tensors: trace each microbatch."""

    name: str
    pieces: tuple[Any, ...]
    """Anything, one per microbatch."""

    def value(self, microbatch: int) -> Any:
        """What microbatch `microbatch` gets."""
        return self.pieces[microbatch]

    def key(self) -> Hashable:
        """What a trace depends on: the very pieces, which may hold tensors of the graph that is being built."""
        return "sliced", tuple(Identity(piece) for piece in self.pieces)


Leaf = Split | Whole | Static | Sliced


@dataclass(frozen=True)
class SplitArguments:
    """The arguments of a step function, cut."""

    num_microbatches: int
    leaves: tuple[Leaf, ...]
    structure: Node
    """`(args, kwargs)` without the leaves."""

    @property
    def is_uniform(self) -> bool:
        """Whether one trace serves every microbatch."""
        return not any(isinstance(leaf, Sliced) for leaf in self.leaves)

    def values(self, microbatch: int) -> list[Any]:
        """The leaves of one microbatch.

        Args:
            microbatch: 0 <= microbatch < `num_microbatches`.
        """
        return [leaf.value(microbatch) for leaf in self.leaves]

    def rebuild(self, microbatch_leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments to call the body with.

        Args:
            microbatch_leaves: One value per leaf: those of `values`, or what stands for them, such as placeholders.

        Returns:
            `(args, kwargs)`, in the form in which the step function was called.
        """
        if len(microbatch_leaves) != len(self.leaves):
            raise ValueError(f"expected {len(self.leaves)} leaves, received {len(microbatch_leaves)}")
        args, kwargs = self.structure.build(microbatch_leaves)
        return tuple(args), kwargs

    def piece_key(self) -> Hashable:
        """A key by which the plan of a microbatch can be kept: structure, specs of the pieces, Python values."""
        return self.num_microbatches, self.structure.key(), tuple(leaf.key() for leaf in self.leaves)


def split_arguments(
    function_signature: inspect.Signature,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    num_microbatches: int,
    non_split_inputs: Sequence[str] | str | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    input_signature: Sequence[Any] | None = None,
) -> SplitArguments:
    """Cut the arguments of a step function.

    To be called where the pieces are to live: inside the graph that is being built, or eagerly.

    Args:
        function_signature: The body's signature; names in the next arguments are names in it.
        args: Positional arguments of the call, of the whole batch.
        kwargs: Keyword arguments of the call, of the whole batch.
        num_microbatches: B >= 1.
        non_split_inputs: Names of the arguments that every microbatch gets whole.
        input_split_axes: The axis to cut on, by name of the argument; 0 for those not named. Negative ones count from
            the end.
        input_signature: Specs of the whole batch, one nest per positional parameter, as `tf.function` takes them.
            Arrays and Python numbers are converted to their dtypes.

    Returns:
        The pieces.

    Raises:
        SMPSplitError: If a name is not a parameter, or an argument cannot be cut evenly. Where the size of the batch is
            not known yet, `tf.errors.InvalidArgumentError` with the same text when the graph runs.
        TypeError: If the call does not fit the signature.
    """
    whole = (non_split_inputs,) if isinstance(non_split_inputs, str) else tuple(non_split_inputs or ())
    axes = dict(input_split_axes or {})
    _check_names(function_signature, whole, axes)
    names = _names_of_positional(function_signature, args, kwargs)
    specs = dict(zip(_positional_parameters(function_signature), input_signature or (), strict=False))
    cutter = _Cutter(num_microbatches)

    def part(name: str, value: Any) -> Node:
        if name in specs:
            value = _convert_to_specs(name, value, specs[name])
        return cutter.take(name, value, axis=axes.get(name, 0), whole=name in whole)

    positional = tuple(part(name, value) for name, value in zip(names, args, strict=True))
    keywords = tuple(part(name, value) for name, value in kwargs.items())
    cutter.check_sizes()
    keyword_names = tuple(kwargs)
    structure = _container(
        list,
        (
            _container(tuple, positional, tuple),
            Container(dict, keyword_names, keywords, lambda values: dict(zip(keyword_names, values, strict=True))),
        ),
        list,
    )
    return SplitArguments(num_microbatches, tuple(cutter.leaves()), structure)


# --- names ------------------------------------------------------------------------------------------------------------

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _check_names(signature: inspect.Signature, whole: Sequence[str], axes: Mapping[str, int]) -> None:
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    for option, given in (("non_split_inputs", whole), ("input_split_axes", tuple(axes))):
        unknown = [name for name in given if name not in signature.parameters]
        if unknown and not takes_any:
            known = ", ".join(signature.parameters) or "none"
            raise SMPSplitError(
                f"{option} names {', '.join(map(repr, unknown))}, but the step function has no such parameter; "
                f"its parameters are: {known}"
            )
    both = [name for name in whole if name in axes]
    if both:
        raise SMPSplitError(
            f"{', '.join(map(repr, both))}: named in non_split_inputs and in input_split_axes; "
            "an argument is either passed whole or cut, so remove it from one of them"
        )


def _positional_parameters(signature: inspect.Signature) -> list[str]:
    return [name for name, parameter in signature.parameters.items() if parameter.kind in _POSITIONAL]


def _names_of_positional(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    signature.bind(*args, **kwargs)
    names = _positional_parameters(signature)[: len(args)]
    rest = [name for name, p in signature.parameters.items() if p.kind is inspect.Parameter.VAR_POSITIONAL]
    return names + rest * (len(args) - len(names))


def _container(kind: type, children: tuple[Node, ...], make: Callable[[list[Any]], Any]) -> Container:
    return Container(kind, tuple(range(len(children))), children, make)


def _convert_to_specs(name: str, value: Any, specs: Any) -> Any:
    """Convert arrays and numbers to the dtypes of an `input_signature`."""

    def convert(spec: Any, item: Any) -> Any:
        # A tensor keeps its dtype: tf.function refuses to cast one, and so the caller hears of it.
        if not isinstance(spec, tf.TensorSpec) or tf.is_tensor(item) or _is_sliceable(item):
            return item
        tensor = tf.convert_to_tensor(item, spec.dtype)
        if not spec.is_compatible_with(tensor):
            raise ValueError(f"received shape {tensor.shape}")
        return tensor

    try:
        return tf.__internal__.nest.map_structure_up_to(specs, convert, specs, value)
    except (TypeError, ValueError) as error:
        raise SMPSplitError(f"argument {name!r} does not fit its input_signature {specs}: {error}") from error


# --- cutting ----------------------------------------------------------------------------------------------------------


@dataclass
class _Cut:
    """A tensor to be cut: checked with the others before it is."""

    name: str
    tensor: Any
    axis: int
    size: int | None

    def dynamic_size(self) -> Any:
        if isinstance(self.tensor, tf.RaggedTensor):
            return self.tensor.nrows(out_type=tf.int64)
        if isinstance(self.tensor, tf.SparseTensor):
            return self.tensor.dense_shape[self.axis]
        return tf.shape(self.tensor, out_type=tf.int64)[self.axis]


@dataclass
class _Cutter:
    num_microbatches: int
    found: list[_Cut | Leaf] = field(default_factory=list)
    checks: list[Any] = field(default_factory=list)

    def take(self, name: str, value: Any, *, axis: int, whole: bool) -> Node:
        def visit(item: Any, path: str) -> Node:
            return self._leaf(item, path, axis=axis, whole=whole, parameter=name)

        return take_apart(value, name, visit, lambda item: not whole and _is_sliceable(item))

    def leaves(self) -> list[Leaf]:
        with tf.control_dependencies(self.checks):
            return [self._cut(leaf) if isinstance(leaf, _Cut) else leaf for leaf in self.found]

    # Which of the four

    def _leaf(self, item: Any, path: str, *, axis: int, whole: bool, parameter: str) -> Node:
        if _is_sliceable(item) and not whole:
            return self._slice(item, path, axis)
        if not _is_tensor_like(item):
            return self._add(Static(path, item))
        tensor = item if _is_composite(item) else tf.convert_to_tensor(item)
        if whole or isinstance(item, np.generic):
            return self._add(Whole(path, tensor, _spec_of(tensor)))
        if _is_composite(tensor) and not isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
            return self._other_composite(tensor, path, parameter)
        return self._add(self._to_cut(tensor, path, axis, parameter))

    def _add(self, leaf: _Cut | Leaf) -> Node:
        self.found.append(leaf)
        return LeafNode(len(self.found) - 1)

    def _other_composite(self, value: Any, path: str, parameter: str) -> Node:
        if isinstance(value, (tf.data.Iterator, tf.TensorArray, tf.data.Dataset)):
            return self._add(Whole(path, value, _spec_of(value)))
        raise SMPSplitError(
            f"argument {path!r} is a {type(value).__name__}, and it is not known how to cut one: give its class "
            f"a method smp_slice(self, num_mb, mb, axis), or name {parameter!r} in non_split_inputs to pass it whole"
        )

    def _slice(self, item: Sliceable, path: str, axis: int) -> Node:
        count = self.num_microbatches
        pieces = tuple(item.smp_slice(count, mb, axis) for mb in range(count))
        return self._uniform(pieces, path) or self._add(Sliced(path, pieces))

    def _uniform(self, pieces: tuple[Any, ...], path: str) -> Node | None:
        """Take pieces that differ in nothing but the values of tensors for cut tensors: one trace then serves all."""
        per_piece: list[list[Leaf]] = []
        structures: list[Node] = []
        for piece in pieces:
            leaves: list[Leaf] = []
            structures.append(take_apart(piece, path, lambda item, at, into=leaves: _visit_piece(item, at, into)))
            per_piece.append(leaves)
        if len({structure.key() for structure in structures}) > 1:
            return None
        merged = [_merge(group) for group in zip(*per_piece, strict=True)]
        if any(leaf is None for leaf in merged):
            return None
        nodes = [self._add(leaf) for leaf in merged if leaf is not None]
        return _Renumbered(structures[0], tuple(nodes))

    # Sizes

    def _to_cut(self, tensor: Any, path: str, axis: int, parameter: str) -> _Cut:
        rank = tensor.shape.rank
        if rank == 0:
            raise SMPSplitError(
                f"argument {path!r} is a scalar tensor, which cannot be cut into microbatches: "
                f"name {parameter!r} in non_split_inputs to pass it whole"
            )
        if isinstance(tensor, tf.RaggedTensor) and axis not in (0, None if rank is None else -rank):
            raise SMPSplitError(f"argument {path!r} is a ragged tensor, which can be cut on axis 0 only, not on {axis}")
        if rank is None and isinstance(tensor, tf.SparseTensor):
            raise SMPSplitError(f"argument {path!r} is a sparse tensor of unknown rank: give its rank by set_shape")
        if rank is not None and not -rank <= axis < rank:
            raise SMPSplitError(
                f"argument {path!r} has rank {rank}, so it has no axis {axis}: "
                f"change input_split_axes[{parameter!r}] to one from {-rank} to {rank - 1}"
            )
        axis = axis % rank if rank is not None else axis
        size = tensor.shape[axis] if rank is not None else None
        return _Cut(path, tensor, axis, size)

    def check_sizes(self) -> None:
        """Compare the sizes with B and with each other: here where they are known, else when the graph runs."""
        cuts = [leaf for leaf in self.found if isinstance(leaf, _Cut)]
        known = [cut for cut in cuts if cut.size is not None]
        for cut in known:
            if (cut.size or 0) % self.num_microbatches:
                raise SMPSplitError(f"{self._indivisible(cut)} {cut.size}")
        if len({cut.size for cut in known}) > 1:
            raise SMPSplitError(_unequal(known) + " " + ", ".join(f"{cut.name}: {cut.size}" for cut in known))
        unknown = [cut for cut in cuts if cut.size is None]
        self.checks.extend(self._check_when_run(cut, (known or unknown)[0]) for cut in unknown)

    def _check_when_run(self, cut: _Cut, reference: _Cut) -> Any:
        size = cut.dynamic_size()
        # Data of int32 keep TensorFlow from wrapping the assertion in a conditional.
        divides = tf.debugging.Assert(
            tf.equal(size % self.num_microbatches, 0), [self._indivisible(cut), tf.cast(size, tf.int32)]
        )
        if cut is reference:
            return divides
        with tf.control_dependencies([divides]):
            expected = reference.dynamic_size()
            message = f"{_unequal([reference, cut])} {reference.name}, {cut.name}:"
            return tf.debugging.Assert(
                tf.equal(size, expected), [message, tf.cast(expected, tf.int32), tf.cast(size, tf.int32)]
            )

    def _indivisible(self, cut: _Cut) -> str:
        return (
            f"argument {cut.name} cannot be cut on axis {cut.axis} into {self.num_microbatches} microbatches of equal "
            f"size: use a batch size that is a multiple of {self.num_microbatches}, and drop a smaller last batch by "
            f"dataset.batch(..., drop_remainder=True). Received size:"
        )

    # Pieces

    def _cut(self, cut: _Cut) -> Split:
        count = self.num_microbatches
        if count == 1:
            # Through the assertions, which an unused control dependency would not hold back.
            held = tf.nest.map_structure(tf.identity, cut.tensor, expand_composites=True) if self.checks else cut.tensor
            pieces = (held,)
        elif isinstance(cut.tensor, tf.SparseTensor):
            pieces = _cut_sparse(cut, count)
        else:
            # No tf.split: TensorFlow's graph optimizer moves what is done to each of its results up before it, and with
            # that the wait for earlier microbatches: a cycle.
            length = (cut.dynamic_size() if cut.size is None else cut.size) // count
            before = [slice(None)] * cut.axis
            pieces = tuple(cut.tensor[(*before, slice(mb * length, (mb + 1) * length))] for mb in range(count))
        return Split(cut.name, pieces, _common_spec(pieces))


def _cut_sparse(cut: _Cut, count: int) -> tuple[Any, ...]:
    size = cut.tensor.dense_shape
    on_axis = tf.one_hot(cut.axis, cut.tensor.shape.rank, dtype=tf.int64)
    length = size // (1 + on_axis * (count - 1))
    static = cut.tensor.shape.as_list()
    static[cut.axis] = None if cut.size is None else cut.size // count
    pieces = [tf.sparse.slice(cut.tensor, on_axis * length * mb, length) for mb in range(count)]
    shaped = []
    for piece in pieces:
        shape = tf.ensure_shape(piece.dense_shape, [len(static)])
        constant = tf.constant(static, tf.int64) if None not in static else shape
        shaped.append(tf.SparseTensor(piece.indices, piece.values, constant))
    return tuple(shaped)


@dataclass(frozen=True)
class _Renumbered:
    """A structure whose leaves lie elsewhere in the list."""

    structure: Node
    places: tuple[Node, ...]

    def key(self) -> Hashable:
        return self.structure.key(), tuple(place.key() for place in self.places)

    def build(self, values: Sequence[Any]) -> Any:
        return self.structure.build([place.build(values) for place in self.places])


def _visit_piece(item: Any, path: str, leaves: list[Leaf]) -> Node:
    if _is_tensor_like(item):
        tensor = item if _is_composite(item) else tf.convert_to_tensor(item)
        leaves.append(Whole(path, tensor, _spec_of(tensor)))
    else:
        leaves.append(Static(path, item))
    return LeafNode(len(leaves) - 1)


def _merge(group: tuple[Leaf, ...]) -> Leaf | None:
    first = group[0]
    if isinstance(first, Static):
        return first if all(leaf.key() == first.key() for leaf in group) else None
    tensors = [leaf.tensor for leaf in group if isinstance(leaf, Whole)]
    if len(tensors) < len(group):
        return None
    try:
        return Split(first.name, tuple(tensors), _common_spec(tensors))
    except ValueError:
        return None


# --- kinds of values --------------------------------------------------------------------------------------------------


def _is_sliceable(value: Any) -> bool:
    return isinstance(value, Sliceable) and not isinstance(value, type)


def _is_tensor_like(value: Any) -> bool:
    if isinstance(value, (type, str, bytes)):
        return False
    return tf.is_tensor(value) or isinstance(value, tf.Variable) or hasattr(value, "__array__") or _is_composite(value)


def _is_composite(value: Any) -> bool:
    return isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable)


def _spec_of(tensor: Any) -> tf.TypeSpec:
    # The spec of a symbolic tensor carries its name, which must not keep equal arguments apart.
    return (
        tf.TensorSpec(tensor.shape, tensor.dtype)
        if tf.is_tensor(tensor) and not _is_composite(tensor)
        else (tf.type_spec_from_value(tensor))
    )


def _common_spec(pieces: Sequence[Any]) -> tf.TypeSpec:
    specs = [_spec_of(piece) for piece in pieces]
    common = specs[0].most_specific_common_supertype(specs[1:])
    if common is None:
        raise ValueError(f"the pieces have nothing in common: {specs}")
    return common


def _unequal(cuts: Sequence[_Cut]) -> str:
    # No quotation marks: an assertion op prints them with a backslash.
    names = ", ".join(cut.name for cut in cuts)
    return (
        f"arguments {names} have different batch sizes: pass batches of one size, name what is no batch in "
        "non_split_inputs, or the right axis in input_split_axes. Received sizes:"
    )
