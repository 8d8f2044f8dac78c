"""Hyperparameter tuning jobs: admission, the search for values, and the driver that creates the trainings."""
