"""Experiments: trials, trial components, their metrics, and the components of jobs."""
