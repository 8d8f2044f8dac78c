"""Optimizers of Keras 3 and tf_keras, patched for partitions: only local slots, norms and loss scales of all ranks."""
