"""Which partition each part of a model belongs to."""
