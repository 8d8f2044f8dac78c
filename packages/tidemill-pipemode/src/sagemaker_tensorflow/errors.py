"""Errors of Pipe mode.

    Exception
    +-- PipeModeDatasetException   the dataset cannot be created: channel, mode or arguments are wrong
    RuntimeWarning
    +-- PipeModeFallbackWarning    the native reader is not available; the Python reader is used

Errors while reading records are `tf.errors.InternalError`, raised by the reader's op. A signal during a wait raises
`tf.errors.AbortedError`; for Ctrl-C, Python replaces it with KeyboardInterrupt.
"""

__all__ = ["PipeModeDatasetException", "PipeModeFallbackWarning"]


class PipeModeDatasetException(Exception):
    """Raised if a PipeModeDataset cannot be created from these arguments in this training job."""


class PipeModeFallbackWarning(RuntimeWarning):
    """Issued if the native reader is not available; the Python reader returns the same records, slower."""
