"""Facts about a model that its package keeps: where its metrics are, and where its code comes from."""

from dataclasses import dataclass
from typing import Any

from tidemill.sdk.arguments import present


@dataclass(frozen=True)
class MetricsSource:
    """A file of metrics in S3.

    Args:
        content_type: MIME type of the file, e.g. ``application/json``.
        s3_uri: URI of the file.
        content_digest: Digest of the file. Default: none.
    """

    content_type: str
    s3_uri: str
    content_digest: str | None = None

    def to_request(self) -> dict[str, str]:
        """Return the member of a request.

        Returns:
            The members that are set, by botocore's names.
        """
        return present(ContentType=self.content_type, S3Uri=self.s3_uri, ContentDigest=self.content_digest)


@dataclass(frozen=True)
class ModelMetrics:
    """The files of metrics of a model; all are optional.

    Args:
        model_statistics: Statistics of its predictions.
        model_constraints: Constraints on its predictions.
        model_data_statistics: Statistics of its data.
        model_data_constraints: Constraints on its data.
        bias: Report on bias.
        explainability: Report that explains predictions.
        bias_pre_training: Report on bias of the data.
        bias_post_training: Report on bias of the model.
    """

    model_statistics: MetricsSource | None = None
    model_constraints: MetricsSource | None = None
    model_data_statistics: MetricsSource | None = None
    model_data_constraints: MetricsSource | None = None
    bias: MetricsSource | None = None
    explainability: MetricsSource | None = None
    bias_pre_training: MetricsSource | None = None
    bias_post_training: MetricsSource | None = None

    def to_request(self) -> dict[str, Any]:
        """Return ``ModelMetrics`` of CreateModelPackage.

        Returns:
            The files that are set, by botocore's names.
        """
        parts = {
            "ModelQuality": {"Statistics": self.model_statistics, "Constraints": self.model_constraints},
            "ModelDataQuality": {"Statistics": self.model_data_statistics, "Constraints": self.model_data_constraints},
            "Bias": {
                "Report": self.bias,
                "PreTrainingReport": self.bias_pre_training,
                "PostTrainingReport": self.bias_post_training,
            },
            "Explainability": {"Report": self.explainability},
        }
        sources = {
            name: {place: source.to_request() for place, source in part.items() if source is not None}
            for name, part in parts.items()
        }
        return {name: part for name, part in sources.items() if part}


@dataclass(frozen=True)
class MetadataProperties:
    """Where a model comes from; all are optional.

    Args:
        commit_id: Commit of the code.
        repository: Repository of the code.
        generated_by: What made it.
        project_id: Id of the project.
    """

    commit_id: str | None = None
    repository: str | None = None
    generated_by: str | None = None
    project_id: str | None = None

    def to_request(self) -> dict[str, str]:
        """Return ``MetadataProperties`` of a request.

        Returns:
            The members that are set, by botocore's names.
        """
        return present(
            CommitId=self.commit_id,
            Repository=self.repository,
            GeneratedBy=self.generated_by,
            ProjectId=self.project_id,
        )
