"""Writes the whole model as a SavedModel or in Keras's formats."""
