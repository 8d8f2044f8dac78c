"""Predictors: Python values in, Python values out, over InvokeEndpoint."""

import io
from collections.abc import Mapping
from typing import Any

from tidemill.sdk.serializers import JSONDeserializer, JSONSerializer
from tidemill.sdk.session import Session

__all__ = ["Predictor", "TensorFlowPredictor"]


class Predictor:
    """Asks one endpoint.

    Args:
        endpoint_name: The endpoint.
        sagemaker_session: Way to the service; None finds it.
        serializer: Makes request bodies; JSON by default.
        deserializer: Reads reply bodies; JSON by default.
        content_type: Instead of the serializer's.
        accept: Instead of the deserializer's.
    """

    def __init__(
        self,
        endpoint_name: str,
        sagemaker_session: Any = None,
        serializer: Any = None,
        deserializer: Any = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> None:
        self.endpoint_name = endpoint_name
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self.serializer = JSONSerializer() if serializer is None else serializer
        self.deserializer = JSONDeserializer() if deserializer is None else deserializer
        self._content_type = content_type
        self._accept = accept

    @property
    def endpoint(self) -> str:
        """The endpoint's name, under its first name."""
        return self.endpoint_name

    @property
    def content_type(self) -> str:
        """MIME type of requests."""
        own = getattr(self.serializer, "CONTENT_TYPE", None) or getattr(self.serializer, "content_type", None)
        return self._content_type or own or "application/octet-stream"

    @property
    def accept(self) -> str:
        """MIME types asked for."""
        own = getattr(self.deserializer, "ACCEPT", None) or getattr(self.deserializer, "accept", None) or "*/*"
        return self._accept or (own if isinstance(own, str) else ", ".join(own))

    def predict(
        self,
        data: Any,
        initial_args: Mapping[str, Any] | None = None,
        target_model: str | None = None,
        target_variant: str | None = None,
        inference_id: str | None = None,
        custom_attributes: str | None = None,
    ) -> Any:
        """Ask the endpoint.

        Args:
            data: What the serializer takes: lists, dictionaries, NumPy arrays.
            initial_args: Further members of InvokeEndpoint.
            target_model: Archive of a multi-model endpoint.
            target_variant: Production variant.
            inference_id: Mark of the request.
            custom_attributes: For the container, e.g. ``tfs-model-name=second``.

        Returns:
            What the deserializer makes of the reply.

        Raises:
            botocore.exceptions.ClientError: The endpoint does not exist or the model failed (code ``ModelError``).
        """
        request: dict[str, Any] = {"ContentType": self.content_type, "Accept": self.accept, **(initial_args or {})}
        request |= _present(
            TargetModel=target_model,
            TargetVariant=target_variant,
            InferenceId=inference_id,
            CustomAttributes=_joined(request.get("CustomAttributes"), custom_attributes),
        )
        serialize = getattr(self.serializer, "serialize", self.serializer)
        reply = self.sagemaker_session.sagemaker_runtime_client.invoke_endpoint(
            **request, EndpointName=self.endpoint_name, Body=serialize(data)
        )
        return self._deserialize(reply)

    def delete_endpoint(self, delete_endpoint_config: bool = True) -> None:
        """Delete the endpoint and, by default, its configuration."""
        client = self.sagemaker_session.sagemaker_client
        if delete_endpoint_config:
            config = client.describe_endpoint(EndpointName=self.endpoint_name)["EndpointConfigName"]
            self.sagemaker_session.delete_endpoint_config(config)
        self.sagemaker_session.delete_endpoint(self.endpoint_name)

    def delete_model(self) -> None:
        """Delete the models that the endpoint's configuration names; before `delete_endpoint`."""
        client = self.sagemaker_session.sagemaker_client
        config = client.describe_endpoint(EndpointName=self.endpoint_name)["EndpointConfigName"]
        for variant in client.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]:
            self.sagemaker_session.delete_model(variant["ModelName"])

    def _deserialize(self, reply: Mapping[str, Any]) -> Any:
        body = io.BytesIO(reply["Body"].read())
        deserialize = getattr(self.deserializer, "deserialize", self.deserializer)
        return deserialize(body, reply.get("ContentType", ""))


class TensorFlowPredictor(Predictor):
    """Asks an endpoint of TensorFlow Serving's kind.

    Args:
        endpoint_name: The endpoint.
        sagemaker_session: Way to the service; None finds it.
        serializer: Makes request bodies; JSON by default.
        deserializer: Reads reply bodies; JSON by default.
        model_name: A SavedModel of the archive; None takes the default one.
        model_version: Its version; None takes the latest.
        content_type: Instead of the serializer's.
        accept: Instead of the deserializer's.
    """

    def __init__(
        self,
        endpoint_name: str,
        sagemaker_session: Any = None,
        serializer: Any = None,
        deserializer: Any = None,
        model_name: str | None = None,
        model_version: str | int | None = None,
        content_type: str | None = None,
        accept: str | None = None,
    ) -> None:
        super().__init__(endpoint_name, sagemaker_session, serializer, deserializer, content_type, accept)
        self._model_attributes = _joined(
            f"tfs-model-name={model_name}" if model_name else None,
            f"tfs-model-version={model_version}" if model_version else None,
        )

    def predict(
        self,
        data: Any,
        initial_args: Mapping[str, Any] | None = None,
        target_model: str | None = None,
        target_variant: str | None = None,
        inference_id: str | None = None,
        custom_attributes: str | None = None,
    ) -> Any:
        """Predict; see `Predictor.predict`. A bare list of rows answers ``{"predictions": [...]}``."""
        attributes = _joined(custom_attributes, self._model_attributes)
        return super().predict(data, initial_args, target_model, target_variant, inference_id, attributes)

    def classify(self, data: Any) -> Any:
        """TensorFlow Serving's classify; ``data`` is ``{"examples": [...]}``."""
        return self._by_method("classify", data)

    def regress(self, data: Any) -> Any:
        """TensorFlow Serving's regress; ``data`` is ``{"examples": [...]}``."""
        return self._by_method("regress", data)

    def _by_method(self, method: str, data: Any) -> Any:
        if self.content_type != "application/json":
            raise ValueError(f"{method} takes JSON, but this predictor sends {self.content_type!r}; use JSONSerializer")
        return self.predict(data, {"CustomAttributes": f"tfs-method={method}"})


def _joined(*attributes: str | None) -> str | None:
    return ",".join(each for each in attributes if each) or None


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
