"""Models: an archive and the image that serves it. Deploys them at endpoints or runs batch transform jobs."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Unpack

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.core.names import S3Uri
from tidemill.sdk.arguments import in_order, present, tags_of
from tidemill.sdk.asynchronous import AsyncPredictor, async_request
from tidemill.sdk.console import Console
from tidemill.sdk.data_capture import capture_request
from tidemill.sdk.endpoint import put_endpoint, wait_in_service
from tidemill.sdk.hosting import production_variant
from tidemill.sdk.naming import base_of, check_name, image_base, timestamped
from tidemill.sdk.predictor import Predictor
from tidemill.sdk.registration import package_request, register
from tidemill.sdk.serverless import serverless_request
from tidemill.sdk.session import Session
from tidemill.sdk.transformer import ORDER, Transformer, TransformerOptions
from tidemill.sdk.variable import deferrable, is_pipeline_variable


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
        is_known = bool(model_data) and not is_pipeline_variable(model_data)
        self.model_data: Any = str(S3Uri.parse(model_data)) if is_known else model_data or ""
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

    @property
    def is_packed_later(self) -> bool:
        """Whether a pipeline packs code into the archive, which does not exist before the pipeline is executed."""
        return False

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

    @deferrable("create_model")
    def create(
        self,
        instance_type: str | None = None,
        accelerator_type: str | None = None,
        serverless_inference_config: Any = None,
        tags: Any = None,
    ) -> str:
        """Create the model at the service. A second call with the same values changes nothing.

        Args:
            instance_type: Instance type, from which the container image is chosen. Default: ``local``.
            accelerator_type: Ignored with a warning: Elastic Inference no longer exists.
            serverless_inference_config: Ignored: a serverless endpoint has the image of any other one without a GPU.
            tags: Tags of the model: a dict, or a list of dicts with ``Key`` and ``Value``. Default: none.

        Returns:
            The name of the model.

        Raises:
            botocore.exceptions.ClientError: The service refuses the model, e.g. because another one has its name.
        """
        del serverless_inference_config
        instance_type = instance_type or "local"
        if accelerator_type is not None:
            _warn(f"accelerator_type={accelerator_type!r} is ignored: there is no such accelerator", stacklevel=4)
        self.name = self.name or timestamped(self._base_name(instance_type))
        container = self.container(instance_type)
        request = present(
            ModelName=self.name,
            PrimaryContainer=container,
            ExecutionRoleArn=self.sagemaker_session.expand_role(self.role),
            Tags=tags_of(tags or None),
            VpcConfig=dict(self.vpc_config) if self.vpc_config else None,
            EnableNetworkIsolation=self.enable_network_isolation or None,
        )
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
        refuse_arguments(
            "Model.deploy",
            explainer_config=explainer_config,
            inference_recommendation_id=inference_recommendation_id,
        )
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
        later = async_request(async_inference_config, self.sagemaker_session, endpoint_name=name)
        variant = production_variant(
            model_name,
            instance_type,
            initial_instance_count,
            serverless_inference_config=serverless,
            volume_size=volume_size,
            model_data_download_timeout=model_data_download_timeout,
            container_startup_health_check_timeout=container_startup_health_check_timeout,
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

    @deferrable("create_model_package")
    def register(
        self,
        content_types: Sequence[str] | None = None,
        response_types: Sequence[str] | None = None,
        inference_instances: Sequence[str] | None = None,
        transform_instances: Sequence[str] | None = None,
        model_package_name: str | None = None,
        model_package_group_name: str | None = None,
        image_uri: str | None = None,
        model_metrics: Any = None,
        metadata_properties: Any = None,
        marketplace_cert: bool = False,
        approval_status: str | None = None,
        description: str | None = None,
        drift_check_baselines: Any = None,
        customer_metadata_properties: Mapping[str, str] | None = None,
        validation_specification: Any = None,
        domain: str | None = None,
        task: str | None = None,
        sample_payload_url: str | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        nearest_model_name: str | None = None,
        data_input_configuration: str | None = None,
        skip_model_validation: str | None = None,
        source_uri: str | None = None,
        *,
        tags: Any = None,
    ) -> "ModelPackage":
        """Register the model as a package: a new version of a group, or an unversioned one.

        Args:
            content_types: MIME types of requests, for the description.
            response_types: MIME types of answers, for the description.
            inference_instances: Instance types of endpoints, for the description.
            transform_instances: Instance types of transform jobs, for the description.
            model_package_name: Name of an unversioned package.
            model_package_group_name: Name of the group, which is created if it is missing. Default, without a
                ``model_package_name``: a name from the image.
            image_uri: Image of the package. Default: that of the model.
            model_metrics: `ModelMetrics`, or the request's member.
            metadata_properties: `MetadataProperties`, or the request's member.
            marketplace_cert: True is refused: there is no AWS Marketplace.
            approval_status: ``Approved``, ``Rejected`` or ``PendingManualApproval`` (default).
            description: Text that describes the package.
            drift_check_baselines: The request's ``DriftCheckBaselines``. Recorded.
            customer_metadata_properties: Texts by name.
            validation_specification: Refused by the service: packages are not validated.
            domain: Recorded.
            task: Recorded.
            sample_payload_url: Recorded.
            framework: Framework of the model, for the description. Default: that of a `TensorFlowModel`.
            framework_version: Its version.
            nearest_model_name: Recorded.
            data_input_configuration: Recorded.
            skip_model_validation: ``All`` or ``None``. Recorded: packages are not validated.
            source_uri: Recorded.
            tags: Tags of the package.

        Returns:
            The package, which can be deployed.
        """
        container = self.container("local")
        container |= self._framework() | present(
            Framework=framework,
            FrameworkVersion=framework_version,
            NearestModelName=nearest_model_name,
            ModelInput=present(DataInputConfig=data_input_configuration) or None,
        )
        if image_uri is not None:
            container["Image"] = image_uri
        if model_package_name is None and model_package_group_name is None:
            model_package_group_name = self._base_name("local")
        request = package_request(
            container,
            content_types=content_types,
            response_types=response_types,
            inference_instances=inference_instances,
            transform_instances=transform_instances,
            ModelPackageName=model_package_name,
            ModelPackageGroupName=model_package_group_name,
            ModelMetrics=model_metrics,
            MetadataProperties=metadata_properties,
            marketplace_cert=marketplace_cert,
            ModelApprovalStatus=approval_status,
            ModelPackageDescription=description,
            DriftCheckBaselines=drift_check_baselines,
            CustomerMetadataProperties=customer_metadata_properties,
            ValidationSpecification=validation_specification,
            Domain=domain,
            Task=task,
            SamplePayloadUrl=sample_payload_url,
            SkipModelValidation=skip_model_validation,
            SourceUri=source_uri,
            Tags=tags_of(tags),
        )
        return ModelPackage(
            self.role,
            model_package_arn=register(self.sagemaker_session, request),
            predictor_cls=self.predictor_cls,
            sagemaker_session=self.sagemaker_session,
        )

    @in_order(*ORDER, "volume_kms_key")
    def transformer(
        self, instance_count: int = 1, instance_type: str = "local", **options: Unpack[TransformerOptions]
    ) -> Transformer:
        """Create the model at the service, and return a `Transformer` for batch transform jobs of it.

        Args:
            instance_count: As for `Transformer`.
            instance_type: As for `Transformer`.
            **options: `TransformerOptions`; ``tags`` are also those of the model.

        Returns:
            The transformer.
        """
        model_name = self.create(instance_type, tags=options.get("tags"))
        return Transformer(
            model_name,
            instance_count,
            instance_type,
            base_transform_job_name=base_of(model_name),
            sagemaker_session=self.sagemaker_session,
            **options,
        )

    def delete_model(self) -> None:
        """Delete the model at the service; the archive is kept.

        Raises:
            ValueError: The model was not created.
        """
        if self.name is None:
            raise ValueError("this model was not created yet, so there is nothing to delete; call create() or deploy()")
        self.sagemaker_session.delete_model(self.name)

    def _framework(self) -> dict[str, str]:
        """Return the members of a package's container that name its framework."""
        return {}

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


class ModelPackage(Model):
    """A package of the registry, which can be deployed as a model.

    Args:
        role: As for `Model`.
        model_package_arn: ARN of the package, or its name: of a version ``GROUP/VERSION``.
        env: Variables of the server, added to those of the package; they win.
        name: As for `Model`.
        predictor_cls: As for `Model`.
        sagemaker_session: As for `Model`.
        vpc_config: As for `Model`.

    Raises:
        ValueError: ``model_package_arn`` is missing, or an argument cannot be used.

    Example:
        >>> ModelPackage(model_package_arn="tides/3").deploy(1, "local")  # doctest: +SKIP
    """

    def __init__(
        self,
        role: str = "SageMakerRole",
        model_package_arn: str = "",
        *,
        env: Mapping[str, str] | None = None,
        name: str | None = None,
        predictor_cls: Callable[..., Any] | None = Predictor,
        sagemaker_session: Any = None,
        vpc_config: Mapping[str, Any] | None = None,
    ) -> None:
        if not model_package_arn:
            raise ValueError("ModelPackage needs model_package_arn: the ARN of a package, or its name")
        super().__init__(
            "",
            role,
            env=env,
            name=name,
            predictor_cls=predictor_cls,
            sagemaker_session=sagemaker_session,
            vpc_config=vpc_config,
        )
        self.model_package_arn = model_package_arn

    def container(self, instance_type: str) -> dict[str, Any]:
        """Return the container definition for CreateModel; approve the version first, as AWS's SDK does.

        Args:
            instance_type: Ignored: the package has an image.

        Returns:
            The request member.
        """
        del instance_type
        described = self.sagemaker_session.sagemaker_client.describe_model_package(
            ModelPackageName=self.model_package_arn
        )
        self.model_package_arn = described["ModelPackageArn"]
        if described.get("ModelApprovalStatus", "Approved") != "Approved":
            self.update_approval_status("Approved")
        return {"ModelPackageName": self.model_package_arn, **({"Environment": self.env} if self.env else {})}

    def update_approval_status(self, approval_status: str, approval_description: str | None = None) -> None:
        """Approve or reject the version.

        Args:
            approval_status: ``Approved``, ``Rejected`` or ``PendingManualApproval``.
            approval_description: Why. Default: unchanged.
        """
        self._update(ModelApprovalStatus=approval_status, ApprovalDescription=approval_description)

    def update_customer_metadata(self, customer_metadata_properties: Mapping[str, str]) -> None:
        """Add metadata, or change its values.

        Args:
            customer_metadata_properties: Texts by name.
        """
        self._update(CustomerMetadataProperties=dict(customer_metadata_properties))

    def remove_customer_metadata_properties(self, customer_metadata_properties_to_remove: Sequence[str]) -> None:
        """Remove metadata.

        Args:
            customer_metadata_properties_to_remove: Names.
        """
        self._update(CustomerMetadataPropertiesToRemove=list(customer_metadata_properties_to_remove))

    def _update(self, **members: Any) -> None:
        client = self.sagemaker_session.sagemaker_client
        arn = client.describe_model_package(ModelPackageName=self.model_package_arn)["ModelPackageArn"]
        client.update_model_package(ModelPackageArn=arn, **present(**members))

    def _base_name(self, instance_type: str) -> str:
        del instance_type
        return base_of(self.model_package_arn.rpartition(":")[2].removeprefix("model-package/").replace("/", "-"))


REGISTERED = tuple(inspect.signature(Model.register).parameters)[1:]
"""Names of the arguments of `Model.register`."""


def _warn(text: str, *, stacklevel: int = 3) -> None:
    warnings.warn(text, stacklevel=stacklevel)  # at the call of the public method
