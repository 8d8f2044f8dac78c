"""Compression of tensors while they are sent."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["Compression"]


class _None:
    """Tensors are sent unchanged."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and the context for `decompress`."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """Return the received tensor."""
        del context
        return tensor


class _Half:
    """Floats are sent in half precision."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send, and the context for `decompress`."""
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, context: Any) -> Any:
        """Return the tensor in its original precision."""
        return tf.cast(tensor, context)


class Compression:
    """Compression of floats in collectives: `Compression.none`, or `Compression.fp16` (half precision)."""

    none = _None
    fp16 = _Half
