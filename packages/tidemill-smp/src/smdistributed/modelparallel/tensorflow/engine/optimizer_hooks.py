"""The hooks into the optimizers of the Keras that the script uses."""

from smdistributed.modelparallel.tensorflow.engine.slots import release_foreign_slots
from smdistributed.modelparallel.tensorflow.keras_api import IS_TF_KERAS

if IS_TF_KERAS:
    from smdistributed.modelparallel.tensorflow.engine.optimizers_of_tf_keras import install
else:
    from smdistributed.modelparallel.tensorflow.engine.optimizers import install

__all__ = ["install", "release_foreign_slots"]
