"""Stands in for Horovod, which cannot be installed with current TensorFlow."""
