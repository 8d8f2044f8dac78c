"""Encrypt connections between the ranks and instances of a job, which share one secret."""
