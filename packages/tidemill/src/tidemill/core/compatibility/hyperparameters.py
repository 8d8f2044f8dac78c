"""Rows of the hyperparameters by which AWS's SDKs and the training toolkit steer the platform.

All begin with ``sagemaker_``, but for the few that an SDK sends under a plain name. Every other hyperparameter is the
user's own and reaches the script; a ``sagemaker_`` name without a row is shown to the script in
``SM_FRAMEWORK_PARAMS``, which is all that SageMaker does with it.
"""

from collections.abc import Mapping
from typing import Any

from tidemill.core import hyperparameters as hps
from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Row

__all__ = ["HYPERPARAMETERS", "LEGACY_MODE", "hyperparameter_refusal"]

_NO_MPI = "jobs under MPI or Horovod are not offered yet; leave out distribution={'mpi': ...}"
_NO_TORCH = "jobs train with TensorFlow; leave out the distribution of PyTorch"
_OF_MPI = Recorded("belongs to `sagemaker_mpi_enabled`, and has no effect without it")

LEGACY_MODE: Mapping[str, str] = {
    "training_steps": "pass hyperparameters={'training_steps': ...} and read --training_steps in the script",
    "evaluation_steps": "pass hyperparameters={'evaluation_steps': ...} and read --evaluation_steps in the script",
    "checkpoint_path": "pass model_dir=... (the script gets it as --model_dir), or checkpoint_s3_uri=...",
    "requirements_file": "put a requirements.txt beside the entry point in source_dir; it is installed by itself",
}
"""Arguments of legacy mode, which ended with TensorFlow 1.12, and the form of script mode that replaced each."""

HYPERPARAMETERS: Mapping[str, Row] = {
    "sagemaker_submit_directory": Honoured(),
    "sagemaker_program": Honoured(),
    "sagemaker_container_log_level": Honoured(),
    "sagemaker_job_name": Honoured(),
    "sagemaker_region": Honoured(),
    "_tuning_objective_metric": Honoured("gives each trial a model_dir of its own"),
    "sagemaker_instance_type": Recorded("shown to the script in `SM_FRAMEWORK_PARAMS`"),
    "sagemaker_enable_cloudwatch_metrics": Recorded("of legacy mode; without effect in script mode, as on SageMaker"),
    "default_user_module_name": Recorded("of legacy mode; without effect in script mode, as on SageMaker"),
    "sagemaker_s3_output": Refused(
        "output/intermediate is not copied to S3 while a job runs; write to SM_OUTPUT_DATA_DIR, which becomes"
        " output.tar.gz"
    ),
    "sagemaker_requirements": Refused(
        "it belongs to legacy mode, which ended with TensorFlow 1.12. In script mode"
        f" {LEGACY_MODE['requirements_file']}"
    ),
    "sagemaker_parameter_server_enabled": Honoured("on one instance without effect, as on SageMaker"),
    "sagemaker_distribution_instance_groups": Honoured("shown to the script"),
    "sagemaker_multi_worker_mirrored_strategy_enabled": Refused(
        "TF_CONFIG is not made yet; leave out distribution={'multi_worker_mirrored_strategy': ...}, or let the script"
        " set up its own cluster"
    ),
    "sagemaker_mpi_enabled": Refused(_NO_MPI),
    "sagemaker_mpi_num_of_processes_per_host": _OF_MPI,
    "sagemaker_mpi_num_processes": _OF_MPI,
    "sagemaker_mpi_custom_mpi_options": _OF_MPI,
    "mp_parameters": Refused(
        "jobs with model parallelism are not offered yet; leave out distribution={'smdistributed': {'modelparallel':"
        " ...}}, and start the script under mpirun"
    ),
    "sagemaker_distributed_dataparallel_enabled": Refused(
        "jobs with SageMaker's data parallelism are not offered; leave out distribution={'smdistributed':"
        " {'dataparallel': ...}}"
    ),
    "sagemaker_distributed_dataparallel_custom_mpi_options": Recorded(
        "belongs to `sagemaker_distributed_dataparallel_enabled`, and has no effect without it"
    ),
    "sagemaker_training_compiler_enabled": Refused(
        "the training compiler is not offered yet; leave out compiler_config, and use"
        " tf.function(jit_compile=True) or compile(jit_compile=True) in the script",
        harmless=("false", "False"),
    ),
    "sagemaker_training_compiler_debug_mode": Recorded(
        "belongs to `sagemaker_training_compiler_enabled`, and has no effect without it"
    ),
    "sagemaker_pytorch_ddp_enabled": Refused(_NO_TORCH),
    "sagemaker_pytorch_xla_multi_worker_enabled": Refused(_NO_TORCH),
    "sagemaker_torch_distributed_enabled": Refused(_NO_TORCH),
}

_LEGACY_NAMES = ("training_steps", "evaluation_steps", "checkpoint_path")


def hyperparameter_refusal(name: str, value: Any) -> str | None:
    """Return why a hyperparameter is refused, or None.

    Args:
        name: E.g. ``sagemaker_mpi_enabled``.
        value: Decoded, or the text of a request. A text is decoded first, so ``"false"`` asks for nothing.
    """
    row = HYPERPARAMETERS.get(name)
    if not isinstance(row, Refused):
        return None
    decoded = hps.decode({name: value})[name] if isinstance(value, str) else value
    return row.refusal(decoded) if decoded else None
