"""The exceptions of the library.

SageMaker's training toolkit imports this module and looks for each class name in the job's error lines, so that the
failure reason of a job names the exception. The module is therefore flat, and each name says what happened:

    SMPError
    ├── SMPConfigurationError (ValueError)   a parameter, or the number of ranks, is not allowed
    ├── SMPNotInitializedError               smp.init() has not been called
    ├── SMPUsageError                        a call in the wrong place: model outside a step, step inside a step, ...
    ├── SMPSplitError (ValueError)           a batch cannot be split into the microbatches
    ├── SMPPartitionError (ValueError)       a partition index that does not exist, or a cut that is impossible
    ├── SMPInputMismatchError (ValueError)   ranks of one replica received different batches
    ├── SMPPlanMismatchError                 ranks traced different steps
    ├── SMPRemoteVariableError               a variable that another rank holds was read, written or saved here
    ├── SMPCheckpointError                   a checkpoint cannot be written or read
    ├── SMPPeerLostError                     another rank exited
    └── SMPDeadlockError                     another rank did not answer in time
"""

__all__ = [
    "SMPCheckpointError",
    "SMPConfigurationError",
    "SMPDeadlockError",
    "SMPError",
    "SMPInputMismatchError",
    "SMPNotInitializedError",
    "SMPPartitionError",
    "SMPPeerLostError",
    "SMPPlanMismatchError",
    "SMPRemoteVariableError",
    "SMPSplitError",
    "SMPUsageError",
]


class SMPError(Exception):
    """Base class of every exception that this library defines."""

    # tf.function re-raises an exception of tracing with its class only if the class has the constructor of Exception.
    __init__ = Exception.__init__


class SMPConfigurationError(SMPError, ValueError):
    """A parameter of `smp.init`, or the number of ranks, is not allowed."""


class SMPNotInitializedError(SMPError, RuntimeError):
    """`smp.init()` has not been called in this process."""


class SMPUsageError(SMPError, RuntimeError):
    """A call in the wrong place, or with an argument that is refused there."""


class SMPSplitError(SMPError, ValueError):
    """A batch cannot be split into the microbatches."""


class SMPPartitionError(SMPError, ValueError):
    """A partition index does not exist, or the model cannot be cut as requested."""


class SMPInputMismatchError(SMPError, ValueError):
    """Ranks of one replica received different batches; all ranks of a replica must train on the same batch."""


class SMPPlanMismatchError(SMPError, RuntimeError):
    """The ranks of a replica traced different steps: the script, its data or its seeds differ between them."""


class SMPRemoteVariableError(SMPError, RuntimeError):
    """A variable that another rank holds was read, written or saved here."""


class SMPCheckpointError(SMPError, RuntimeError):
    """A checkpoint cannot be written or read."""


class SMPPeerLostError(SMPError, RuntimeError):
    """Another rank exited."""


class SMPDeadlockError(SMPError, TimeoutError):
    """Another rank did not answer in time."""
