"""Replacement of Horovod, which cannot be installed with current TensorFlow."""
