"""What a call's arguments are taken apart into: cut tensors, whole ones, and Python values."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.stepping.structure import Identity, static_key

__all__ = ["Leaf", "Sliced", "Split", "Static", "Whole"]


@dataclass(frozen=True)
class Split:
    """A tensor that was cut."""

    name: str
    """Where it stands in the call, such as `x['image']`."""
    pieces: tuple[Any, ...]
    """One tensor (`tf.Tensor`, `tf.RaggedTensor` or `tf.SparseTensor`) per microbatch."""
    spec: tf.TypeSpec
    """Fits every piece; the cut axis is None where the size of the batch is not known."""
    axis: int = 0
    """On which it was cut."""

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
