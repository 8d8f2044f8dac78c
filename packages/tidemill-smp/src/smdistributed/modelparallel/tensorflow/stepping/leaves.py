"""Leaves of the arguments of a call: split tensors, whole tensors, and Python values."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.stepping.structure import Identity, static_key


@dataclass(frozen=True)
class Split:
    """A tensor that was split."""

    name: str
    """Its path in the call, such as `x['image']`."""
    pieces: tuple[Tensor, ...]
    """One tensor (`tf.Tensor`, `tf.RaggedTensor` or `tf.SparseTensor`) per microbatch."""
    spec: tf.TypeSpec
    """Compatible with every piece; the split axis is None if the batch size is unknown."""
    axis: int = 0
    """The axis on which the tensor was split."""

    def value(self, microbatch: int) -> Any:
        """Return the value for microbatch `microbatch`.

        Args:
            microbatch: From 0.

        Returns:
            A tensor.
        """
        return self.pieces[microbatch]

    def key(self) -> Hashable:
        """Return the properties of the leaf that a trace depends on."""
        return "split", self.spec


@dataclass(frozen=True)
class Whole:
    """A tensor that every microbatch receives whole."""

    name: str
    tensor: Any
    """A `tf.Tensor`, or a composite tensor."""
    spec: tf.TypeSpec

    def value(self, microbatch: int) -> Any:
        """Return the value for microbatch `microbatch`.

        Args:
            microbatch: Ignored.

        Returns:
            A tensor.
        """
        del microbatch
        return self.tensor

    def key(self) -> Hashable:
        """Return the properties of the leaf that a trace depends on."""
        return "whole", self.spec


@dataclass(frozen=True)
class Static:
    """A Python value that every microbatch receives."""

    name: str
    static: object

    def value(self, microbatch: int) -> Any:
        """Return the value for microbatch `microbatch`.

        Args:
            microbatch: Ignored.

        Returns:
            A Python value.
        """
        del microbatch
        return self.static

    def key(self) -> Hashable:
        """Return the properties of the leaf that a trace depends on."""
        return "static", static_key(self.static)


@dataclass(frozen=True)
class Sliced:
    """Results of `smp_slice` that differ in more than tensor values, so that each microbatch is traced separately."""

    name: str
    pieces: tuple[Tensor, ...]
    """Anything, one per microbatch."""

    def value(self, microbatch: int) -> Any:
        """Return the value for microbatch `microbatch`.

        Args:
            microbatch: From 0.

        Returns:
            What `smp_slice` returned.
        """
        return self.pieces[microbatch]

    def key(self) -> Hashable:
        """Return the identity of the pieces, which may contain tensors of the graph under construction."""
        return "sliced", tuple(Identity(piece) for piece in self.pieces)


Leaf = Split | Whole | Static | Sliced
