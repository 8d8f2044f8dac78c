"""Instances in allocations of a Slurm cluster."""
