"""Lets client code written for AWS's SDK run where that SDK, or its TensorFlow part, is not installed.

    import tidemill.compat
    from sagemaker.tensorflow import TensorFlow

`tidemill run client.py` does the import for a client that shall stay as it is. Importing this package installs a finder
and loads nothing else; AWS's own package wins wherever it answers.
"""

from tidemill.compat.finder import CompatFinder, install

__all__ = ["CompatFinder", "install"]

install()
