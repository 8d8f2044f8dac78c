"""Transformer: batch transform jobs of a model, in the form of SageMaker's SDK."""

from collections.abc import Mapping
from typing import Any, Self, TypedDict, Unpack

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.images import parse_image
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import check_options, in_order, present, tags_of
from tidemill.sdk.follow import TERMINAL
from tidemill.sdk.naming import base_of, check_name, image_base, timestamped
from tidemill.sdk.polled_job import TransformJob
from tidemill.sdk.run_context import current_config
from tidemill.sdk.session import Session, warn_of_instance_types
from tidemill.sdk.variable import deferrable, is_pipeline_variable


class TransformerOptions(TypedDict, total=False):
    """What transformers are given besides their instances.

    Attributes:
        strategy: ``MultiRecord`` (many records per request) or ``SingleRecord``. Default: ``MultiRecord``.
        assemble_with: ``Line`` appends a line feed to each answer. Default: ``None``.
        output_path: S3 prefix of the results. Default: the job's name in the default bucket.
        output_kms_key: Sent as ``TransformOutput.KmsKeyId``. Recorded: nothing is encrypted.
        accept: Media type of the answers, sent as ``TransformOutput.Accept``.
        max_concurrent_transforms: Maximum number of concurrent requests per server. Default: 1.
        max_payload: Maximum size of a request in MB. Default: 6.
        tags: Tags of the jobs: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
        env: Environment variables of the servers, in addition to the model's.
        volume_kms_key: Sent as ``TransformResources.VolumeKmsKeyId``. Recorded: nothing is encrypted.
    """

    strategy: str | None
    assemble_with: str | None
    output_path: str | None
    output_kms_key: str | None
    accept: str | None
    max_concurrent_transforms: int | None
    max_payload: int | None
    tags: Any
    env: Mapping[str, str] | None
    volume_kms_key: str | None


ORDER = (
    *("instance_count", "instance_type", "strategy", "assemble_with", "output_path", "output_kms_key", "accept"),
    *("env", "max_concurrent_transforms", "max_payload", "tags"),
)
"""Arguments of ``transformer`` of an estimator or a model, in the order of AWS's SDK."""


class Transformer:
    """Runs batch transform jobs with a model that was created at the service.

    Args:
        model_name: Name of the model, as given to CreateModel.
        instance_count: Number of servers that share the objects. Default: 1.
        instance_type: Type of these servers, or ``local``. Default: ``local``.
        base_transform_job_name: Prefix of generated job names. Default: derived from the model's image.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's local
            service.
        **options: `TransformerOptions`.

    Raises:
        TypeError: An argument is unknown.

    Example:
        >>> transformer = Transformer("tides-model", 1, "local", strategy="SingleRecord")  # doctest: +SKIP
        >>> transformer.transform("s3://bucket/days", content_type="text/csv", split_type="Line")  # doctest: +SKIP
    """

    @in_order(
        *("model_name", *ORDER[:7], "max_concurrent_transforms", "max_payload", "tags", "env"),
        *("base_transform_job_name", "sagemaker_session", "volume_kms_key"),
    )
    def __init__(
        self,
        model_name: str,
        instance_count: int = 1,
        instance_type: str = "local",
        *,
        base_transform_job_name: str | None = None,
        sagemaker_session: Any = None,
        **options: Unpack[TransformerOptions],
    ) -> None:
        check_options(type(self).__name__, options, TransformerOptions)
        self.model_name = model_name
        self.instance_count = instance_count
        self.instance_type = instance_type
        self.strategy = options.get("strategy")
        self.assemble_with = options.get("assemble_with")
        self.output_path: Any = options.get("output_path")
        self.output_kms_key = options.get("output_kms_key")
        self.accept = options.get("accept")
        self.max_concurrent_transforms = options.get("max_concurrent_transforms")
        self.max_payload = options.get("max_payload")
        self.tags = tags_of(options.get("tags"))
        self.env = dict(options.get("env") or {}) or None
        self.volume_kms_key = options.get("volume_kms_key")
        self.base_transform_job_name = base_transform_job_name
        self.sagemaker_session = Session.adopt(sagemaker_session)
        # None before the first job. Any instead of a union: a client that has called transform() knows there is one.
        self.latest_transform_job: Any = None
        self._own_output_path = self.output_path is None

    @classmethod
    def attach(cls, transform_job_name: str, sagemaker_session: Any = None) -> Self:
        """Return a transformer for an existing job, without waiting for it.

        Args:
            transform_job_name: Name of the job.
            sagemaker_session: As for `Transformer`.

        Returns:
            The transformer, with the job as its latest job.
        """
        session = Session.adopt(sagemaker_session)
        job = TransformJob(session, transform_job_name)
        described = job.describe()
        output, resources = described["TransformOutput"], described["TransformResources"]
        transformer = cls(
            described["ModelName"],
            resources["InstanceCount"],
            resources["InstanceType"],
            strategy=described.get("BatchStrategy"),
            assemble_with=output.get("AssembleWith"),
            output_path=output["S3OutputPath"],
            output_kms_key=output.get("KmsKeyId"),
            accept=output.get("Accept"),
            max_concurrent_transforms=described.get("MaxConcurrentTransforms"),
            max_payload=described.get("MaxPayloadInMB"),
            env=described.get("Environment"),
            base_transform_job_name=base_of(transform_job_name),
            sagemaker_session=session,
            volume_kms_key=resources.get("VolumeKmsKeyId"),
        )
        transformer.latest_transform_job = job
        return transformer

    @deferrable("create_transform_job")
    def transform(
        self,
        data: str,
        data_type: str = "S3Prefix",
        content_type: str | None = None,
        compression_type: str | None = None,
        split_type: str | None = None,
        job_name: str | None = None,
        input_filter: str | None = None,
        output_filter: str | None = None,
        join_source: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        model_client_config: Mapping[str, int] | None = None,
        batch_data_capture_config: Any = None,
        wait: bool = True,
        logs: bool = True,
    ) -> None:
        """Start a job and, by default, wait for its end.

        Args:
            data: S3 URI of a prefix, or of a manifest.
            data_type: ``S3Prefix`` or ``ManifestFile``.
            content_type: Media type of the records.
            compression_type: ``Gzip`` if objects are compressed.
            split_type: ``Line``, ``RecordIO`` or ``TFRecord``. Default: an object is one record.
            job_name: Name of the job. Default: a generated name.
            input_filter: JSONPath of the part of a record to send. Default: the whole record.
            output_filter: JSONPath of the part of a result to store. Default: the whole result.
            join_source: ``Input`` joins each result with its record. Default: ``None``.
            experiment_config: Sent as ``ExperimentConfig``.
            model_client_config: Dictionary with ``InvocationsTimeoutInSeconds`` and ``InvocationsMaxRetries``.
            batch_data_capture_config: Refused: batch jobs capture no data.
            wait: Return only when the job has ended. Default: True.
            logs: Print log lines while waiting. Default: True.

        Raises:
            ValueError: ``data`` is not an S3 URI, ``job_name`` is invalid, or ``batch_data_capture_config`` is given.
            JobFailed: The job failed; the message contains the whole FailureReason.
        """
        refuse_arguments("Transformer.transform", batch_data_capture_config=batch_data_capture_config)
        if not is_pipeline_variable(data):
            S3Uri.parse(data)
        name = timestamped(self._base_name()) if job_name is None else check_name("job_name", job_name)
        session = self.sagemaker_session
        request = {
            "TransformJobName": name,
            "ModelName": self.model_name,
            "TransformInput": present(
                DataSource={"S3DataSource": {"S3DataType": data_type, "S3Uri": data}},
                ContentType=content_type,
                CompressionType=compression_type,
                SplitType=split_type,
            ),
            "TransformOutput": self._output(name),
            "TransformResources": present(
                InstanceCount=self.instance_count,
                InstanceType=self.instance_type,
                VolumeKmsKeyId=self.volume_kms_key,
            ),
            **present(
                BatchStrategy=self.strategy,
                MaxConcurrentTransforms=self.max_concurrent_transforms,
                MaxPayloadInMB=self.max_payload,
                Environment=self.env,
                Tags=self.tags,
                DataProcessing=present(InputFilter=input_filter, OutputFilter=output_filter, JoinSource=join_source)
                or None,
                ExperimentConfig=experiment_config or current_config(),
                ModelClientConfig=model_client_config,
            ),
        }
        warn_of_instance_types(session, self.instance_type, stacklevel=3)
        session.sagemaker_client.create_transform_job(**request)
        self.latest_transform_job = TransformJob(session, name)
        if wait:
            self.latest_transform_job.wait(logs=logs)

    def wait(self, logs: bool = True) -> None:
        """Wait for the end of the latest job.

        Args:
            logs: Show log lines while waiting.

        Raises:
            ValueError: There is no job.
            JobFailed: The job failed; the message has the whole FailureReason.
        """
        self._latest().wait(logs=logs)

    def stop_transform_job(self, wait: bool = True) -> None:
        """Stop the latest job.

        Args:
            wait: Return when it has ended, not before.

        Raises:
            ValueError: There is no job.
        """
        job = self._latest()
        job.stop()
        if wait and job.describe()["TransformJobStatus"] not in TERMINAL:
            job.wait(logs=False)

    def delete_model(self) -> None:
        """Delete the model at the service; its archive stays."""
        self.sagemaker_session.delete_model(self.model_name)

    def _latest(self) -> TransformJob:
        if self.latest_transform_job is None:
            raise ValueError("this transformer has no job; call transform() first, or use Transformer.attach(NAME)")
        return self.latest_transform_job

    def _output(self, job_name: str) -> dict[str, Any]:
        """Return the request member for the results of a job, whose bucket then exists."""
        if self._own_output_path:
            self.output_path = self.sagemaker_session.output_place(job_name)
            self._own_output_path = not self.sagemaker_session.keeps_places
        if isinstance(self.output_path, str):
            self.sagemaker_session.ensure_bucket(S3Uri.parse(self.output_path).bucket)
        return present(
            S3OutputPath=self.output_path,
            KmsKeyId=self.output_kms_key,
            Accept=self.accept,
            AssembleWith=self.assemble_with,
        )

    def _base_name(self) -> str:
        if self.base_transform_job_name is not None:
            return self.base_transform_job_name
        if is_pipeline_variable(self.model_name):
            return "transform"  # a step's job gets its name from the service
        model = self.sagemaker_session.sagemaker_client.describe_model(ModelName=self.model_name)
        image = (model.get("PrimaryContainer") or model["Containers"][0]).get("Image", "")
        return image_base(image) if parse_image(image).repository else base_of(self.model_name)
