"""The part of SageMaker's training toolkit that scripts use: `sagemaker_training.environment`.

The toolkit itself is not in the environments of jobs, because tidemill's runtime does its work. With
``sagemaker-training`` in requirements.txt, a script gets the real package.
"""


def __getattr__(name: str) -> object:
    if name.startswith("__"):  # the import system asks for __path__
        raise AttributeError(name)
    raise ImportError(
        f"sagemaker_training.{name} is not here: tidemill has sagemaker_training.environment; for the rest of AWS's"
        " toolkit, put sagemaker-training into requirements.txt"
    )
