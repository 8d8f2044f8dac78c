"""A model server for SageMaker endpoints on the TensorFlow wheel itself."""

__all__ = ["__version__"]

__version__ = "0.1.0"
