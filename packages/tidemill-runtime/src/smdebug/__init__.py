"""A stand-in for SageMaker Debugger's library, so that scripts with its hooks run.

It saves no tensors and evaluates no rules, which the log says. The real library supports no recent TensorFlow; with
``smdebug`` in requirements.txt, a script gets it.
"""

from smdebug.core.configuration import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes

__all__ = ["CollectionKeys", "ReductionConfig", "SaveConfig", "SaveConfigMode", "modes"]
