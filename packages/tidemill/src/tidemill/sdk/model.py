"""Models: an archive, the server that serves it, and the way from there to an endpoint."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.core.images import device_of, inference_image, python_inference_image
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import DEFAULT_FRAMEWORK, DEFAULT_PYTHON, tags_of
from tidemill.sdk.console import Console
from tidemill.sdk.endpoint import EndpointPlan, put_endpoint, wait_in_service
from tidemill.sdk.naming import base_of, check_name, image_base, timestamped
from tidemill.sdk.predictor import Predictor, TensorFlowPredictor
from tidemill.sdk.repack import repack
from tidemill.sdk.session import Session
from tidemill.sdk.sourcedir import SourceCode

__all__ = ["PYTHON_HANDLERS", "TENSORFLOW_SERVING", "Model", "TensorFlowModel", "check_endpoint_type"]

TENSORFLOW_SERVING = "tensorflow-serving"
PYTHON_HANDLERS = "python"

_SERVING_LOG_LEVELS = {10: "debug", 20: "info", 30: "warn", 40: "error", 50: "crit"}


class Model:
    """An archive and an image that serves it.

    Args:
        model_data: S3 URI of ``model.tar.gz``.
        role: Name or ARN.
        image_uri: Image that serves.
        env: Environment of the server.
        name: Of the model; None makes one up.
        predictor_cls: Makes what `deploy` returns, from an endpoint name and a session.
        sagemaker_session: Way to the service; None finds it.
        vpc_config: Subnets and security groups in the wire's form.
        enable_network_isolation: Sent on.
    """

    def __init__(
        self,
        model_data: str,
        role: str = "SageMakerRole",
        image_uri: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        predictor_cls: Callable[..., Any] | None = Predictor,
        sagemaker_session: Any = None,
        vpc_config: Mapping[str, Any] | None = None,
        enable_network_isolation: bool = False,
    ) -> None:
        self.model_data = str(S3Uri.parse(model_data))
        self.role = role
        self.image_uri = image_uri
        self.env = dict(env or {})
        self.name = None if name is None else check_name("name", name)
        self.predictor_cls = predictor_cls
        self.sagemaker_session = Session.adopt(sagemaker_session)
        self.vpc_config = vpc_config
        self.enable_network_isolation = enable_network_isolation
        self.endpoint_name: str | None = None

    def container(self, instance_type: str) -> dict[str, Any]:
        """The container definition for CreateModel; uploads code where the model has any."""
        if self.image_uri is None:
            raise ValueError(f"Model(model_data={self.model_data!r}) needs image_uri; or use TensorFlowModel")
        del instance_type  # an image that is given serves on every type
        return {"Image": self.image_uri, "ModelDataUrl": self.model_data, "Environment": self.env}

    def create(self, instance_type: str = "local", *, tags: Any = None) -> str:
        """Create the model at the service; its name."""
        self.name = self.name or timestamped(self._base_name(instance_type))
        container = self.container(instance_type)
        extra: dict[str, Any] = {}
        if tags:
            extra["Tags"] = tags_of(tags)
        if self.vpc_config:
            extra["VpcConfig"] = dict(self.vpc_config)
        if self.enable_network_isolation:
            extra["EnableNetworkIsolation"] = True
        self.sagemaker_session.sagemaker_client.create_model(
            ModelName=self.name,
            PrimaryContainer=container,
            ExecutionRoleArn=self.sagemaker_session.expand_role(self.role),
            **extra,
        )
        return self.name

    def deploy(
        self,
        initial_instance_count: int = 1,
        instance_type: str = "local",
        *,
        serializer: Any = None,
        deserializer: Any = None,
        accelerator_type: str | None = None,
        endpoint_name: str | None = None,
        update_endpoint: bool = False,
        tags: Any = None,
        kms_key: str | None = None,
        wait: bool = True,
        data_capture_config: Any = None,
        volume_size: int | None = None,
        model_data_download_timeout: int | None = None,
        container_startup_health_check_timeout: int | None = None,
    ) -> Any:
        """Serve the model at an endpoint.

        Args:
            initial_instance_count: How many instances serve.
            instance_type: Of these instances; ``local`` is this machine.
            serializer: For the predictor.
            deserializer: For the predictor.
            accelerator_type: Accepted and ignored with a warning: such accelerators are gone everywhere.
            endpoint_name: Made up if None.
            update_endpoint: Give an endpoint that exists this model.
            tags: For everything that is created.
            kms_key: Sent on.
            wait: Return when the endpoint serves, not before.
            data_capture_config: Sent on.
            volume_size: In GB; sent on.
            model_data_download_timeout: In seconds; sent on.
            container_startup_health_check_timeout: In seconds; sent on.

        Returns:
            What ``predictor_cls`` makes, or None without one.

        Raises:
            EndpointFailed: The endpoint does not come into service.
        """
        if accelerator_type is not None:
            warnings.warn(
                f"accelerator_type={accelerator_type!r} is ignored: there is no such accelerator", stacklevel=2
            )
        name = self._endpoint_name(endpoint_name, update_endpoint, instance_type)
        model_name = self.create(instance_type, tags=tags)
        plan = EndpointPlan(
            name=name,
            model_name=model_name,
            instance_count=initial_instance_count,
            instance_type=instance_type,
            variant=_present(
                VolumeSizeInGB=volume_size,
                ModelDataDownloadTimeoutInSeconds=model_data_download_timeout,
                ContainerStartupHealthCheckTimeoutInSeconds=container_startup_health_check_timeout,
            ),
            config=_present(KmsKeyId=kms_key, DataCaptureConfig=_capture(data_capture_config)),
            tags=tags_of(tags),
        )
        config_name = timestamped(base_of(name)) if update_endpoint else name
        put_endpoint(self.sagemaker_session, plan, config_name=config_name, update=update_endpoint)
        self.endpoint_name = name
        if wait:
            wait_in_service(self.sagemaker_session, name, console=Console())
        return self._predictor(name, serializer, deserializer)

    def delete_model(self) -> None:
        """Delete the model at the service; the archive stays."""
        if self.name is None:
            raise ValueError("this model was not created yet, so there is nothing to delete; call create() or deploy()")
        self.sagemaker_session.delete_model(self.name)

    def _base_name(self, instance_type: str) -> str:
        del instance_type
        return image_base(self.image_uri or "model")

    def _endpoint_name(self, given: str | None, update: bool, instance_type: str) -> str:
        if given is not None:
            return check_name("endpoint_name", given)
        if update:
            raise ValueError("update_endpoint=True needs endpoint_name: the endpoint that gets this model")
        return timestamped(base_of(self.name) if self.name else self._base_name(instance_type))

    def _predictor(self, name: str, serializer: Any, deserializer: Any) -> Any:
        if self.predictor_cls is None:
            return None
        predictor = self.predictor_cls(name, self.sagemaker_session)
        if serializer is not None:
            predictor.serializer = serializer
        if deserializer is not None:
            predictor.deserializer = deserializer
        return predictor


class TensorFlowModel(Model):
    """A SavedModel archive, served by one of the two TensorFlow servers.

    Args:
        model_data: S3 URI of ``model.tar.gz``.
        role: Name or ARN.
        entry_point: Script with handlers; of TensorFlow Serving's kind it becomes ``code/inference.py`` of the archive.
        image_uri: Instead of the image made from the version.
        framework_version: TensorFlow version.
        endpoint_type: ``tensorflow-serving`` (default): TensorFlow Serving's REST API. ``python``: the older server
            with ``input_fn``, ``output_fn`` and ``transform_fn``.
        source_dir: Directory of the entry point.
        dependencies: Further files and directories.
        py_version: Python of the handlers, for the ``python`` kind.
        container_log_level: Of the server, by Python's ``logging``.
        code_location: S3 prefix for uploaded code; the default bucket if None.
        predictor_cls: As in `Model`.
        env: As in `Model`.
        name: As in `Model`.
        sagemaker_session: As in `Model`.
        vpc_config: As in `Model`.
        enable_network_isolation: As in `Model`.
        image: Earlier name of ``image_uri``.

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
    ) -> None:
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
        self.framework_version = framework_version or DEFAULT_FRAMEWORK
        self.py_version = py_version or DEFAULT_PYTHON
        self.container_log_level = container_log_level
        self.code_location = code_location
        self._code = None if entry_point is None else SourceCode.find(entry_point, source_dir, dependencies)

    def use_code(self, code: SourceCode) -> None:
        """Serve with these handlers, e.g. code that a training job has uploaded already."""
        self._code = code

    def container(self, instance_type: str) -> dict[str, Any]:
        """The container definition for CreateModel; uploads the handlers where the model has any."""
        image = self.image_uri or self._image(instance_type)
        if self.endpoint_type == PYTHON_HANDLERS:
            return {"Image": image, "ModelDataUrl": self.model_data, "Environment": self._python_environment()}
        data = self.model_data
        if self._code is not None:
            data = repack(self.sagemaker_session, data, self._code, target=self._place() / "model.tar.gz")
        level = self.container_log_level
        known = {} if level is None else {"SAGEMAKER_TFS_NGINX_LOGLEVEL": _SERVING_LOG_LEVELS.get(level, "info")}
        return {"Image": image, "ModelDataUrl": data, "Environment": {**known, **self.env}}

    def _image(self, instance_type: str) -> str:
        region, device = self.sagemaker_session.boto_region_name, device_of(instance_type)
        if self.endpoint_type == PYTHON_HANDLERS:
            return python_inference_image(self.framework_version, self.py_version, region, device=device)
        return inference_image(self.framework_version, region, device=device)

    def _python_environment(self) -> dict[str, str]:
        known = {
            "SAGEMAKER_CONTAINER_LOG_LEVEL": str(self.container_log_level or 20),
            "SAGEMAKER_REGION": self.sagemaker_session.boto_region_name,
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
        """Where this model's own objects go."""
        if self.code_location is not None:
            return S3Uri.parse(self.code_location) / (self.name or "model")
        return S3Uri(self.sagemaker_session.default_bucket(), self.name or "model")

    def _base_name(self, instance_type: str) -> str:
        return image_base(self.image_uri or self._image(instance_type))


def check_endpoint_type(endpoint_type: str | None) -> str:
    """The kind of endpoint; None means TensorFlow Serving's.

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


def _capture(config: Any) -> Any:
    convert = getattr(config, "_to_request_dict", None)
    return convert() if convert else config


def _present(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
