"""Compression of tensors while they are sent."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """The interface of a compression: subclasses of scripts may be given as `compression`."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Return the tensor to send, and the context for `decompress`.

        Args:
            tensor: Any shape and dtype.
        """
        raise NotImplementedError(
            "a compression has compress(tensor), which returns what to send and a context; write both methods"
        )

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        """Return the received tensor in its original form.

        Args:
            tensor: The received tensor.
            context: What `compress` returned beside the tensor.
        """
        raise NotImplementedError(
            "a compression has decompress(tensor, context), which returns the tensor; write both methods"
        )


class NoneCompressor(Compressor):
    """Tensors are sent unchanged."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Return the tensor to send, and the context for `decompress`.

        Args:
            tensor: Any shape and dtype.
        """
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        """Return the received tensor.

        Args:
            tensor: The received tensor.
            context: None.
        """
        del context
        return tensor


class FP16Compressor(Compressor):
    """Floats are sent in half precision."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Any, Any]:
        """Return the tensor to send, and the context for `decompress`.

        Args:
            tensor: Floats become float16; other dtypes stay.
        """
        return (tf.cast(tensor, tf.float16) if tensor.dtype.is_floating else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        """Return the tensor in its original precision.

        Args:
            tensor: The received tensor.
            context: The original dtype.
        """
        return tf.cast(tensor, context)


class Compression:
    """Compression of floats in collectives: `Compression.none`, or `Compression.fp16` (half precision)."""

    none = NoneCompressor
    fp16 = FP16Compressor
