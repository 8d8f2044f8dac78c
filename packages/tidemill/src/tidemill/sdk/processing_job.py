"""A submitted processing job, as `Processor.latest_job` gives it, and its inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.sdk.arguments import present
from tidemill.sdk.polled_job import SubmittedProcessing
from tidemill.sdk.session import Session


@dataclass
class ProcessingInput:
    """Files that are brought to a processing job before its command starts.

    Attributes:
        source: S3 URI of a prefix, an object or a manifest; or a local file or directory, which is uploaded.
        destination: Directory inside the job, below ``/opt/ml/processing``.
        input_name: Name of the input. Default: ``input-`` and its number.
        s3_data_type: ``S3Prefix`` or ``ManifestFile``. Default: ``S3Prefix``.
        s3_input_mode: ``File``, the only mode here.
        s3_data_distribution_type: ``FullyReplicated`` (each instance gets all objects) or ``ShardedByS3Key`` (each
            object goes to one instance). Default: ``FullyReplicated``.
        s3_compression_type: ``None``: files are handed over as they are.
        s3_input: Object of AWS's SDK with the same facts, in place of them.
        dataset_definition: Refused: there is neither Athena nor Redshift.
        app_managed: Whether the command reads the source itself, so that nothing is brought. Default: False.

    Raises:
        ValueError: ``dataset_definition`` is given, or no source or destination.
    """

    source: str | None = None
    destination: str | None = None
    input_name: str | None = None
    s3_data_type: str = "S3Prefix"
    s3_input_mode: str = "File"
    s3_data_distribution_type: str = "FullyReplicated"
    s3_compression_type: str = "None"
    s3_input: Any = None
    dataset_definition: Any = None
    app_managed: bool = False

    def __post_init__(self) -> None:
        refuse_arguments("ProcessingInput", dataset_definition=self.dataset_definition)
        if self.s3_input is not None:
            given = self.s3_input
            self.source, self.destination = given.s3_uri, given.local_path
            for name in ("s3_data_type", "s3_input_mode", "s3_data_distribution_type", "s3_compression_type"):
                setattr(self, name, getattr(given, name, None) or getattr(self, name))
        if self.source is None or (self.destination is None and not self.app_managed):
            raise ValueError(
                f"ProcessingInput has source={self.source!r} and destination={self.destination!r}; expected both, e.g."
                " source='s3://bucket/data', destination='/opt/ml/processing/input'"
            )

    def to_request(self) -> dict[str, Any]:
        """Return the member of the request's ProcessingInputs.

        Returns:
            Members by botocore's names.
        """
        return present(
            InputName=self.input_name,
            AppManaged=self.app_managed,
            S3Input=present(
                S3Uri=self.source,
                LocalPath=self.destination,
                S3DataType=self.s3_data_type,
                S3InputMode=self.s3_input_mode,
                S3DataDistributionType=self.s3_data_distribution_type,
                S3CompressionType=self.s3_compression_type,
            ),
        )

    @classmethod
    def _of(cls, member: Mapping[str, Any]) -> Self:
        source = member["S3Input"]
        return cls(
            source=source["S3Uri"],
            destination=source.get("LocalPath"),
            input_name=member["InputName"],
            s3_data_type=source["S3DataType"],
            s3_input_mode=source.get("S3InputMode", "File"),
            s3_data_distribution_type=source.get("S3DataDistributionType", "FullyReplicated"),
            s3_compression_type=source.get("S3CompressionType", "None"),
            app_managed=member.get("AppManaged", False),
        )


@dataclass
class ProcessingOutput:
    """A directory of a processing job that is uploaded.

    Attributes:
        source: Directory inside the job, below ``/opt/ml/processing``.
        destination: S3 URI of the uploaded files. Default: ``JOB/output/NAME`` in the default bucket.
        output_name: Name of the output. Default: ``output-`` and its number.
        s3_upload_mode: ``EndOfJob``, or ``Continuous`` to upload files while the command runs. Default: ``EndOfJob``.
        app_managed: Whether the command writes to the destination itself, so that nothing is uploaded. Default: False.
        feature_store_output: Refused: there is no feature store.

    Raises:
        ValueError: ``feature_store_output`` is given.
    """

    source: str | None = None
    destination: str | None = None
    output_name: str | None = None
    s3_upload_mode: str = "EndOfJob"
    app_managed: bool = False
    feature_store_output: Any = None

    def __post_init__(self) -> None:
        refuse_arguments("ProcessingOutput", feature_store_output=self.feature_store_output)

    def to_request(self) -> dict[str, Any]:
        """Return the member of the request's outputs.

        Returns:
            Members by botocore's names.
        """
        target = present(S3Uri=self.destination, LocalPath=self.source, S3UploadMode=self.s3_upload_mode)
        return present(OutputName=self.output_name, AppManaged=self.app_managed, S3Output=target)

    @classmethod
    def _of(cls, member: Mapping[str, Any]) -> Self:
        target = member["S3Output"]
        return cls(
            source=target.get("LocalPath"),
            destination=target["S3Uri"],
            output_name=member["OutputName"],
            s3_upload_mode=target["S3UploadMode"],
            app_managed=member.get("AppManaged", False),
        )


@dataclass(frozen=True)
class ProcessingJob(SubmittedProcessing):
    """One processing job of the service.

    Attributes:
        inputs: Its inputs, with names and S3 URIs.
        outputs: Its outputs, with names and S3 URIs.
        output_kms_key: The KMS key that was named for the outputs. Recorded.
    """

    inputs: tuple[ProcessingInput, ...] = ()
    outputs: tuple[ProcessingOutput, ...] = ()
    output_kms_key: str | None = None

    @classmethod
    def from_processing_name(cls, sagemaker_session: Any, processing_job_name: str) -> Self:
        """Return an existing job.

        Args:
            sagemaker_session: The `Session` to use. None connects to the configured service.
            processing_job_name: Name of the job.

        Returns:
            The job, with its inputs and outputs.
        """
        job = cls(Session.adopt(sagemaker_session), processing_job_name)
        described = job.describe()
        output = described.get("ProcessingOutputConfig", {})
        return replace(
            job,
            inputs=tuple(ProcessingInput._of(each) for each in described.get("ProcessingInputs", ())),
            outputs=tuple(ProcessingOutput._of(each) for each in output.get("Outputs", ())),
            output_kms_key=output.get("KmsKeyId"),
        )

    @classmethod
    def from_processing_arn(cls, sagemaker_session: Any, processing_job_arn: str) -> Self:
        """Return an existing job.

        Args:
            sagemaker_session: The `Session` to use. None connects to the configured service.
            processing_job_arn: ARN of the job.

        Returns:
            The job, with its inputs and outputs.
        """
        return cls.from_processing_name(sagemaker_session, processing_job_arn.rpartition("/")[2])
