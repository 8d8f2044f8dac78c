"""The part of SageMaker Containers, the earlier training toolkit, that scripts use: `training_env`.

With ``sagemaker-containers`` in requirements.txt, a script gets the real package.
"""

from sagemaker_training.environment import Environment


def training_env() -> Environment:
    """Return the properties of this training job.

    Raises:
        RuntimeError: This process is not the script of a training job.
    """
    return Environment()
