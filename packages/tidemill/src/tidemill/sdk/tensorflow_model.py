"""SavedModel archives, served by one of the two TensorFlow servers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.core.images import DEFAULT_TENSORFLOW, inference_image, python_inference_image
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import DEFAULT_PYTHON
from tidemill.sdk.model import Model
from tidemill.sdk.naming import image_base
from tidemill.sdk.predictor import TensorFlowPredictor
from tidemill.sdk.repack import repack
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.variable import device_for, is_pipeline_variable

TENSORFLOW_SERVING = "tensorflow-serving"
PYTHON_HANDLERS = "python"

_SERVING_LOG_LEVELS = {10: "debug", 20: "info", 30: "warn", 40: "error", 50: "crit"}


class TensorFlowModel(Model):
    """A SavedModel archive, served by one of the two TensorFlow servers.

    Args:
        model_data: S3 URI of ``model.tar.gz``.
        role: Name or ARN of the model's role.
        entry_point: Script with handlers. For ``tensorflow-serving`` it becomes ``code/inference.py`` of the archive.
        image_uri: Image of the server, in place of the one derived from ``framework_version``.
        framework_version: TensorFlow version, e.g. ``2.21``.
        endpoint_type: ``tensorflow-serving`` (default): TensorFlow Serving's REST API. ``python``: the older server
            with ``input_fn``, ``output_fn`` and ``transform_fn``.
        source_dir: Directory of the entry point.
        dependencies: Files and directories to copy next to the entry point.
        git_config: A Git repository, as for `TensorFlow`.
        py_version: Python version of the handlers; only for ``python`` endpoints.
        container_log_level: Log level of the server, a level of Python's ``logging``.
        code_location: S3 prefix for uploaded code. Default: the default bucket.
        predictor_cls: As for `Model`.
        env: As for `Model`.
        name: As for `Model`.
        sagemaker_session: As for `Model`.
        vpc_config: As for `Model`.
        enable_network_isolation: As for `Model`.
        image: Deprecated alias of ``image_uri``.
        model_server_workers: Number of processes that run the handlers: the variable ``SAGEMAKER_MODEL_SERVER_WORKERS``
            of ``python`` endpoints, otherwise ``SAGEMAKER_GUNICORN_WORKERS``. Default: the server's.

    Raises:
        ValueError: ``image`` and ``image_uri`` differ, or another argument is not allowed.

    Example:
        >>> TensorFlowModel("s3://bucket/model.tar.gz").deploy(1, "local")  # doctest: +SKIP
    """

    def __init__(
        self,
        model_data: str,
        role: str = "SageMakerRole",
        entry_point: str | None = None,
        image_uri: str | None = None,
        framework_version: str | None = None,
        *,
        endpoint_type: str | None = None,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        git_config: Mapping[str, Any] | None = None,
        py_version: str | None = None,
        container_log_level: int | None = None,
        code_location: str | None = None,
        predictor_cls: Callable[..., Any] | None = TensorFlowPredictor,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        sagemaker_session: Any = None,
        vpc_config: Mapping[str, Any] | None = None,
        enable_network_isolation: bool = False,
        image: str | None = None,
        model_server_workers: int | None = None,
    ) -> None:
        if model_server_workers is not None and model_server_workers < 1:
            raise ValueError(f"model_server_workers={model_server_workers!r}: expected at least 1")
        if image is not None and image_uri is not None and image != image_uri:
            raise ValueError(f"image_uri={image_uri!r} and image={image!r} are two names of one argument; give one")
        super().__init__(
            model_data,
            role,
            image_uri or image,
            env=env,
            name=name,
            predictor_cls=predictor_cls,
            sagemaker_session=sagemaker_session,
            vpc_config=vpc_config,
            enable_network_isolation=enable_network_isolation,
        )
        self.endpoint_type = check_endpoint_type(endpoint_type)
        self.framework_version = framework_version or DEFAULT_TENSORFLOW
        self.py_version = py_version or DEFAULT_PYTHON
        self.container_log_level = container_log_level
        self.code_location = code_location
        self.model_server_workers = model_server_workers
        self._code = None if entry_point is None else SourceCode.find(entry_point, source_dir, dependencies, git_config)

    @property
    def handlers(self) -> SourceCode | None:
        """The code with handlers, if there is any."""
        return self._code

    @property
    def is_packed_later(self) -> bool:
        """Whether a pipeline packs code into the archive, which does not exist before the pipeline is executed."""
        is_served_with_code = self._code is not None and self.endpoint_type == TENSORFLOW_SERVING
        return is_served_with_code and is_pipeline_variable(self.model_data)

    def use_code(self, code: SourceCode) -> None:
        """Use these handlers instead of those of ``entry_point``.

        Args:
            code: Handlers, e.g. code that a training job has already uploaded.
        """
        self._code = code

    def container(self, instance_type: str) -> dict[str, Any]:
        """Return the container definition for CreateModel; upload the handlers, if the model has any.

        Args:
            instance_type: Instance type, from which the image is chosen.

        Returns:
            The request member, with image, archive and environment.
        """
        image = self.image_uri or self._image(instance_type)
        if self.endpoint_type == PYTHON_HANDLERS:
            return {"Image": image, "ModelDataUrl": self.model_data, "Environment": self._python_environment()}
        data: Any = self.model_data
        if self._code is not None and not is_pipeline_variable(data):
            data = repack(self.sagemaker_session, data, self._code, target=self._place() / "model.tar.gz")
        level = self.container_log_level
        known = {} if level is None else {"SAGEMAKER_TFS_NGINX_LOGLEVEL": _SERVING_LOG_LEVELS.get(level, "info")}
        known |= self._workers("SAGEMAKER_GUNICORN_WORKERS")
        return {"Image": image, "ModelDataUrl": data, "Environment": {**known, **self.env}}

    def _framework(self) -> dict[str, str]:
        return {"Framework": "TENSORFLOW", "FrameworkVersion": self.framework_version}

    def _workers(self, variable: str) -> dict[str, str]:
        return {} if self.model_server_workers is None else {variable: str(self.model_server_workers)}

    def _image(self, instance_type: str) -> str:
        region, device = self.sagemaker_session.boto_region_name, device_for(instance_type)
        if self.endpoint_type == PYTHON_HANDLERS:
            return python_inference_image(self.framework_version, self.py_version, region, device=device)
        return inference_image(self.framework_version, region, device=device)

    def _python_environment(self) -> dict[str, str]:
        known = {
            "SAGEMAKER_CONTAINER_LOG_LEVEL": str(self.container_log_level or 20),
            "SAGEMAKER_REGION": self.sagemaker_session.boto_region_name,
            **self._workers("SAGEMAKER_MODEL_SERVER_WORKERS"),
        }
        if self._code is not None:
            known["SAGEMAKER_PROGRAM"] = self._code.entry_point
            known["SAGEMAKER_SUBMIT_DIRECTORY"] = self._code.remote or self._upload_code()
        return {**known, **self.env}

    def _upload_code(self) -> str:
        assert self._code is not None
        target = self._place() / "sourcedir.tar.gz"
        self.sagemaker_session.ensure_bucket(target.bucket)
        self.sagemaker_session.s3_client.put_object(Bucket=target.bucket, Key=target.key, Body=self._code.pack())
        return str(target)

    def _place(self) -> S3Uri:
        """Return the S3 prefix of this model's objects."""
        if self.code_location is not None:
            return S3Uri.parse(self.code_location) / (self.name or "model")
        return S3Uri(self.sagemaker_session.default_bucket(), self.name or "model")

    def _base_name(self, instance_type: str) -> str:
        return image_base(self.image_uri or self._image(instance_type))


def check_endpoint_type(endpoint_type: str | None) -> str:
    """Return the kind of endpoint; None means TensorFlow Serving's.

    Raises:
        ValueError: There is no such kind.
    """
    if endpoint_type is None:
        return TENSORFLOW_SERVING
    if endpoint_type not in (TENSORFLOW_SERVING, PYTHON_HANDLERS):
        raise ValueError(
            f"endpoint_type={endpoint_type!r} is not a kind of endpoint; expected {TENSORFLOW_SERVING!r} or"
            f" {PYTHON_HANDLERS!r}"
        )
    return endpoint_type
