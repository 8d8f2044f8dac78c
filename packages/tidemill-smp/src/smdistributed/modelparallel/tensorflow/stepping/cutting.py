"""Splits the tensors of a batch into microbatches, after comparing their batch sizes."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPSplitError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.stepping.kinds import (
    Sliceable,
    common_spec,
    is_composite,
    is_sliceable,
    is_tensor_like,
    spec_of,
)
from smdistributed.modelparallel.tensorflow.stepping.leaves import Leaf, Sliced, Split, Static, Whole
from smdistributed.modelparallel.tensorflow.stepping.structure import LeafNode, StructureNode, take_apart


@dataclass
class _Cut:
    """A tensor to split, once the sizes of all tensors have been compared."""

    name: str
    tensor: Any
    axis: int
    size: int | None

    def dynamic_size(self) -> Tensor:
        if isinstance(self.tensor, tf.RaggedTensor):
            return self.tensor.nrows(out_type=tf.int64)
        if isinstance(self.tensor, tf.SparseTensor):
            return self.tensor.dense_shape[self.axis]
        return tf.shape(self.tensor, out_type=tf.int64)[self.axis]


@dataclass
class ArgumentCutter:
    num_microbatches: int
    found: list[_Cut | Leaf] = field(default_factory=list)
    checks: list[GraphOperation] = field(default_factory=list)

    def take(self, name: str, value: object, *, axis: int, whole: bool) -> StructureNode:
        """Take an argument apart into leaves for the microbatches.

        Args:
            name: Name of the parameter.
            value: The argument: a structure of tensors and Python values.
            axis: Axis of the batch.
            whole: Whether it is not split.

        Returns:
            The structure without its leaves.
        """

        def visit(item: Any, path: str) -> StructureNode:
            return self._leaf(item, path, axis=axis, whole=whole, parameter=name)

        return take_apart(value, name, visit, lambda item: not whole and is_sliceable(item))

    def leaves(self) -> list[Leaf]:
        with tf.control_dependencies(self.checks):
            return [self._cut(leaf) if isinstance(leaf, _Cut) else leaf for leaf in self.found]

    # Kinds of leaves

    def _leaf(self, item: Any, path: str, *, axis: int, whole: bool, parameter: str) -> StructureNode:
        if is_sliceable(item) and not whole:
            return self._slice(item, path, axis)
        if not is_tensor_like(item):
            return self._add(Static(path, item))
        tensor = item if is_composite(item) else tf.convert_to_tensor(item)
        if whole or isinstance(item, np.generic):
            return self._add(Whole(path, tensor, spec_of(tensor)))
        if is_composite(tensor) and not isinstance(tensor, (tf.RaggedTensor, tf.SparseTensor)):
            return self._other_composite(tensor, path, parameter)
        return self._add(self._to_cut(tensor, path, axis, parameter))

    def _add(self, leaf: _Cut | Leaf) -> StructureNode:
        self.found.append(leaf)
        return LeafNode(len(self.found) - 1)

    def _other_composite(self, value: object, path: str, parameter: str) -> StructureNode:
        if isinstance(value, (tf.data.Iterator, tf.TensorArray, tf.data.Dataset)):
            return self._add(Whole(path, value, spec_of(value)))
        raise SMPSplitError(
            f"argument {path!r} is a {type(value).__name__}, which cannot be cut into microbatches: give its class "
            f"a method smp_slice(self, num_mb, mb, axis), or name {parameter!r} in non_split_inputs to pass it whole"
        )

    def _slice(self, item: Sliceable, path: str, axis: int) -> StructureNode:
        count = self.num_microbatches
        pieces = tuple(item.smp_slice(count, mb, axis) for mb in range(count))
        return self._uniform(pieces, path) or self._add(Sliced(path, pieces))

    def _uniform(self, pieces: tuple[Tensor, ...], path: str) -> StructureNode | None:
        """Convert pieces that differ only in tensor values to split tensors: one trace then serves all microbatches."""
        per_piece: list[list[Leaf]] = []
        structures: list[StructureNode] = []
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
        """Compare the batch sizes with B and with each other: here if they are static, else when the graph runs."""
        cuts = [leaf for leaf in self.found if isinstance(leaf, _Cut)]
        known = [cut for cut in cuts if cut.size is not None]
        for cut in known:
            if (cut.size or 0) % self.num_microbatches:
                raise SMPSplitError(f"{self._indivisible(cut)} {cut.size}")
        if len({cut.size for cut in known}) > 1:
            raise SMPSplitError(_unequal(known) + " " + ", ".join(f"{cut.name}: {cut.size}" for cut in known))
        unknown = [cut for cut in cuts if cut.size is None]
        self.checks.extend(self._check_when_run(cut, (known or unknown)[0]) for cut in unknown)

    def _check_when_run(self, cut: _Cut, reference: _Cut) -> GraphOperation:
        size = cut.dynamic_size()
        # With int32 data TensorFlow does not wrap the assertion in a conditional.
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
            # Make the pieces depend on the assertions: an unused control dependency would be pruned.
            held = tf.nest.map_structure(tf.identity, cut.tensor, expand_composites=True) if self.checks else cut.tensor
            pieces = (held,)
        elif isinstance(cut.tensor, tf.SparseTensor):
            pieces = _cut_sparse(cut, count)
        else:
            # Not tf.split: TensorFlow's graph optimizer hoists ops on its results above the split, together with their
            # control dependencies on earlier microbatches, which closes a cycle.
            length = (cut.dynamic_size() if cut.size is None else cut.size) // count
            before = [slice(None)] * cut.axis
            pieces = tuple(cut.tensor[(*before, slice(mb * length, (mb + 1) * length))] for mb in range(count))
        return Split(cut.name, pieces, common_spec(pieces), cut.axis)


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
    """A structure whose leaves have other indices in the list of leaves."""

    structure: StructureNode
    leaves: tuple[StructureNode, ...]

    def key(self) -> Hashable:
        return self.structure.key(), tuple(leaf.key() for leaf in self.leaves)

    def build(self, values: Sequence[Any]) -> Any:
        return self.structure.build([leaf.build(values) for leaf in self.leaves])


def _visit_piece(item: Any, path: str, leaves: list[Leaf]) -> StructureNode:
    if is_tensor_like(item):
        tensor = item if is_composite(item) else tf.convert_to_tensor(item)
        leaves.append(Whole(path, tensor, spec_of(tensor)))
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
        return Split(first.name, tuple(tensors), common_spec(tensors))
    except ValueError:
        return None


def _unequal(cuts: Sequence[_Cut]) -> str:
    # Without quotation marks: an assertion op prints them with a backslash.
    names = ", ".join(cut.name for cut in cuts)
    return (
        f"arguments {names} have different batch sizes: pass batches of one size, name what is no batch in "
        "non_split_inputs, or the right axis in input_split_axes. Received sizes:"
    )
