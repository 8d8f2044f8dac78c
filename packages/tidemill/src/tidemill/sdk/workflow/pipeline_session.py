"""PipelineSession: a session with which calls describe the steps of a pipeline instead of creating jobs."""

from tidemill.sdk.session import Session

__all__ = ["LocalPipelineSession", "PipelineSession"]


class PipelineSession(Session):
    """A session for pipelines: ``run``, ``fit``, ``transform``, ``create`` and ``register`` return step arguments.

    The arguments of `Session`.

    Example:
        >>> estimator = TensorFlow("train.py", sagemaker_session=PipelineSession())  # doctest: +SKIP
        >>> train = TrainingStep("Train", step_args=estimator.fit("s3://bucket/train"))  # doctest: +SKIP
    """

    @property
    def is_deferring(self) -> bool:
        """True, but while the request of a step is written."""
        return self._step is None


class LocalPipelineSession(PipelineSession):
    """In AWS's SDK, a session that runs steps in local containers; here it is the same as `PipelineSession`."""
