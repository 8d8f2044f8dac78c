"""SageMaker TensorFlow on your own machines.

Importing this package does no work: the service, the SDK and the command line each load what they need
when they are used.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
