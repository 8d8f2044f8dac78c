"""DataCaptureConfig: captures a sample of an endpoint's requests and answers."""

from collections.abc import Sequence
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.sdk.session import Session

_MODES = {"REQUEST": "Input", "RESPONSE": "Output"}
_PREFIX = "model-monitor/data-capture"


class DataCaptureConfig:
    """Capture a sample of the requests and answers of an endpoint, as JSON Lines in S3.

    Args:
        enable_capture: Whether to capture.
        sampling_percentage: Percentage of requests to capture, 0 to 100. Default: 20.
        destination_s3_uri: S3 prefix of the captured data. Default: ``model-monitor/data-capture`` in the default
            bucket.
        kms_key_id: Recorded: nothing is encrypted.
        capture_options: List with ``REQUEST``, ``RESPONSE`` or both. Default: both.
        csv_content_types: Content types to capture as CSV text. Default: ``text/csv``.
        json_content_types: Content types to capture as JSON text. Default: ``application/json``. Data of other types
            is captured in Base64.
        sagemaker_session: Session whose default bucket is used. Default: the session of the estimator or model.

    Raises:
        ValueError: ``capture_options`` contains another value.

    Example:
        >>> DataCaptureConfig(True, 50, "s3://data/captured").sampling_percentage
        50
    """

    def __init__(
        self,
        enable_capture: bool,
        sampling_percentage: int = 20,
        destination_s3_uri: str | None = None,
        kms_key_id: str | None = None,
        capture_options: Sequence[str] | None = None,
        csv_content_types: Sequence[str] | None = None,
        json_content_types: Sequence[str] | None = None,
        sagemaker_session: Any = None,
    ) -> None:
        for option in capture_options or ():
            if option not in _MODES:
                raise ValueError(f"capture_options={capture_options!r} is not allowed: expected 'REQUEST', 'RESPONSE'")
        self.enable_capture = enable_capture
        self.sampling_percentage = sampling_percentage
        self.destination_s3_uri = None if destination_s3_uri is None else str(S3Uri.parse(destination_s3_uri))
        self.kms_key_id = kms_key_id
        self.capture_options = list(capture_options or _MODES)
        self.csv_content_types = list(("text/csv",) if csv_content_types is None else csv_content_types)
        self.json_content_types = list(("application/json",) if json_content_types is None else json_content_types)
        self.sagemaker_session = sagemaker_session

    def to_request(self, session: Session) -> dict[str, Any]:
        """Return the DataCaptureConfig member of CreateEndpointConfig.

        Args:
            session: Session for the default bucket, if no session was given to the constructor.

        Returns:
            The member, in botocore's names.
        """
        own = self.sagemaker_session
        bucket_of = session if own is None else Session.adopt(own)
        types = {"CsvContentTypes": self.csv_content_types, "JsonContentTypes": self.json_content_types}
        header = {name: value for name, value in types.items() if value}
        return {
            "EnableCapture": self.enable_capture,
            "InitialSamplingPercentage": self.sampling_percentage,
            "DestinationS3Uri": self.destination_s3_uri or f"s3://{bucket_of.default_bucket()}/{_PREFIX}",
            "CaptureOptions": [{"CaptureMode": _MODES[each]} for each in self.capture_options],
            **({"KmsKeyId": self.kms_key_id} if self.kms_key_id else {}),
            **({"CaptureContentTypeHeader": header} if header else {}),
        }


def capture_request(config: Any, session: Session) -> Any:
    """Return the request member of a configuration of this SDK or of AWS's; a mapping is already that member.

    Args:
        config: A configuration, or a mapping.
        session: Session for the default bucket.
    """
    if isinstance(config, DataCaptureConfig):
        return config.to_request(session)
    convert = getattr(config, "_to_request_dict", None)
    return convert() if convert else config
