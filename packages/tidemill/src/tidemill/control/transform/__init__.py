"""Batch transform: the objects of a prefix or manifest, sent to servers of a model, and the results in S3."""
