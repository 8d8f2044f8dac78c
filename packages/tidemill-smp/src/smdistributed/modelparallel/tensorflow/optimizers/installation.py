"""Patches the optimizers of the Keras version that the script uses."""

from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2

if IS_KERAS_2:
    from smdistributed.modelparallel.tensorflow.optimizers.keras_2 import install
else:
    from smdistributed.modelparallel.tensorflow.optimizers.keras import install

__all__ = ["install"]
