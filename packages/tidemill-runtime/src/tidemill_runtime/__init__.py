"""The training environment inside a job. Standard library only."""

__all__ = ["__version__"]

__version__ = "0.1.0"
