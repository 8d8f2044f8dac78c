"""The Horovod API: see `horovod.tensorflow`."""

__version__ = "0.28.1+tidemill"
"""The version of Horovod whose calls these are."""
