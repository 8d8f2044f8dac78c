"""Advice for scripts written for Keras 2, or for `tf.estimator`, that fail on TensorFlow 2.16 or newer.

These have Keras 3. Only errors are listed that a script of Keras 2 causes, and that do not occur with TensorFlow 2.15.
"""

from __future__ import annotations

import re

_NAMES = (
    "reset_states|lr|minimize|get_scaled_loss|get_unscaled_gradients|aggregate_gradients"
    "|fit_generator|evaluate_generator|predict_generator|updates|state_updates"
    "|input_shape|output_shape|get_input_at|get_output_at|get_input_shape_at|get_output_shape_at"
    "|inbound_nodes|outbound_nodes|read_value|learning_phase|set_learning_phase|function"
    "|experimental|estimator|DenseFeatures|SequenceFeatures|LocallyConnected1D|LocallyConnected2D"
)
"""Attributes of objects and modules of Keras 2 that Keras 3 lacks."""
_LEGACY_OPTIMIZERS = "get_updates|get_gradients|get_weights|get_slot|get_slot_names|add_slot|_get_hyper|_set_hyper"
"""Methods that Keras 2 still has in `tf.keras.optimizers.legacy`."""
_ARGUMENTS = (
    "sample_weight_mode|workers|use_multiprocessing|max_queue_size|period|write_grads"
    "|experimental_aggregate_gradients|experimental_run_tf_function"
)
_METHODS = re.compile(r"\.(variables|weights|trainable_variables|trainable_weights|value)\(\)")
"""Calls of what is a property of an optimizer or variable in Keras 3."""
_NOT_CALLABLE = re.compile(r"'(list|ResourceVariable)' object is not callable")
_UNEXPECTED = re.compile(
    r"(\w*Trainer|Model|ModelCheckpoint|TensorBoard|\w*Optimizer)\.\w+\(\) got an unexpected keyword argument "
    f"'({_ARGUMENTS})'"
)
_MESSAGES = re.compile(
    r"Argument\(s\) not recognized: \{'(lr|decay)'"
    r"|Unrecognized keyword arguments passed to \w+: \{'(batch_input_shape|input_dim|weights)'"
    r"|A KerasTensor cannot be used as input to a TensorFlow function"
    r"|Invalid filepath extension for saving\. Please add either a `\.keras` extension"
    r"|File format not supported: .*Keras 3 only supports"
    r"|The filename must end in `\.weights\.h5`"
    r"|The filepath provided must end in `\.keras`"
    r"|`keras\.optimizers\.legacy` is not supported in Keras 3"
    r"|Layer `add_metric\(\)` method is deprecated",
    re.DOTALL,
)
_ESTIMATOR = re.compile(r"module 'tensorflow' has no attribute 'estimator'|No module named 'tensorflow_estimator'")

_WAY = 'set framework_version="2.15"'


def advice(*, message: str, keras: str, owner: str, attribute: str, line: str) -> str:
    """Return what to do about an exception; empty if the script of another Keras is not its cause.

    Args:
        keras: Version of Keras in the process; empty if it had none.
        owner: Module of Keras whose object lacks an attribute; empty for other objects and exceptions.
        line: The innermost line of the script's own code.
    """
    if _ESTIMATOR.search(message):
        return f"tf.estimator ended with TensorFlow 2.15: {_WAY}"
    if not keras.startswith("3."):
        return ""
    told = f"this is code for Keras 2, and TensorFlow 2.16 and newer have Keras 3: {_WAY}"
    if owner and re.fullmatch(_LEGACY_OPTIMIZERS, attribute):
        return f"{told} and use tf.keras.optimizers.legacy, or change the code for Keras 3"
    if (
        (owner and re.fullmatch(_NAMES, attribute))
        or _UNEXPECTED.search(message)
        or (_NOT_CALLABLE.search(message) and _METHODS.search(line))
        or _MESSAGES.search(message)
    ):
        return f"{told}, or change the code for Keras 3"
    return ""
