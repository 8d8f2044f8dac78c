"""The scope of a job or endpoint: its name and the S3 prefixes that its own request names."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from tidemill.core.documents import Document
from tidemill.core.hyperparameters import decode
from tidemill.core.names import S3Uri

OWN_PREFIXES = ("output", "model_dir", "checkpoints", "tensorboard", "intermediate", "capture", "failures")
"""The attributes of `JobScope` with the prefixes that are the job's own."""


class HolderKind(StrEnum):
    """What a key was issued to, as it is named in ARNs."""

    TRAINING = "training-job"
    PROCESSING = "processing-job"
    TRANSFORM = "transform-job"
    ENDPOINT = "endpoint"
    PIPELINE = "pipeline"


def session_name(kind: HolderKind, name: str) -> str:
    """Return the name of the session of the keys of a job or endpoint: the last part of their ARN.

    An endpoint or another kind of job may have the name of a training job, but not its rights: session names tell
    them apart, as no name of a job contains a period.
    """
    return name if kind is HolderKind.TRAINING else f"{kind}.{name}"


_LOGS = {
    HolderKind.TRAINING: "log-group:/aws/sagemaker/TrainingJobs:log-stream:{}/",
    HolderKind.PROCESSING: "log-group:/aws/sagemaker/ProcessingJobs:log-stream:{}/",
    HolderKind.TRANSFORM: "log-group:/aws/sagemaker/TransformJobs:log-stream:{}/",
    HolderKind.ENDPOINT: "log-group:/aws/sagemaker/Endpoints/{}:log-stream:",
    # Executions of pipelines have no log; their jobs have.
    HolderKind.PIPELINE: "log-group:/aws/sagemaker/Pipelines/{}:log-stream:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScope(Document):
    """Name and S3 prefixes of a training job, a processing job, a transform job or an endpoint; name of an execution.

    A prefix is ``BUCKET/KEY`` without a slash at the end, or None. Objects whose ARN begins with
    ``arn:aws:s3:::PREFIX/`` belong to the job. ``output_path`` alone is not its own: other jobs may share it.

    Attributes:
        name: Name of the job or endpoint.
        output_path: ``OutputDataConfig.S3OutputPath`` of a training job.
        output: ``S3OutputPath/NAME``, the prefix of model.tar.gz and output.tar.gz; S3OutputPath of a transform job and
            of an asynchronous endpoint; that output of a processing job which contains an object (see `at`).
        outputs: ``S3Output.S3Uri`` of each output of a processing job.
        model_dir: The hyperparameter ``model_dir``, if it is an S3 URI.
        checkpoints: ``CheckpointConfig.S3Uri``.
        tensorboard: ``TensorBoardOutputConfig.S3OutputPath/NAME``.
        intermediate: Prefix of the files of ``output/intermediate``: ``NAME`` below the hyperparameter
            ``sagemaker_s3_output``.
        capture: ``DestinationS3Uri`` of an endpoint's DataCaptureConfig.
        failures: ``S3FailurePath`` of an asynchronous endpoint.
    """

    name: str
    kind: HolderKind = HolderKind.TRAINING
    output_path: str | None = None
    output: str | None = None
    model_dir: str | None = None
    checkpoints: str | None = None
    tensorboard: str | None = None
    intermediate: str | None = None
    capture: str | None = None
    failures: str | None = None
    outputs: tuple[str, ...] = ()

    @classmethod
    def of_request(cls, request: Mapping[str, Any]) -> "JobScope":
        """Derive the scope of a training job from its request.

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
            output_path=_prefix(output),
            output=_prefix(output / name) if output else None,
            model_dir=_prefix(_uri(decoded["model_dir"])),
            checkpoints=_prefix(_uri(request.get("CheckpointConfig", {}).get("S3Uri"))),
            tensorboard=_prefix(tensorboard / name) if tensorboard else None,
            intermediate=_prefix(intermediate / name) if intermediate else None,
        )

    @classmethod
    def of_processing(cls, request: Mapping[str, Any]) -> "JobScope":
        """Derive the scope of a processing job from its request.

        Args:
            request: The CreateProcessingJob request, by botocore's member names.
        """
        outputs = (each.get("S3Output", {}) for each in request.get("ProcessingOutputConfig", {}).get("Outputs", ()))
        prefixes = (_prefix(_uri(each.get("S3Uri"))) for each in outputs)
        return cls(
            name=str(request["ProcessingJobName"]),
            kind=HolderKind.PROCESSING,
            outputs=tuple(prefix for prefix in prefixes if prefix is not None),
        )

    @classmethod
    def of_transform(cls, request: Mapping[str, Any]) -> "JobScope":
        """Derive the scope of a transform job from its CreateTransformJob request.

        Args:
            request: Members of the request.
        """
        output = _uri(request["TransformOutput"]["S3OutputPath"])
        return cls(name=str(request["TransformJobName"]), kind=HolderKind.TRANSFORM, output=_prefix(output))

    @classmethod
    def of_endpoint(
        cls, name: str, *, capture: Mapping[str, Any] | None = None, asynchronous: Mapping[str, Any] | None = None
    ) -> "JobScope":
        """Derive the scope of an endpoint.

        Args:
            capture: The DataCaptureConfig of its configuration, if any.
            asynchronous: The AsyncInferenceConfig of its configuration, if any.
        """
        results = (asynchronous or {}).get("OutputConfig", {})
        return cls(
            name=name,
            kind=HolderKind.ENDPOINT,
            output=_prefix(_uri(results.get("S3OutputPath"))),
            capture=_prefix(_uri((capture or {}).get("DestinationS3Uri"))),
            failures=_prefix(_uri(results.get("S3FailurePath"))),
        )

    @property
    def values(self) -> dict[str, str]:
        """Return the values of the placeholders in policies. Placeholders without a value are left out."""
        found = ((field.name, getattr(self, field.name)) for field in fields(self) if field.name != "outputs")
        return {f"job.{name}": value for name, value in (*found, ("log", self.log)) if value is not None}

    @property
    def log(self) -> str:
        """The part of the ARNs of its log streams before the stream's own name."""
        return _LOGS[self.kind].format(self.name)

    @property
    def publisher(self) -> str:
        """Its name as the publisher of objects, e.g. ``training-job/digits``."""
        return f"{self.kind}/{self.name}"

    def at(self, bucket: str, key: str) -> "JobScope":
        """Return the scope whose ``output`` is the one of ``outputs`` that contains an object, if one does.

        Args:
            bucket: Name of the bucket.
        """
        place = f"{bucket}/{key}"
        around = [prefix for prefix in self.outputs if place.startswith(f"{prefix}/")]
        return replace(self, output=max(around, key=len)) if around else self

    def owns(self, bucket: str, key: str) -> bool:
        """Return whether an object is below one of its own prefixes.

        Args:
            bucket: Name of the bucket.
        """
        place = f"{bucket}/{key}"
        prefixes = (*(getattr(self, name) for name in OWN_PREFIXES), *self.outputs)
        return any(prefix is not None and place.startswith(f"{prefix}/") for prefix in prefixes)


PLACEHOLDERS = frozenset({*(f"job.{field.name}" for field in fields(JobScope)), "job.log", "sagemaker.bucket"}) - {
    "job.outputs"
}
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
