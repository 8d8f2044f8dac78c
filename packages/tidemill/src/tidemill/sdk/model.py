"""Models: an archive and the image that serves it. Deploys them at endpoints or runs batch transform jobs."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.core.compatibility import argument_refusal
from tidemill.core.images import DEFAULT_TENSORFLOW, device_of, inference_image, python_inference_image
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import DEFAULT_PYTHON, present, tags_of
from tidemill.sdk.asynchronous import AsyncPredictor, async_request
from tidemill.sdk.console import Console
from tidemill.sdk.data_capture import capture_request
from tidemill.sdk.endpoint import put_endpoint, wait_in_service
from tidemill.sdk.naming import base_of, check_name, image_base, timestamped
from tidemill.sdk.predictor import Predictor, TensorFlowPredictor
from tidemill.sdk.repack import repack
from tidemill.sdk.serverless import serverless_request
from tidemill.sdk.session import Session
from tidemill.sdk.sourcedir import SourceCode
from tidemill.sdk.transformer import Transformer

__all__ = ["PYTHON_HANDLERS", "TENSORFLOW_SERVING", "Model", "TensorFlowModel", "check_endpoint_type"]

TENSORFLOW_SERVING = "tensorflow-serving"
PYTHON_HANDLERS = "python"

_SERVING_LOG_LEVELS = {10: "debug", 20: "info", 30: "warn", 40: "error", 50: "crit"}


class Model:
    """An archive and an image that serves it.

    Args:
        model_data: S3 URI of ``model.tar.gz``.
        role: Name or ARN of the model's role.
        image_uri: Image of the server.
        env: Environment variables of the server.
        name: Name of the model. Default: a generated name.
        predictor_cls: Called with an endpoint name and a session; `deploy` returns its result.
        sagemaker_session: The `Session` to use. None connects to the configured service, or starts this user's local
            service.
        vpc_config: ``{"Subnets": [...], "SecurityGroupIds": [...]}``, sent as ``VpcConfig``.
        enable_network_isolation: True sends ``EnableNetworkIsolation``, which the service refuses for models.
            Default: False.
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
        self._created: dict[str, Any] | None = None

    def container(self, instance_type: str) -> dict[str, Any]:
        """Return the container definition for CreateModel; upload the model's code, if it has any.

        Args:
            instance_type: Ignored: an explicit image is used for every type.

        Returns:
            The request member, with image, archive and environment.

        Raises:
            ValueError: The model has no image.
        """
        if self.image_uri is None:
            raise ValueError(f"Model(model_data={self.model_data!r}) needs image_uri; or use TensorFlowModel")
        del instance_type  # an explicit image is used for every type
        return {"Image": self.image_uri, "ModelDataUrl": self.model_data, "Environment": self.env}

    def create(self, instance_type: str = "local", *, tags: Any = None) -> str:
        """Create the model at the service. A second call with the same values changes nothing.

        Args:
            instance_type: Instance type, from which the container image is chosen. Default: ``local``.
            tags: Tags of the model: a dict, or a list of dicts with ``Key`` and ``Value``. Default: none.

        Returns:
            The name of the model.

        Raises:
            botocore.exceptions.ClientError: The service refuses the model, e.g. because another one has its name.
        """
        self.name = self.name or timestamped(self._base_name(instance_type))
        container = self.container(instance_type)
        extra: dict[str, Any] = {}
        if tags:
            extra["Tags"] = tags_of(tags)
        if self.vpc_config:
            extra["VpcConfig"] = dict(self.vpc_config)
        if self.enable_network_isolation:
            extra["EnableNetworkIsolation"] = True
        request = {
            "ModelName": self.name,
            "PrimaryContainer": container,
            "ExecutionRoleArn": self.sagemaker_session.expand_role(self.role),
            **extra,
        }
        client = self.sagemaker_session.sagemaker_client
        try:
            client.create_model(**request)
        except client.exceptions.ClientError as error:
            exists = "Cannot create already existing model" in error.response["Error"]["Message"]
            if not exists or request != self._created:
                raise
        self._created = request
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
        async_inference_config: Any = None,
        serverless_inference_config: Any = None,
        explainer_config: Any = None,
        inference_recommendation_id: str | None = None,
    ) -> Any:
        """Serve the model at an endpoint.

        Args:
            initial_instance_count: Number of instances. Default: 1.
            instance_type: Type of these instances, or ``local``. Default: ``local``.
            serializer: Serializer of the predictor. Default: the predictor's own.
            deserializer: Deserializer of the predictor. Default: the predictor's own.
            accelerator_type: Ignored with a warning: Elastic Inference no longer exists.
            endpoint_name: Name of the endpoint. Default: a generated name.
            update_endpoint: Update the existing endpoint ``endpoint_name`` to this model; it keeps serving meanwhile.
            tags: Tags of the model, the endpoint configuration and the endpoint.
            kms_key: Sent as ``KmsKeyId``. Recorded: nothing is encrypted.
            wait: Return only when the endpoint is in service. Default: True.
            data_capture_config: A `DataCaptureConfig` or the request's ``DataCaptureConfig`` member. Default: nothing
                is captured.
            volume_size: In GB, sent as ``VolumeSizeInGB``. Recorded without effect.
            model_data_download_timeout: In seconds, sent as ``ModelDataDownloadTimeoutInSeconds``. Recorded without
                effect.
            container_startup_health_check_timeout: Maximum time in seconds for the server to start, sent as
                ``ContainerStartupHealthCheckTimeoutInSeconds``. Default: 900 (15 minutes).
            async_inference_config: An `AsyncInferenceConfig` or the request's ``AsyncInferenceConfig`` member: the
                endpoint reads its requests from S3, and an `AsyncPredictor` is returned. Default: the endpoint answers
                requests directly.
            serverless_inference_config: A `ServerlessInferenceConfig` or the request's ``ServerlessConfig`` member: the
                endpoint runs a server only while requests arrive. Number and type of instances are then omitted, with a
                warning if they are not the defaults. Default: the endpoint has instances.
            explainer_config: Refused.
            inference_recommendation_id: Refused.

        Returns:
            The result of ``predictor_cls``, or None without one; for an asynchronous endpoint it is wrapped in an
            `AsyncPredictor`.

        Raises:
            EndpointFailed: The endpoint does not come into service, or its update was rolled back.
            ValueError: An argument requests a feature that endpoints do not have.
        """
        _refuse(explainer_config=explainer_config, inference_recommendation_id=inference_recommendation_id)
        if async_inference_config is not None and serverless_inference_config is not None:
            raise ValueError("an endpoint is asynchronous or serverless: give one of the two configurations")
        if serverless_inference_config is not None and (initial_instance_count, instance_type) != (1, "local"):
            _warn(
                f"initial_instance_count={initial_instance_count!r} and instance_type={instance_type!r} are left out:"
                " a serverless endpoint has no instances of its own"
            )
        if accelerator_type is not None:
            _warn(f"accelerator_type={accelerator_type!r} is ignored: there is no such accelerator")
        name = self._endpoint_name(endpoint_name, update_endpoint, instance_type)
        model_name = self.create(instance_type, tags=tags)
        serverless = serverless_request(serverless_inference_config)
        later = None
        if async_inference_config is not None:
            later = async_request(async_inference_config, self.sagemaker_session, endpoint_name=name)
        variant = present(
            VariantName="AllTraffic",
            ModelName=model_name,
            InitialInstanceCount=initial_instance_count if serverless is None else None,
            InstanceType=instance_type if serverless is None else None,
            InitialVariantWeight=1,
            VolumeSizeInGB=volume_size,
            ModelDataDownloadTimeoutInSeconds=model_data_download_timeout,
            ContainerStartupHealthCheckTimeoutInSeconds=container_startup_health_check_timeout,
            ServerlessConfig=serverless,
        )
        capture = capture_request(data_capture_config, self.sagemaker_session)
        config = present(KmsKeyId=kms_key, DataCaptureConfig=capture, AsyncInferenceConfig=later)
        config_name = timestamped(base_of(name)) if update_endpoint else name
        config |= {"EndpointConfigName": config_name, "ProductionVariants": [variant]}
        put_endpoint(self.sagemaker_session, name, config, tags=tags_of(tags), update=update_endpoint)
        self.endpoint_name = name
        if wait:
            expected = config_name if update_endpoint else None
            wait_in_service(self.sagemaker_session, name, console=Console(), config_name=expected)
        predictor = self._predictor(name, serializer, deserializer)
        return predictor if later is None or predictor is None else AsyncPredictor(predictor, self.name)

    def transformer(
        self,
        instance_count: int = 1,
        instance_type: str = "local",
        strategy: str | None = None,
        assemble_with: str | None = None,
        output_path: str | None = None,
        output_kms_key: str | None = None,
        accept: str | None = None,
        env: Mapping[str, str] | None = None,
        max_concurrent_transforms: int | None = None,
        max_payload: int | None = None,
        tags: Any = None,
        volume_kms_key: str | None = None,
    ) -> Transformer:
        """Create the model at the service, and return a `Transformer` for batch transform jobs of it.

        Args:
            instance_count: As for `Transformer`.
            instance_type: As for `Transformer`.
            strategy: As for `Transformer`.
            assemble_with: As for `Transformer`.
            output_path: As for `Transformer`.
            output_kms_key: As for `Transformer`.
            accept: As for `Transformer`.
            env: As for `Transformer`.
            max_concurrent_transforms: As for `Transformer`.
            max_payload: As for `Transformer`.
            tags: Tags of the model and of the jobs.
            volume_kms_key: As for `Transformer`.

        Returns:
            The transformer.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        model_name = self.create(instance_type, tags=tags)
        return Transformer(
            model_name,
            **given,
            base_transform_job_name=base_of(model_name),
            sagemaker_session=self.sagemaker_session,
        )

    def delete_model(self) -> None:
        """Delete the model at the service; the archive is kept.

        Raises:
            ValueError: The model was not created.
        """
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
        data = self.model_data
        if self._code is not None:
            data = repack(self.sagemaker_session, data, self._code, target=self._place() / "model.tar.gz")
        level = self.container_log_level
        known = {} if level is None else {"SAGEMAKER_TFS_NGINX_LOGLEVEL": _SERVING_LOG_LEVELS.get(level, "info")}
        known |= self._workers("SAGEMAKER_GUNICORN_WORKERS")
        return {"Image": image, "ModelDataUrl": data, "Environment": {**known, **self.env}}

    def _workers(self, variable: str) -> dict[str, str]:
        return {} if self.model_server_workers is None else {variable: str(self.model_server_workers)}

    def _image(self, instance_type: str) -> str:
        region, device = self.sagemaker_session.boto_region_name, device_of(instance_type)
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


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)  # at the call of the public method


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        refusal = argument_refusal("Model.deploy", name, value)
        if refusal is not None:
            raise ValueError(refusal)
