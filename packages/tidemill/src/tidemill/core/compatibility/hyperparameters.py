"""Rows of the hyperparameters with which AWS's SDKs and the training toolkit configure the platform.

All begin with ``sagemaker_``, except the few that an SDK sends under a plain name. Every other hyperparameter belongs
to the user and reaches the script. A ``sagemaker_`` name without a row is shown to the script in
``SM_FRAMEWORK_PARAMS``; SageMaker does no more with it.
"""

from collections.abc import Mapping
from typing import Any

from tidemill.core import hyperparameters as hps
from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Row, honored

_NO_TORCH = "jobs train with TensorFlow; leave out the distribution of PyTorch"
_OF_MPI = "belongs to `sagemaker_mpi_enabled`, and has no effect without it"

LEGACY_MODE: Mapping[str, str] = {
    "training_steps": "pass hyperparameters={'training_steps': ...} and read --training_steps in the script",
    "evaluation_steps": "pass hyperparameters={'evaluation_steps': ...} and read --evaluation_steps in the script",
    "checkpoint_path": "pass model_dir=... (the script gets it as --model_dir), or checkpoint_s3_uri=...",
    "requirements_file": "put a requirements.txt beside the entry point in source_dir; it is installed for the job",
}
"""Arguments of legacy mode, which ended with TensorFlow 1.12, with the equivalent in script mode."""

HYPERPARAMETERS: Mapping[str, Row] = {
    **honored("sagemaker_submit_directory", "sagemaker_program", "sagemaker_container_log_level"),
    **honored("sagemaker_job_name", "sagemaker_region"),
    "_tuning_objective_metric": Honored("gives each trial a separate model_dir"),
    "sagemaker_instance_type": Recorded("shown to the script in `SM_FRAMEWORK_PARAMS`"),
    "sagemaker_enable_cloudwatch_metrics": Recorded("of legacy mode; without effect in script mode, as on SageMaker"),
    "default_user_module_name": Recorded("of legacy mode; without effect in script mode, as on SageMaker"),
    "sagemaker_s3_output": Honored(
        "an S3 prefix: while the job runs, files in output/intermediate are copied to `NAME/output/intermediate` below"
        " it; its bucket must exist in the service's own S3. A `file://` URI has no effect"
    ),
    "sagemaker_requirements": Refused(
        "it belongs to legacy mode, which ended with TensorFlow 1.12. In script mode"
        f" {LEGACY_MODE['requirements_file']}"
    ),
    "sagemaker_parameter_server_enabled": Honored(
        "sets TF_CONFIG and starts a parameter server on every instance; without effect for a job of one instance, as"
        " on SageMaker. Several instances need isolation mode `full`"
    ),
    "sagemaker_distribution_instance_groups": Honored("shown to the script"),
    "sagemaker_multi_worker_mirrored_strategy_enabled": Honored(
        "sets TF_CONFIG, also with one instance. The job runs in isolation mode `full` if the machine allows it;"
        " several instances need that mode"
    ),
    "sagemaker_mpi_enabled": Honored(
        "from TensorFlow 2.12 on. Each instance shows its own ranks in its log stream; several instances need isolation"
        " mode `full`"
    ),
    "sagemaker_mpi_num_of_processes_per_host": Honored(_OF_MPI),
    "sagemaker_mpi_num_processes": Honored(_OF_MPI),
    "sagemaker_mpi_custom_mpi_options": Honored(
        f"{_OF_MPI}. Options have the spelling of Open MPI 4; `-mca` has no effect under MPICH. An option that cannot"
        " be honored ends the job, and the FailureReason names the option"
    ),
    "mp_parameters": Honored(
        "shown to the script in `SM_HP_MP_PARAMETERS`, where the library of model parallelism reads them;"
        " `sagemaker_mpi_enabled` starts its ranks"
    ),
    "sagemaker_distributed_dataparallel_enabled": Refused(
        "jobs with SageMaker's data parallelism are not offered; leave out distribution={'smdistributed':"
        " {'dataparallel': ...}}"
    ),
    "sagemaker_distributed_dataparallel_custom_mpi_options": Recorded(
        "belongs to `sagemaker_distributed_dataparallel_enabled`, and has no effect without it"
    ),
    "sagemaker_training_compiler_enabled": Honored(
        "training steps are compiled by XLA if measurements show that it is faster, on TensorFlow 2.12 (which runs 2.9"
        " to 2.11) and newer; an older one runs plain, with a line in the log"
    ),
    "sagemaker_training_compiler_debug_mode": Honored("writes XLA's dumps to `output/data/compiler/hlo`"),
    "sagemaker_training_compiler_max_cost": Honored(
        "the share of a training's time that compiling may cost (0.04); `inf` compiles at once. Not a name of AWS's"
    ),
    "sagemaker_pytorch_ddp_enabled": Refused(_NO_TORCH),
    "sagemaker_pytorch_xla_multi_worker_enabled": Refused(_NO_TORCH),
    "sagemaker_torch_distributed_enabled": Refused(_NO_TORCH),
}

REFUSED_HYPERPARAMETERS = frozenset(name for name, row in HYPERPARAMETERS.items() if isinstance(row, Refused))
"""Names for which `hyperparameter_refusal` may return a reason."""


def hyperparameter_refusal(name: str, value: Any) -> str | None:
    """Return why a hyperparameter is refused, or None.

    Args:
        name: E.g. ``sagemaker_mpi_enabled``.
        value: The decoded value, or its text in a request. A text is decoded first, so ``"false"`` requests nothing.
    """
    row = HYPERPARAMETERS.get(name)
    if not isinstance(row, Refused):
        return None
    decoded = hps.decode({name: value})[name] if isinstance(value, str) else value
    return row.refusal(decoded) if decoded else None
