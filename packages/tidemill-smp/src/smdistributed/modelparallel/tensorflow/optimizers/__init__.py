"""Optimizers of Keras 3 and Keras 2, patched for partitions: only local slots, norms and loss scales of all ranks."""
