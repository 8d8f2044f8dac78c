"""Session: the SDK's connection to the service, with the interface of AWS's SDK.

It connects on first use: a session that is created but never used neither loads boto3 nor starts a service.
"""

import hashlib
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tidemill.core import names
from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.instance_types import OFFERING_SHAPES, unoffered
from tidemill.sdk import connection
from tidemill.sdk.expressions import Join
from tidemill.sdk.hosting import HostingOperations
from tidemill.sdk.pipeline_parameters import ExecutionVariables
from tidemill.sdk.polled_job import SubmittedProcessing, TransformJob
from tidemill.sdk.training_job import TrainingJob
from tidemill.sdk.upload import files_below, upload_files
from tidemill.sdk.variable import RecordingClient, StepContext, is_pipeline_variable, known

_INVOCATION_TIMEOUT_S = 80


class Session(HostingOperations):
    """Clients of one service, and operations on its default bucket, jobs and endpoints.

    Args:
        boto_session: A boto3 session. None finds or starts the service as described in `tidemill.sdk.connection`.
        sagemaker_client: Client to use instead of one created from the boto session.
        sagemaker_runtime_client: Client for invocations to use instead of one created from the boto session.
        default_bucket: Bucket for data, code and models without an explicit location. Default:
            ``sagemaker-REGION-ACCOUNT``, which is created on first use.

    Example:
        >>> Session(default_bucket="my-data")  # doctest: +SKIP
    """

    sends = True
    """Whether `ensure_bucket` and uploads of estimators send anything; otherwise they only compute locations."""

    def __init__(
        self,
        boto_session: Any = None,
        sagemaker_client: Any = None,
        sagemaker_runtime_client: Any = None,
        default_bucket: str | None = None,
    ) -> None:
        self._boto_session = boto_session
        self._clients: dict[str, Any] = {}
        if sagemaker_client is not None:
            self._clients["sagemaker"] = sagemaker_client
        if sagemaker_runtime_client is not None:
            self._clients["sagemaker-runtime"] = sagemaker_runtime_client
        self._default_bucket = default_bucket
        self._existing: set[str] = set()
        self._step: StepContext | None = None

    @classmethod
    def adopt(cls, session: Any) -> "Session":
        """Return a session of this class.

        Args:
            session: A session of this class, which is returned; a session of AWS's SDK, which is wrapped; or None for a
                new session.

        Returns:
            ``session`` itself if it is one of this class.

        Raises:
            ValueError: ``session`` is not a session.
        """
        if session is None:
            return cls()
        if isinstance(session, Session):
            return session
        if not hasattr(session, "boto_session"):
            raise ValueError(
                f"sagemaker_session={session!r} is no session; expected tidemill.sdk.Session or sagemaker.Session."
                " Wrap a boto3 session: Session(boto_session=...)"
            )
        # AWS's default_bucket() would ask the public STS for the account even if another endpoint is configured.
        bucket = getattr(session, "_default_bucket", None) or getattr(session, "_default_bucket_name_override", None)
        runtime_client = getattr(session, "sagemaker_runtime_client", None)
        return cls(
            session.boto_session,
            sagemaker_client=session.sagemaker_client,
            sagemaker_runtime_client=runtime_client,
            default_bucket=bucket,
        )

    @property
    def boto_session(self) -> Any:
        """The boto3 session; clients created from it use the same service."""
        if self._boto_session is None:
            self._boto_session = connection.connect()
        return self._boto_session

    @property
    def boto_region_name(self) -> str:
        """The region, e.g. ``us-west-2``."""
        return self.boto_session.region_name or names.DEFAULT_REGION

    @property
    def sagemaker_client(self) -> Any:
        """boto3's ``sagemaker`` client; while the request of a pipeline's step is written, one that sends no create."""
        client = self._client("sagemaker")
        return client if self._step is None else RecordingClient(client, self._step.requests)

    @property
    def sagemaker_runtime_client(self) -> Any:
        """boto3's ``sagemaker-runtime`` client.

        Its read timeout is 80 s: a model may take 60 s, which is botocore's default, and botocore would resend a timed
        out request while the model still works on the first one.
        """
        return self._client("sagemaker-runtime", read_timeout=_INVOCATION_TIMEOUT_S)

    @property
    def sagemaker_metrics_client(self) -> Any:
        """boto3's ``sagemaker-metrics`` client, for the metrics of runs."""
        return self._client("sagemaker-metrics")

    @property
    def s3_client(self) -> Any:
        """boto3's ``s3`` client."""
        return self._client("s3")

    @property
    def logs_client(self) -> Any:
        """boto3's ``logs`` client."""
        return self._client("logs")

    @property
    def is_deferring(self) -> bool:
        """Whether calls that create a job return arguments for a pipeline's step instead; see `PipelineSession`."""
        return False

    @contextmanager
    def recording(self, context: StepContext) -> Generator[None]:
        """Record requests that create something instead of sending them, for the duration of a ``with`` block.

        Args:
            context: The step of a pipeline that gets the requests.

        Returns:
            A context manager.
        """
        outer, self._step = self._step, context
        try:
            yield
        finally:
            self._step = outer

    def job_prefix(self, job_name: str) -> str:
        """Return the key prefix of the data that is uploaded for a job.

        Args:
            job_name: Name of the job.

        Returns:
            The name; of a pipeline's step, ``PIPELINE/STEP``, since its job has no name yet.
        """
        if self._step is None or self.keeps_places:
            return job_name
        return f"{self._step.pipeline}/{self._step.step}"

    def code_prefix(self, prefix: str, content: bytes) -> str:
        """Return the key prefix of the code that is uploaded for a job.

        Args:
            prefix: The prefix of an ordinary job.
            content: The code.

        Returns:
            ``prefix``; of a pipeline's step, ``PIPELINE/code/DIGEST``: the definition changes if and only if the code
            does, which is what the cache of steps compares.
        """
        if self._step is None or self.keeps_places:
            return prefix
        return f"{self._step.pipeline}/code/{hashlib.sha256(content).hexdigest()}"

    def output_place(self, job_name: str, *tail: str) -> Any:
        """Return where a processing or transform job writes whose request names no place.

        Args:
            job_name: Name of the job.
            *tail: Names below it.

        Returns:
            An S3 URI; of a pipeline's step, an expression with the id of the execution.
        """
        bucket = self.default_bucket()
        if self._step is None or self.keeps_places:
            return "/".join([f"s3://{bucket}", job_name, *tail])
        execution = (self._step.pipeline, ExecutionVariables.PIPELINE_EXECUTION_ID, self._step.step)
        return Join(on="/", values=["s3:/", bucket, *execution, *tail])

    @property
    def keeps_places(self) -> bool:
        """Whether a step is asked for its arguments outside a pipeline, which then has to use the same places."""
        return self._step is not None and not self._step.pipeline

    @property
    def is_aws(self) -> bool:
        """Whether the session talks to AWS instead of a tidemill service."""
        host = urlsplit(self.sagemaker_client.meta.endpoint_url).hostname or ""
        return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))

    @property
    def endpoint_url(self) -> str:
        """URL to which SageMaker's operations are sent."""
        return self.sagemaker_client.meta.endpoint_url

    def account_id(self) -> str:
        """Return the id of the caller's account.

        Returns:
            Twelve digits.
        """
        return self._client("sts").get_caller_identity()["Account"]

    def get_caller_identity_arn(self) -> str:
        """Return the ARN of the caller's role.

        Returns:
            ``arn:aws:iam::ACCOUNT:role/NAME`` for an assumed role, else the caller's own ARN.
        """
        arn = self._client("sts").get_caller_identity()["Arn"]
        head, separator, tail = arn.partition(":assumed-role/")
        return f"{head.replace(':sts:', ':iam:')}:role/{tail.partition('/')[0]}" if separator else arn

    def expand_role(self, role: Any) -> Any:
        """Return the ARN of a role.

        Args:
            role: ARN or name. A name is looked up only on AWS.

        Returns:
            The ARN.
        """
        if is_pipeline_variable(role):
            return role
        if role.startswith("arn:") or not self.is_aws:
            return names.role_arn(role)
        return self._client("iam").get_role(RoleName=role)["Role"]["Arn"]

    def default_bucket(self) -> str:
        """Return the bucket for data, code and models without an explicit location; create it if it is missing.

        Returns:
            The name of the bucket.
        """
        if self._default_bucket is None:
            region = self.boto_region_name
            account = self.account_id() if self.is_aws else names.ACCOUNT_ID
            self._default_bucket = f"sagemaker-{region}-{account}"
        self.ensure_bucket(self._default_bucket)
        return self._default_bucket

    def ensure_bucket(self, bucket: str) -> None:
        """Create a bucket unless it exists.

        Args:
            bucket: Name of the bucket.

        Raises:
            botocore.exceptions.ClientError: The bucket belongs to another account, or cannot be created.
        """
        if bucket in self._existing or not self.sends:
            return
        from botocore.exceptions import ClientError

        try:
            self.s3_client.head_bucket(Bucket=bucket)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
                raise
            self._create_bucket(bucket)
        self._existing.add(bucket)

    def upload_data(
        self,
        path: str | Path,
        bucket: str | None = None,
        key_prefix: str = "data",
        callback: Callable[[int], None] | None = None,
        extra_args: Mapping[str, Any] | None = None,
    ) -> str:
        """Upload a file, or every file below a directory.

        Args:
            path: File or directory.
            bucket: Name of the bucket. Default: the default bucket.
            key_prefix: Prefix of the object keys. Default: ``data``.
            callback: Called with the number of bytes of each transferred part.
            extra_args: boto3's ``ExtraArgs``.

        Returns:
            ``s3://BUCKET/PREFIX`` for a directory, ``s3://BUCKET/PREFIX/NAME`` for a file.
        """
        source = Path(path)
        target = names.S3Uri(bucket or self.default_bucket(), key_prefix.strip("/"))
        self.ensure_bucket(target.bucket)
        upload_files(self.s3_client, files_below(source), target, progress=callback, extra_args=extra_args)
        return str(target if source.is_dir() else target / source.name)

    def download_data(self, path: str | Path, bucket: str, key_prefix: str = "") -> list[str]:
        """Download the object ``key_prefix``, or all objects below it, into a directory.

        Args:
            path: Directory; created if missing.
            bucket: Name of the bucket.
            key_prefix: Key of an object, or prefix of several. Default: all objects of the bucket.

        Returns:
            Paths of the files, in the order of their keys.

        Raises:
            ValueError: An object's key leads out of the directory.
        """
        directory = Path(path)
        written = []
        for page in self.s3_client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key_prefix):
            for entry in page.get("Contents", []):
                key = entry["Key"]
                name = key.removeprefix(key_prefix).strip("/") or key.rpartition("/")[2]
                target = (directory / name).resolve()
                if not target.is_relative_to(directory.resolve()):
                    raise ValueError(f"object key {key!r} would be written outside of {directory}; fetch it by itself")
                if not key.endswith("/"):
                    target.parent.mkdir(parents=True, exist_ok=True)
                    self.s3_client.download_file(bucket, key, str(target))
                    written.append(str(target))
        return written

    def upload_string_as_file_body(self, body: str, bucket: str, key: str, kms_key: str | None = None) -> str:
        """Store a text as an object.

        Args:
            body: The text, stored as UTF-8.
            bucket: Name of the bucket.
            key: Key of the object.
            kms_key: Id of the KMS key for the object's encryption; recorded by tidemill. Default: none.

        Returns:
            The object's S3 URI.
        """
        put_bytes(self, body.encode(), names.S3Uri(bucket, key), kms_key)
        return f"s3://{bucket}/{key}"

    def read_s3_file(self, bucket: str, key_prefix: str) -> str:
        """Return the text of an object.

        Args:
            bucket: Name of the bucket.
            key_prefix: Key of the object.

        Returns:
            The content, decoded as UTF-8.
        """
        return self.s3_client.get_object(Bucket=bucket, Key=key_prefix)["Body"].read().decode()

    def list_s3_files(self, bucket: str, key_prefix: str) -> list[str]:
        """Return the keys of all objects below a prefix.

        Args:
            bucket: Name of the bucket.
            key_prefix: The prefix.

        Returns:
            Keys, in their order.
        """
        pages = self.s3_client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=key_prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def logs_for_job(
        self, job_name: str, wait: bool = False, poll: int = 10, log_type: str = "All", timeout: int | None = None
    ) -> None:
        """Print the log of a training job.

        Args:
            job_name: Name of the training job.
            wait: Whether to follow the log until the job ends. Default: False, which prints what is there.
            poll: Ignored: new lines are asked for as soon as they can be there.
            log_type: ``All`` or ``Training``; ``Rules`` prints nothing, since no rule is evaluated.
            timeout: Refused: stop the job by ``max_run`` instead.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        refuse_arguments("Session.logs_for_job", timeout=timeout)
        if wait:
            TrainingJob(self, job_name).wait(log_type)
        elif log_type != "Rules":
            TrainingJob(self, job_name).show_logs()

    def wait_for_job(self, job: str, poll: int = 5) -> dict[str, Any]:
        """Wait for the end of a training job, without its log.

        Args:
            job: Name of the training job.
            poll: Ignored, as for `logs_for_job`.

        Returns:
            The last description.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        return TrainingJob(self, job).wait(logs=False)

    def logs_for_processing_job(self, job_name: str, wait: bool = False, poll: int = 10) -> None:
        """Print the log of a processing job.

        Args:
            job_name: Name of the job.
            wait: Whether to follow the log until the job ends. Default: False, which prints what is there.
            poll: Ignored, as for `logs_for_job`.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        job = SubmittedProcessing(self, job_name)
        (job.wait if wait else job.show_logs)()

    def wait_for_processing_job(self, job: str, poll: int = 5) -> dict[str, Any]:
        """Wait for the end of a processing job, without its log.

        Args:
            job: Name of the job.
            poll: Ignored, as for `logs_for_job`.

        Returns:
            The last description.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        return SubmittedProcessing(self, job).wait(logs=False)

    def logs_for_transform_job(self, job_name: str, wait: bool = False, poll: int = 10) -> None:
        """Print the log of a transform job.

        Args:
            job_name: Name of the job.
            wait: Whether to follow the log until the job ends. Default: False, which prints what is there.
            poll: Ignored, as for `logs_for_job`.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        job = TransformJob(self, job_name)
        (job.wait if wait else job.show_logs)()

    def wait_for_transform_job(self, job: str, poll: int = 5) -> dict[str, Any]:
        """Wait for the end of a transform job, without its log.

        Args:
            job: Name of the job.
            poll: Ignored, as for `logs_for_job`.

        Returns:
            The last description.

        Raises:
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        del poll
        return TransformJob(self, job).wait(logs=False)

    def describe_training_job(self, job_name: str) -> dict[str, Any]:
        """Return the answer of DescribeTrainingJob.

        Args:
            job_name: Name of the training job.

        Returns:
            The members by name.
        """
        return self.sagemaker_client.describe_training_job(TrainingJobName=job_name)

    def stop_training_job(self, job_name: str) -> None:
        """Stop a training job. Returns before the job has ended.

        Args:
            job_name: Name of the training job.
        """
        self.sagemaker_client.stop_training_job(TrainingJobName=job_name)

    def _client(self, service: str, **options: Any) -> Any:
        if service not in self._clients:
            session = self.boto_session
            if options:
                from botocore.config import Config

                options = {"config": Config(**options)}
            self._clients[service] = session.client(service, region_name=self.boto_region_name, **options)
        return self._clients[service]

    def _create_bucket(self, bucket: str) -> None:
        region = self.boto_region_name
        place: dict[str, Any] = (
            {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
        )
        try:
            self.s3_client.create_bucket(Bucket=bucket, **place)
        except self.s3_client.exceptions.BucketAlreadyOwnedByYou:
            return  # another client of this account has just created it


class LocalSession(Session):
    """AWS's SDK needs this class to run jobs on the local machine; here it is the same as `Session`."""


def encrypted_with(kms_key: str | None) -> dict[str, str]:
    """Return boto3's arguments for an object that a KMS key encrypts; none without a key."""
    return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": kms_key} if kms_key else {}


def put_bytes(session: Session, body: bytes, place: names.S3Uri, kms_key: str | None) -> None:
    """Store bytes as an object; see `Session.upload_string_as_file_body`."""
    session.s3_client.put_object(Bucket=place.bucket, Key=place.key, Body=body, **encrypted_with(kms_key))


def get_execution_role(sagemaker_session: Any = None) -> str:
    """Return the ARN of the caller's role.

    Args:
        sagemaker_session: The `Session` to use. Default: a new one.

    Returns:
        The ARN.
    """
    return Session.adopt(sagemaker_session).get_caller_identity_arn()


def warn_of_instance_types(session: Session, *instance_types: str, stacklevel: int) -> None:
    """Issue a `UserWarning` for each instance type that AWS does not offer.

    Args:
        session: The session; its client has AWS's model.
        *instance_types: The types of a request.
        stacklevel: Stack level of the warnings, so that they point at the user's line.
    """
    model = session.sagemaker_client.meta.service_model
    offered = {each for shape in OFFERING_SHAPES for each in model.shape_for(shape).metadata["enum"]}
    for each in dict.fromkeys(known(each) for each in instance_types):
        if each and (sentence := unoffered(each, offered=offered)):
            warnings.warn(sentence, UserWarning, stacklevel=stacklevel + 1)
