"""The context argument that handlers of ``inference.py`` get with a request (TensorFlow-Serving-based endpoints)."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemill_serving.handlers.wire import WorkerSetup

UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
"""Options of a gRPC channel to the models: grpcio's own limit for answers is 4 MB."""
_ATTRIBUTE = re.compile(r"(tfs-[a-z\-]+)=([^,]+)")
_DEFAULT_TYPE = "application/json"


class Context(NamedTuple):
    """Facts about a request, for its handler.

    Attributes:
        model_name: The model that the request names by ``tfs-model-name``, or the default model.
        model_version: Version as text; None if the request names none, which means the latest.
        method: ``predict``, ``classify`` or ``regress``; None if the request names none, which means predict.
        rest_uri: URL of the model method in TF Serving's REST API, on a loopback port.
        grpc_port: Loopback port of TF Serving's gRPC API.
        channel: gRPC channel to that port, shared by all requests of the worker.
        custom_attributes: Header ``X-Amzn-SageMaker-Custom-Attributes`` as sent; None without one.
        request_content_type: Content-Type; ``application/json`` without one.
        accept_header: Accept; ``application/json`` without one.
        content_length: Size of the body in bytes.
    """

    model_name: str
    model_version: str | None
    method: str | None
    rest_uri: str
    grpc_port: int
    channel: Any
    custom_attributes: str | None
    request_content_type: str
    accept_header: str
    content_length: int


class Contexts:
    """Creates the contexts of one worker.

    Args:
        setup: Ports and the default model.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._channel = _channel(setup.grpc_port)

    def of(self, request: Mapping[str, Any], *, size_bytes: int) -> Context:
        """Return the context of a request; ``request`` is the header of its frame.

        Args:
            size_bytes: Bytes of the body.

        Returns:
            What the handler gets as ``context``; model, version and method come from the attributes or the setup.
        """
        attributes = request.get("attributes") or ""
        chosen = dict(_ATTRIBUTE.findall(attributes))
        name = chosen.get("tfs-model-name", self._setup.default_model)
        version, method = chosen.get("tfs-model-version"), chosen.get("tfs-method")
        path = f"/v1/models/{name}" + (f"/versions/{version}" if version else "")
        return Context(
            model_name=name,
            model_version=version,
            method=method,
            rest_uri=f"http://localhost:{self._setup.rest_port}{path}:{method or 'predict'}",
            grpc_port=self._setup.grpc_port,
            channel=self._channel,
            custom_attributes=request.get("attributes"),
            request_content_type=request.get("content_type") or _DEFAULT_TYPE,
            accept_header=request.get("accept") or _DEFAULT_TYPE,
            content_length=size_bytes,
        )


def _channel(port: int) -> Any:
    import grpc  # pyrefly: ignore[missing-import]  # comes with TensorFlow

    return grpc.insecure_channel(f"localhost:{port}", options=UNLIMITED)
