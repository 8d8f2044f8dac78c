"""Programs that AWS's SDKs send to start a script: recognize those that start it in a way that does not exist here.

SDK v3's ModelTrainer sends them in the channel `DRIVERS`, in which `MAIN` calls one of them. A remote function
(``@remote``, RemoteExecutor, ``@step``) has an argument of its command. What can run is adapted inside the job, by
``tidemill_runtime.sdk_drivers``.
"""

from collections.abc import Sequence
from itertools import pairwise

DRIVERS = "sm_drivers"
MAIN = "sm_train.sh"

_REMOTE_FUNCTION = "/sagemaker_remote_function_bootstrap/job_driver.sh"
_WITHOUT_PYTORCH = (
    "torchrun belongs to PyTorch, which jobs of TensorFlow do not have: use MPI (distributed=MPI() of ModelTrainer)"
    " with Horovod or mpi4py, or tf.distribute without distributed"
)
_SEVERAL_RESULTS = (
    "use_mpirun: each rank of a remote function would store a result of its own in the same place: use"
    " ModelTrainer(distributed=MPI()), or an estimator with distribution={'mpi': {'enabled': True}}"
)


def driver_refusal(main: str) -> str | None:
    """Return why the driver that ModelTrainer's shell script calls cannot run; None if it can.

    Args:
        main: Text of `MAIN`.
    """
    calls_torchrun = "/distributed_drivers/torchrun_driver.py" in main
    return f"distributed=Torchrun(): {_WITHOUT_PYTORCH}" if calls_torchrun else None


def remote_function_refusal(command: Sequence[str]) -> str | None:
    """Return why a remote function cannot run; None if it can, or if the command runs something else.

    Args:
        command: ContainerEntrypoint and ContainerArguments.
    """
    if not any(word.endswith(_REMOTE_FUNCTION) for word in command):
        return None
    options = dict(pairwise(command))
    reasons = {"torchrun": f"use_torchrun: {_WITHOUT_PYTORCH}", "mpirun": _SEVERAL_RESULTS}
    return reasons.get(options.get("--distribution", ""))
