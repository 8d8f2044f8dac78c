"""Asynchronous endpoints: requests and results are objects in S3."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.errors import InferenceFailed, ResultPending
from tidemill.sdk.arguments import present
from tidemill.sdk.naming import timestamped
from tidemill.sdk.predictor import Predictor, joined
from tidemill.sdk.serializers import serialized
from tidemill.sdk.session import Session

_FIRST_POLL_S = 0.1


class AsyncInferenceConfig:
    """Serve at an asynchronous endpoint, which reads requests from S3 and stores its results there.

    Args:
        output_path: S3 prefix of results. Default: ``async-endpoint-outputs`` in the default bucket, with the name of
            the endpoint.
        max_concurrent_invocations_per_instance: Maximum number of concurrent requests per instance. Default: 4.
        kms_key_id: Recorded: nothing is encrypted.
        notification_config: Refused by the service, which has no SNS.
        failure_path: S3 prefix of the reasons of failures. Default: ``async-endpoint-failures`` in the default bucket,
            with the name of the endpoint.
    """

    def __init__(
        self,
        output_path: str | None = None,
        max_concurrent_invocations_per_instance: int | None = None,
        kms_key_id: str | None = None,
        notification_config: Mapping[str, Any] | None = None,
        failure_path: str | None = None,
    ) -> None:
        self.output_path = None if output_path is None else str(S3Uri.parse(output_path))
        self.max_concurrent_invocations_per_instance = max_concurrent_invocations_per_instance
        self.kms_key_id = kms_key_id
        self.notification_config = notification_config
        self.failure_path = None if failure_path is None else str(S3Uri.parse(failure_path))

    def to_request(self) -> dict[str, Any]:
        """Return the AsyncInferenceConfig member of CreateEndpointConfig.

        Returns:
            The member; arguments that were not given are left out.
        """
        most = self.max_concurrent_invocations_per_instance
        return present(
            OutputConfig=present(
                S3OutputPath=self.output_path,
                S3FailurePath=self.failure_path,
                KmsKeyId=self.kms_key_id or None,
                NotificationConfig=self.notification_config or None,
            ),
            ClientConfig=None if most is None else {"MaxConcurrentInvocationsPerInstance": most},
        )


def async_request(config: Any, session: Session, *, endpoint_name: str) -> Any:
    """Return the request member of a configuration of this SDK or of AWS's, completed with the default prefixes.

    A mapping is already that member, and is returned unchanged, and so is None.

    Args:
        config: A configuration, a mapping, or None.
        session: Session for the default bucket.
        endpoint_name: Part of the default prefixes.
    """
    if config is None or isinstance(config, Mapping):
        return config
    convert = config.to_request if isinstance(config, AsyncInferenceConfig) else config._to_request_dict
    request = convert()
    output = request.setdefault("OutputConfig", {})
    for member, prefix in (("S3OutputPath", "async-endpoint-outputs"), ("S3FailurePath", "async-endpoint-failures")):
        if not output.get(member):
            output[member] = str(S3Uri(session.default_bucket(), prefix) / endpoint_name)
    return request


class WaiterConfig:
    """Limits of a wait for a result: at most ``max_attempts * delay`` seconds.

    Args:
        max_attempts: Number of polls at the longest interval. Default: 60.
        delay: Maximum time in seconds between two polls; the first polls are more frequent. Default: 15.

    Raises:
        ValueError: ``max_attempts`` is less than 1, or ``delay`` is not positive.
    """

    def __init__(self, max_attempts: int = 60, delay: float = 15) -> None:
        if max_attempts < 1 or delay <= 0:
            raise ValueError(f"max_attempts={max_attempts!r}, delay={delay!r}: expected at least 1, and more than 0")
        self.max_attempts = max_attempts
        self.delay = delay


class AsyncPredictor:
    """Calls one asynchronous endpoint, with InvokeEndpointAsync.

    Args:
        predictor: Predictor of the endpoint. Its serializer creates request bodies, its deserializer parses results.
        name: First part of the keys under which request bodies are uploaded. Default: the endpoint's name.
    """

    def __init__(self, predictor: Predictor, name: str | None = None) -> None:
        self.predictor = predictor
        self.name = name
        self.endpoint_name = predictor.endpoint_name
        self.sagemaker_session = predictor.sagemaker_session

    @property
    def serializer(self) -> Any:
        """The predictor's serializer; can be set."""
        return self.predictor.serializer

    @serializer.setter
    def serializer(self, serializer: Any) -> None:
        self.predictor.serializer = serializer

    @property
    def deserializer(self) -> Any:
        """The predictor's deserializer; can be set."""
        return self.predictor.deserializer

    @deserializer.setter
    def deserializer(self, deserializer: Any) -> None:
        self.predictor.deserializer = deserializer

    def predict(
        self,
        data: Any = None,
        input_path: str | None = None,
        initial_args: Mapping[str, Any] | None = None,
        inference_id: str | None = None,
        waiter_config: WaiterConfig | None = None,
    ) -> Any:
        """Send a request and wait for its result.

        Args:
            data: As for `predict_async`.
            input_path: As for `predict_async`.
            initial_args: As for `predict_async`.
            inference_id: As for `predict_async`.
            waiter_config: Limits of the wait. Default: 15 minutes.

        Returns:
            The deserialized result.

        Raises:
            InferenceFailed: The request failed; the message contains the reason.
            ResultPending: There was no result in time.
        """
        response = self.predict_async(data, input_path, initial_args, inference_id)
        return response.get_result(waiter_config or WaiterConfig())

    def predict_async(
        self,
        data: Any = None,
        input_path: str | None = None,
        initial_args: Mapping[str, Any] | None = None,
        inference_id: str | None = None,
    ) -> "AsyncInferenceResponse":
        """Send a request without waiting for its result.

        Args:
            data: Value for the serializer; the body is uploaded. None uses the object at ``input_path`` as the body.
            input_path: S3 URI of the body. Default: a new object below ``async-endpoint-inputs`` in the default bucket.
            initial_args: Additional members of InvokeEndpointAsync.
            inference_id: Identifier of the request.

        Returns:
            The request, with which to get the result.

        Raises:
            ValueError: Neither ``data`` nor ``input_path`` is given.
        """
        if data is None and input_path is None:
            raise ValueError("give data, input_path, or both: the S3 URI to which data is uploaded")
        location = input_path if data is None else self._upload(data, input_path)
        request: dict[str, Any] = {"Accept": self.predictor.accept, **(initial_args or {})}
        if data is not None:
            request.setdefault("ContentType", self.predictor.content_type)
        attributes = joined(request.get("CustomAttributes"), self.predictor.model_attributes)
        request |= present(CustomAttributes=attributes, InferenceId=inference_id)
        reply = self.sagemaker_session.sagemaker_runtime_client.invoke_endpoint_async(
            **request, EndpointName=self.endpoint_name, InputLocation=location
        )
        return AsyncInferenceResponse(self, reply["OutputLocation"], reply.get("FailureLocation"))

    def update_endpoint(
        self,
        initial_instance_count: int | None = None,
        instance_type: str | None = None,
        accelerator_type: str | None = None,
        model_name: str | None = None,
        tags: Any = None,
        kms_key: str | None = None,
        data_capture_config_dict: Any = None,
        wait: bool = True,
    ) -> None:
        """Update the endpoint to a changed copy of its configuration; see `Predictor.update_endpoint`.

        Args:
            initial_instance_count: As for `Predictor.update_endpoint`.
            instance_type: As for `Predictor.update_endpoint`.
            accelerator_type: As for `Predictor.update_endpoint`.
            model_name: As for `Predictor.update_endpoint`.
            tags: As for `Predictor.update_endpoint`.
            kms_key: As for `Predictor.update_endpoint`.
            data_capture_config_dict: As for `Predictor.update_endpoint`.
            wait: As for `Predictor.update_endpoint`.
        """
        self.predictor.update_endpoint(
            initial_instance_count,
            instance_type,
            accelerator_type,
            model_name,
            tags,
            kms_key,
            data_capture_config_dict,
            wait,
        )

    def delete_endpoint(self, delete_endpoint_config: bool = True) -> None:
        """Delete the endpoint. Results in S3 are kept.

        Args:
            delete_endpoint_config: Whether to delete the endpoint's configuration, too. Default: True.
        """
        self.predictor.delete_endpoint(delete_endpoint_config)

    def delete_model(self) -> None:
        """Delete the models in the endpoint's configuration. Call it before `delete_endpoint`."""
        self.predictor.delete_model()

    def _upload(self, data: Any, input_path: str | None) -> str:
        session = self.sagemaker_session
        if input_path is None:
            prefix = S3Uri(session.default_bucket(), "async-endpoint-inputs")
            target = prefix / timestamped(self.name or self.endpoint_name) / str(uuid.uuid4())
        else:
            target = S3Uri.parse(input_path)
        body = serialized(self.serializer, data)
        session.s3_client.put_object(
            Bucket=target.bucket, Key=target.key, Body=body, ContentType=self.predictor.content_type
        )
        return str(target)


class AsyncInferenceResponse:
    """One request at an asynchronous endpoint.

    Args:
        predictor_async: The predictor that sent the request.
        output_path: S3 URI of the result.
        failure_path: S3 URI of the reason of a failure; None if the endpoint stores none.
    """

    def __init__(self, predictor_async: AsyncPredictor, output_path: str, failure_path: str | None) -> None:
        self.predictor_async = predictor_async
        self.output_path = output_path
        self.failure_path = failure_path

    def get_result(self, waiter_config: WaiterConfig | None = None) -> Any:
        """Return the deserialized result.

        Args:
            waiter_config: Limits of the wait. None does not wait.

        Returns:
            The value that the predictor's deserializer returns.

        Raises:
            InferenceFailed: The request failed; the message contains the reason.
            ResultPending: There is no result yet.
        """
        limit_s = 0.0 if waiter_config is None else waiter_config.max_attempts * waiter_config.delay
        deadline_s, pause_s = time.monotonic() + limit_s, _FIRST_POLL_S
        while True:
            found = self._object(self.output_path)
            if found is not None:
                return self.predictor_async.predictor.deserialize(found)
            self._raise_failure()
            left_s = deadline_s - time.monotonic()
            if waiter_config is None or left_s <= 0:
                waited = f" after {limit_s:g} s" if limit_s else ""
                raise ResultPending(f"there is no result at {self.output_path}{waited}: the request may still run")
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, waiter_config.delay)

    def _raise_failure(self) -> None:
        found = None if self.failure_path is None else self._object(self.failure_path)
        if found is not None:
            raise InferenceFailed(f"the request failed:\n{found['Body'].read().decode(errors='replace')}")

    def _object(self, uri: str) -> Mapping[str, Any] | None:
        place, s3 = S3Uri.parse(uri), self.predictor_async.sagemaker_session.s3_client
        try:
            return s3.get_object(Bucket=place.bucket, Key=place.key)
        except s3.exceptions.NoSuchKey:
            return None
