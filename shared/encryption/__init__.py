"""Encryption between the ranks and instances of a job, which share a secret and nothing else."""
