"""Errors of Pipe mode.

    Exception
    +-- PipeModeDatasetException   the dataset cannot be made: channel, mode or arguments are wrong
    RuntimeWarning
    +-- PipeModeFallbackWarning    the reader in Python is used, since the native one cannot be

What goes wrong while records are read is a `tf.errors.InternalError`, raised by the reader's op; a signal in the middle
of a wait ends it with `tf.errors.AbortedError`, in whose place Python raises KeyboardInterrupt for Ctrl-C.
"""

__all__ = ["PipeModeDatasetException", "PipeModeFallbackWarning"]


class PipeModeDatasetException(Exception):
    """A PipeModeDataset cannot be made from these arguments and this training job."""


class PipeModeFallbackWarning(RuntimeWarning):
    """The native reader is not to be had; the reader in Python does the same, slower."""
