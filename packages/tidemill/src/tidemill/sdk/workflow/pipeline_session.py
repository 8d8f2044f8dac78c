"""PipelineSession: a session with which calls describe the steps of a pipeline instead of creating jobs."""

from typing import Any

from tidemill.sdk.session import Session


class PipelineSession(Session):
    """A session for pipelines: ``run``, ``fit``, ``transform``, ``create`` and ``register`` return step arguments.

    Args:
        boto_session: As for `Session`.
        sagemaker_client: As for `Session`.
        default_bucket: As for `Session`.
        sagemaker_runtime_client: As for `Session`.

    Example:
        >>> estimator = TensorFlow("train.py", sagemaker_session=PipelineSession())  # doctest: +SKIP
        >>> train = TrainingStep("Train", step_args=estimator.fit("s3://bucket/train"))  # doctest: +SKIP
    """

    def __init__(
        self,
        boto_session: Any = None,
        sagemaker_client: Any = None,
        default_bucket: str | None = None,
        *,
        sagemaker_runtime_client: Any = None,
    ) -> None:
        super().__init__(boto_session, sagemaker_client, sagemaker_runtime_client, default_bucket)

    @property
    def is_deferring(self) -> bool:
        """True, but while the request of a step is written."""
        return self._step is None


class LocalPipelineSession(PipelineSession):
    """In AWS's SDK, a session that runs steps in local containers; here it is the same as `PipelineSession`.

    Args:
        boto_session: As for `Session`.
        default_bucket: As for `Session`.
        sagemaker_client: As for `Session`.
        sagemaker_runtime_client: As for `Session`.
    """

    def __init__(
        self,
        boto_session: Any = None,
        default_bucket: str | None = None,
        *,
        sagemaker_client: Any = None,
        sagemaker_runtime_client: Any = None,
    ) -> None:
        super().__init__(
            boto_session, sagemaker_client, default_bucket, sagemaker_runtime_client=sagemaker_runtime_client
        )
