"""Run client code written for AWS's SDK even if that SDK, or its TensorFlow part, is not installed.

    import tidemill.compat
    from sagemaker.tensorflow import TensorFlow

`tidemill run client.py` does this import for an unchanged client. Importing this package installs an import finder and
loads nothing else. Modules of AWS's own package take precedence.
"""

from tidemill.compat.finder import CompatFinder, install

__all__ = ["CompatFinder", "install"]

install()
