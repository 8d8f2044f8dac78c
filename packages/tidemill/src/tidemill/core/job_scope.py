"""The scope of a training job: its name and the S3 prefixes that belong to it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tidemill.core.hyperparameters import decode
from tidemill.core.names import S3Uri

__all__ = ["PLACEHOLDERS", "JobScope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScope:
    """Name and S3 prefixes of a job.

    A prefix is ``BUCKET/KEY`` without a slash at the end, or None. Objects whose ARN begins with
    ``arn:aws:s3:::PREFIX/`` belong to the job.

    Attributes:
        name: TrainingJobName.
        output: ``S3OutputPath/NAME``, the prefix of model.tar.gz and output.tar.gz.
        model_dir: The hyperparameter ``model_dir``, if it is an S3 URI.
        checkpoints: ``CheckpointConfig.S3Uri``.
        tensorboard: ``TensorBoardOutputConfig.S3OutputPath/NAME``.
        intermediate: Prefix of the files of ``output/intermediate``: ``NAME`` below the hyperparameter
            ``sagemaker_s3_output``.
    """

    name: str
    output: str | None = None
    model_dir: str | None = None
    checkpoints: str | None = None
    tensorboard: str | None = None
    intermediate: str | None = None

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> "JobScope":
        """Derive the scope from a job's request.

        Args:
            request: The CreateTrainingJob request, by botocore's member names.
        """
        name = str(request["TrainingJobName"])
        values = request.get("HyperParameters", {})
        decoded = decode({each: values.get(each, "") for each in ("model_dir", "sagemaker_s3_output")})
        output = _uri(request.get("OutputDataConfig", {}).get("S3OutputPath"))
        tensorboard = _uri(request.get("TensorBoardOutputConfig", {}).get("S3OutputPath"))
        intermediate = _uri(decoded["sagemaker_s3_output"])
        return cls(
            name=name,
            output=_prefix(output / name) if output else None,
            model_dir=_prefix(_uri(decoded["model_dir"])),
            checkpoints=_prefix(_uri(request.get("CheckpointConfig", {}).get("S3Uri"))),
            tensorboard=_prefix(tensorboard / name) if tensorboard else None,
            intermediate=_prefix(intermediate / name) if intermediate else None,
        )

    @property
    def values(self) -> dict[str, str]:
        """Return the values of the placeholders in policies. Placeholders without a value are left out."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {f"job.{name}": value for name, value in found if value is not None}

    def to_document(self) -> dict[str, str | None]:
        """Return the JSON-able form for the store."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "JobScope":
        """Parse the output of `to_document`. Members of other versions are ignored and give no rights."""
        return cls(**{field.name: document[field.name] for field in fields(cls) if field.name in document})


PLACEHOLDERS = frozenset(f"job.{field.name}" for field in fields(JobScope))
"""Names that may be used in ``${...}`` in the resources of a policy."""


def _uri(text: object) -> S3Uri | None:
    try:
        return S3Uri.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None  # a path on the instance, e.g. /opt/ml/model


def _prefix(uri: S3Uri | None) -> str | None:
    """Return ``BUCKET/KEY``, or None for a whole bucket, which also contains data of other jobs."""
    key = uri.key.removesuffix("/") if uri else ""
    return f"{uri.bucket}/{key}" if uri and key else None
