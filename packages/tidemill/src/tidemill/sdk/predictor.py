"""Predictors: send Python values to an endpoint and return its answers as Python values, with InvokeEndpoint."""

import io
import warnings
from collections.abc import Mapping
from typing import Any

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.console import Console
from tidemill.sdk.data_capture import capture_request
from tidemill.sdk.endpoint import new_variants, wait_in_service
from tidemill.sdk.markup import table
from tidemill.sdk.naming import base_of, timestamped
from tidemill.sdk.serializers import BytesDeserializer, IdentitySerializer, JSONDeserializer, JSONSerializer, serialized
from tidemill.sdk.session import Session


class Predictor:
    """Calls one endpoint.

    Args:
        endpoint_name: Name of the endpoint.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's local
            service.
        serializer: Serializes request bodies. Default: bytes and text are sent unchanged.
        deserializer: Parses answers. Default: `predict` returns the bytes of an answer.
        content_type: MIME type of requests. Default: the serializer's.
        accept: MIME types accepted as answers. Default: the deserializer's.
        endpoint: Deprecated alias of ``endpoint_name``.

    Raises:
        ValueError: ``endpoint_name`` is missing, or ``endpoint`` differs from it.

    Attributes:
        serializer: May be replaced; None, as in version 1 of AWS's SDK, sends bodies unchanged.
        deserializer: May be replaced; None returns the bytes of answers.
        model_attributes: CustomAttributes of every request; None for none.
    """

    def __init__(
        self,
        endpoint_name: str | None = None,
        sagemaker_session: Any = None,
        serializer: Any = None,
        deserializer: Any = None,
        content_type: str | None = None,
        accept: str | None = None,
        *,
        endpoint: str | None = None,
    ) -> None:
        self.endpoint_name = _only_name(endpoint_name, endpoint)
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self.serializer = IdentitySerializer() if serializer is None else serializer
        self.deserializer = BytesDeserializer() if deserializer is None else deserializer
        self.model_attributes: str | None = None
        self._content_type = content_type
        self._accept = accept

    @property
    def endpoint(self) -> str:
        """Deprecated alias of ``endpoint_name``."""
        return self.endpoint_name

    @property
    def content_type(self) -> str:
        """MIME type of requests; it may be set, and None means the serializer's."""
        own = getattr(self.serializer, "CONTENT_TYPE", None) or getattr(self.serializer, "content_type", None)
        return self._content_type or own or "application/octet-stream"

    @content_type.setter
    def content_type(self, value: str | None) -> None:
        self._content_type = value

    @property
    def accept(self) -> str:
        """MIME types accepted as answers; they may be set, and None means the deserializer's."""
        own = getattr(self.deserializer, "ACCEPT", None) or getattr(self.deserializer, "accept", None) or "*/*"
        return self._accept or (own if isinstance(own, str) else ", ".join(own))

    @accept.setter
    def accept(self, value: str | None) -> None:
        self._accept = value

    def predict(
        self,
        data: Any,
        initial_args: Mapping[str, Any] | None = None,
        target_model: str | None = None,
        target_variant: str | None = None,
        inference_id: str | None = None,
        custom_attributes: str | None = None,
    ) -> Any:
        """Send a request to the endpoint and return its answer.

        Args:
            data: Value for the serializer, e.g. a list, a dictionary or a NumPy array.
            initial_args: Additional members of InvokeEndpoint.
            target_model: Archive to use, at a multi-model endpoint.
            target_variant: Production variant to use. Default: chosen by the variants' weights.
            inference_id: Identifier of the request, which data capture records.
            custom_attributes: Attributes for the server, e.g. ``tfs-model-name=second``.

        Returns:
            The deserialized answer.

        Raises:
            botocore.exceptions.ClientError: The endpoint does not exist or the model failed (code ``ModelError``).
        """
        request: dict[str, Any] = {"ContentType": self.content_type, "Accept": self.accept, **(initial_args or {})}
        request |= present(
            TargetModel=target_model,
            TargetVariant=target_variant,
            InferenceId=inference_id,
            CustomAttributes=joined(request.get("CustomAttributes"), custom_attributes, self.model_attributes),
        )
        reply = self.sagemaker_session.sagemaker_runtime_client.invoke_endpoint(
            **request, EndpointName=self.endpoint_name, Body=serialized(self.serializer, data)
        )
        return self.deserialize(reply)

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
        """Update the endpoint to a changed copy of its configuration; it keeps serving meanwhile.

        Args:
            initial_instance_count: Number of instances; requires ``instance_type``. With these two or ``model_name``
                the endpoint gets a single new variant; without any of them it keeps its variants.
            instance_type: Type of these instances, or ``local``.
            accelerator_type: Ignored with a warning: Elastic Inference no longer exists.
            model_name: Name of the model. Default: the present one, if the endpoint has only one.
            tags: Tags of the new configuration. Default: those of the present one.
            kms_key: Sent as ``KmsKeyId``. Recorded: nothing is encrypted.
            data_capture_config_dict: Same as ``data_capture_config`` of `Model.deploy`. Default: the present one.
            wait: Return only when the new configuration is in service. Default: True.

        Raises:
            ValueError: A new variant is not described completely.
            EndpointFailed: The update was rolled back; the endpoint serves as before.
        """
        if accelerator_type is not None:
            warnings.warn(
                f"accelerator_type={accelerator_type!r} is ignored: there is no such accelerator", stacklevel=2
            )
        client = self.sagemaker_session.sagemaker_client
        name = client.describe_endpoint(EndpointName=self.endpoint_name)["EndpointConfigName"]
        current = client.describe_endpoint_config(EndpointConfigName=name)
        changed = new_variants(
            current["ProductionVariants"], count=initial_instance_count, instance_type=instance_type, model=model_name
        )
        if tags is None:
            tags = client.list_tags(ResourceArn=current["EndpointConfigArn"])["Tags"]
        config_name = timestamped(base_of(self.endpoint_name))
        capture = capture_request(data_capture_config_dict, self.sagemaker_session) or current.get("DataCaptureConfig")
        members = present(DataCaptureConfig=capture, KmsKeyId=kms_key, Tags=tags_of(tags) or None)
        client.create_endpoint_config(EndpointConfigName=config_name, ProductionVariants=changed, **members)
        client.update_endpoint(EndpointName=self.endpoint_name, EndpointConfigName=config_name)
        if wait:
            wait_in_service(self.sagemaker_session, self.endpoint_name, console=Console(), config_name=config_name)

    def delete_endpoint(self, delete_endpoint_config: bool = True) -> None:
        """Delete the endpoint.

        Args:
            delete_endpoint_config: Also delete its endpoint configuration.
        """
        client = self.sagemaker_session.sagemaker_client
        if delete_endpoint_config:
            config = client.describe_endpoint(EndpointName=self.endpoint_name)["EndpointConfigName"]
            self.sagemaker_session.delete_endpoint_config(config)
        self.sagemaker_session.delete_endpoint(self.endpoint_name)

    def delete_model(self) -> None:
        """Delete the models in the endpoint's configuration. Call it before `delete_endpoint`."""
        client = self.sagemaker_session.sagemaker_client
        config = client.describe_endpoint(EndpointName=self.endpoint_name)["EndpointConfigName"]
        for variant in client.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]:
            self.sagemaker_session.delete_model(variant["ModelName"])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks, without sending a request."""
        members = {
            "endpoint": self.endpoint_name,
            "sends": f"{self.content_type} ({type(self.serializer).__name__})",
            "reads": f"{self.accept} ({type(self.deserializer).__name__})",
        }
        return table(type(self).__name__, members)

    def deserialize(self, reply: Mapping[str, Any]) -> Any:
        """Return the value of an answer.

        Args:
            reply: A mapping with ``Body``, a stream, and possibly ``ContentType``, as InvokeEndpoint returns it.

        Returns:
            The result of the deserializer.
        """
        content = reply["Body"].read()
        if self.deserializer is None:
            return content
        deserialize = getattr(self.deserializer, "deserialize", self.deserializer)
        return deserialize(io.BytesIO(content), reply.get("ContentType", ""))


class TensorFlowPredictor(Predictor):
    """Calls a TensorFlow-Serving-based endpoint.

    With the default serializers `predict` takes a JSON request of TensorFlow Serving, such as ``{"instances": rows}``,
    or a list of rows; the answer is ``{"predictions": [...]}``.

    Args:
        endpoint_name: Name of the endpoint.
        sagemaker_session: As for `Predictor`.
        serializer: Serializes request bodies. Default: JSON.
        deserializer: Parses answers. Default: JSON.
        model_name: Name of a SavedModel in the archive. Default: the server's default model.
        model_version: Version of that model. Default: the latest.
        content_type: MIME type of requests. Default: the serializer's.
        accept: MIME types accepted as answers. Default: the deserializer's.
        component_name: Refused: an endpoint has no inference components.
        endpoint: Deprecated alias of ``endpoint_name``.

    Raises:
        ValueError: ``component_name`` is given, ``endpoint_name`` is missing, or ``endpoint`` differs from it.
    """

    def __init__(
        self,
        endpoint_name: str | None = None,
        sagemaker_session: Any = None,
        serializer: Any = None,
        deserializer: Any = None,
        model_name: str | None = None,
        model_version: str | int | None = None,
        content_type: str | None = None,
        accept: str | None = None,
        component_name: str | None = None,
        *,
        endpoint: str | None = None,
    ) -> None:
        refuse_arguments("TensorFlowPredictor", component_name=component_name)
        super().__init__(
            endpoint_name,
            sagemaker_session,
            JSONSerializer() if serializer is None else serializer,
            JSONDeserializer() if deserializer is None else deserializer,
            content_type,
            accept,
            endpoint=endpoint,
        )
        self.model_attributes = joined(
            f"tfs-model-name={model_name}" if model_name else None,
            f"tfs-model-version={model_version}" if model_version else None,
        )

    def classify(self, data: Any) -> Any:
        """Call TensorFlow Serving's classify method.

        Args:
            data: ``{"examples": [{FEATURE: VALUE, ...}, ...]}``; optionally ``"signature_name"`` and ``"context"``.

        Returns:
            ``{"results": [...]}``: for each example a list of ``[label, score]`` pairs.

        Raises:
            ValueError: The predictor does not send JSON.
        """
        return self._by_method("classify", data)

    def regress(self, data: Any) -> Any:
        """Call TensorFlow Serving's regress method.

        Args:
            data: ``{"examples": [{FEATURE: VALUE, ...}, ...]}``; optionally ``"signature_name"`` and ``"context"``.

        Returns:
            ``{"results": [...]}``: one number per example.

        Raises:
            ValueError: The predictor does not send JSON.
        """
        return self._by_method("regress", data)

    def _by_method(self, method: str, data: Any) -> Any:
        if self.content_type != "application/json":
            raise ValueError(f"{method} takes JSON, but this predictor sends {self.content_type!r}; use JSONSerializer")
        return self.predict(data, {"CustomAttributes": f"tfs-method={method}"})


def joined(*attributes: str | None) -> str | None:
    """Return several CustomAttributes as one; None without any."""
    return ",".join(each for each in attributes if each) or None


def _only_name(endpoint_name: str | None, endpoint: str | None) -> str:
    name = endpoint_name or endpoint
    if name is None or (endpoint is not None and endpoint != name):
        raise ValueError(
            f"endpoint_name={endpoint_name!r} and endpoint={endpoint!r} are two names of one argument; give one"
        )
    return name
