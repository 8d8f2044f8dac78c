"""The exceptions of the library.

SageMaker's training toolkit imports this module and takes every class name in it for a pattern of error lines, so that
the reason of a failed job names the exception. Hence one flat module, and names that say what happened:

    SMPError
    ├── SMPConfigurationError (ValueError)   a parameter, or the number of ranks, is not allowed
    ├── SMPNotInitializedError               smp.init() has not been called
    ├── SMPUsageError                        a call in the wrong place: model outside a step, step inside a step, ...
    ├── SMPSplitError (ValueError)           a batch cannot be cut into the microbatches
    ├── SMPPartitionError (ValueError)       a partition index that does not exist, a cut that cannot be made
    ├── SMPInputMismatchError (ValueError)   ranks of one replica were given different batches
    ├── SMPPlanMismatchError                 ranks traced different steps
    ├── SMPForeignVariableError              a variable that another rank holds was read, written or saved here
    ├── SMPCheckpointError                   a checkpoint cannot be written or read
    ├── SMPPeerLostError                     another rank died
    └── SMPDeadlockError                     another rank did not answer in time
"""

__all__ = [
    "SMPCheckpointError",
    "SMPConfigurationError",
    "SMPDeadlockError",
    "SMPError",
    "SMPForeignVariableError",
    "SMPInputMismatchError",
    "SMPNotInitializedError",
    "SMPPartitionError",
    "SMPPeerLostError",
    "SMPPlanMismatchError",
    "SMPSplitError",
    "SMPUsageError",
]


class SMPError(Exception):
    """The root: catch this to catch everything that the library raises by itself."""

    # A tf.function hands on the class of what is raised while it is traced only if it is made as an Exception is.
    __init__ = Exception.__init__


class SMPConfigurationError(SMPError, ValueError):
    """A parameter of `smp.init`, or the number of ranks, is not allowed."""


class SMPNotInitializedError(SMPError, RuntimeError):
    """`smp.init()` has not been called in this process."""


class SMPUsageError(SMPError, RuntimeError):
    """A call in the wrong place."""


class SMPSplitError(SMPError, ValueError):
    """A batch cannot be cut into the microbatches."""


class SMPPartitionError(SMPError, ValueError):
    """A partition index that does not exist, or a model that cannot be cut as asked."""


class SMPInputMismatchError(SMPError, ValueError):
    """Ranks of one replica were given different batches: each replica trains on one, all its ranks on the same."""


class SMPPlanMismatchError(SMPError, RuntimeError):
    """The ranks of a replica traced different steps: the script, its data or its seeds differ between them."""


class SMPForeignVariableError(SMPError, RuntimeError):
    """A variable that another rank holds was read, written or saved here."""


class SMPCheckpointError(SMPError, RuntimeError):
    """A checkpoint cannot be written or read."""


class SMPPeerLostError(SMPError, RuntimeError):
    """Another rank died."""


class SMPDeadlockError(SMPError, TimeoutError):
    """Another rank did not answer in time."""
