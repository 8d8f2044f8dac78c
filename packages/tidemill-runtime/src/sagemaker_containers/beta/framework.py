"""The names of `sagemaker_containers.beta.framework` that training scripts use: `training_env` and `env`."""

from sagemaker_containers import training_env
from sagemaker_training import environment as env

__all__ = ["env", "training_env"]


def __getattr__(name: str) -> object:
    if name.startswith("__"):  # the import system asks for __path__
        raise AttributeError(name)
    raise ImportError(
        f"sagemaker_containers.beta.framework.{name} is not here: tidemill has env and training_env; for the rest of"
        " AWS's package, put sagemaker-containers into requirements.txt"
    )
