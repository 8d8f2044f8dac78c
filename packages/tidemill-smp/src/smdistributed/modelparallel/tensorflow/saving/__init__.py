"""One file of the whole model: as a SavedModel, and in Keras's own format."""
