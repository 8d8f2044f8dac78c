"""Smaller numbers on the way."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["Compression"]


class _None:
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Give what travels, and what `decompress` needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """Give the tensor back."""
        del context
        return tensor


class _Half:
    """Floats travel in half precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Give what travels, and what `decompress` needs."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """Give the tensor in the precision that it had."""
        return tf.cast(tensor, context)


class Compression:
    """How `allreduce` packs floats: `Compression.none`, or `Compression.fp16`."""

    none = _None
    fp16 = _Half
