"""The Horovod API: see `horovod.tensorflow`."""

__version__ = "0.28.1+tidemill"
"""The Horovod release whose API this package provides."""
