"""Names in the graphs of traced functions by which tidemill's training compiler finds pipelines.

The compiler is another distribution, which imports nothing from this one: the names are the interface.
"""

import tensorflow as tf

MEASURED = "smp_measured_layer"
"""Part of the names of the functions that measure a layer, which the compiler leaves alone."""

SEGMENT = "smp_segment"
"""Part of the names of the functions that compute segments."""
TRAINING = "smp_training_pipeline"
"""Name of a NoOp in every function that runs a step with gradients, on all ranks of the replica."""
AVERAGING = "smp_averaging"
"""Name of a NoOp in every function in which the ranks of a partition average gradients over the replicas."""


def mark(name: str) -> None:
    """Add a NoOp with this name to the graph under construction, if there is one."""
    if not tf.executing_eagerly():
        tf.no_op(name=name)
