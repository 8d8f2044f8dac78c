"""Patches the optimizers of the Keras version that the script uses."""

from smdistributed.modelparallel.tensorflow.keras_api import IS_TF_KERAS

if IS_TF_KERAS:
    from smdistributed.modelparallel.tensorflow.optimizers.tf_keras import install
else:
    from smdistributed.modelparallel.tensorflow.optimizers.keras import install

__all__ = ["install"]
