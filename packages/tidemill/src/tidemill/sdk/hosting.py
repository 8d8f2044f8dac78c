"""What a session does with models and endpoints by their names, without an object for each."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.sdk.arguments import present, tags_of
from tidemill.sdk.variable import deferrable

_ENDPOINT_TIMEOUT_S = 3600


class HostingOperations(ABC):
    """The part of a session that creates and deletes models and endpoints."""

    @property
    @abstractmethod
    def sagemaker_client(self) -> Any:
        """boto3's ``sagemaker`` client."""

    @abstractmethod
    def expand_role(self, role: Any) -> Any:
        """Return the ARN of a role.

        Args:
            role: ARN or name.
        """

    @deferrable("create_endpoint_config")
    def create_endpoint_config(
        self,
        name: str,
        model_name: Any = None,
        initial_instance_count: Any = 1,
        instance_type: Any = "local",
        accelerator_type: str | None = None,
        tags: Any = None,
        kms_key: str | None = None,
        data_capture_config_dict: Mapping[str, Any] | None = None,
        *,
        production_variants: Sequence[Mapping[str, Any]] | None = None,
    ) -> Any:
        """Create the configuration of an endpoint.

        Args:
            name: Name of the configuration.
            model_name: Name of the model of the only variant.
            initial_instance_count: Number of its instances.
            instance_type: Type of its instances.
            accelerator_type: Ignored: Elastic Inference no longer exists.
            tags: Tags of the configuration: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
            kms_key: Sent as ``KmsKeyId``. Recorded: nothing is encrypted.
            data_capture_config_dict: Sent as ``DataCaptureConfig``.
            production_variants: Variants, in place of the only one.

        Returns:
            The name; of a `PipelineSession`, arguments of an `EndpointConfigStep`.
        """
        del accelerator_type
        variants = production_variants or (production_variant(model_name, instance_type, initial_instance_count),)
        self._create_config(name, variants, tags, KmsKeyId=kms_key, DataCaptureConfig=data_capture_config_dict)
        return name

    @deferrable("create_endpoint")
    def create_endpoint(self, endpoint_name: str, config_name: Any, tags: Any = None, wait: bool = True) -> Any:
        """Create an endpoint.

        Args:
            endpoint_name: Name of the endpoint.
            config_name: Name of its configuration.
            tags: Tags of the endpoint: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
            wait: Return only when the endpoint is in service. Default: True.

        Returns:
            The name; of a `PipelineSession`, arguments of an `EndpointStep`.

        Raises:
            botocore.exceptions.WaiterError: The endpoint does not come into service.
        """
        self._start_endpoint(endpoint_name, config_name, tags, wait=wait)
        return endpoint_name

    def _create_config(
        self, name: str, variants: Sequence[Mapping[str, Any]], tags: Any, **members: Mapping[str, Any] | str | None
    ) -> None:
        self.sagemaker_client.create_endpoint_config(
            EndpointConfigName=name, ProductionVariants=list(variants), Tags=tags_of(tags) or [], **present(**members)
        )

    def _start_endpoint(self, endpoint_name: str, config_name: Any, tags: Any, *, wait: bool) -> None:
        client = self.sagemaker_client
        client.create_endpoint(EndpointName=endpoint_name, EndpointConfigName=config_name, Tags=tags_of(tags) or [])
        if wait:
            often = {"Delay": 1, "MaxAttempts": _ENDPOINT_TIMEOUT_S}
            client.get_waiter("endpoint_in_service").wait(EndpointName=endpoint_name, WaiterConfig=often)

    def endpoint_from_production_variants(
        self,
        name: str,
        production_variants: Sequence[Mapping[str, Any]],
        tags: Any = None,
        kms_key: str | None = None,
        wait: bool = True,
        data_capture_config_dict: Mapping[str, Any] | None = None,
        async_inference_config_dict: Mapping[str, Any] | None = None,
    ) -> str:
        """Create an endpoint with several variants, and its configuration of the same name.

        Args:
            name: Name of both.
            production_variants: Variants, as `production_variant` returns them.
            tags: Tags of both: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.
            kms_key: Sent as ``KmsKeyId``. Recorded: nothing is encrypted.
            wait: Return only when the endpoint is in service. Default: True.
            data_capture_config_dict: Sent as ``DataCaptureConfig``.
            async_inference_config_dict: Sent as ``AsyncInferenceConfig``.

        Returns:
            The name.

        Raises:
            botocore.exceptions.WaiterError: The endpoint does not come into service.
        """
        self._create_config(
            name,
            production_variants,
            tags,
            KmsKeyId=kms_key,
            DataCaptureConfig=data_capture_config_dict,
            AsyncInferenceConfig=async_inference_config_dict,
        )
        self._start_endpoint(name, name, tags, wait=wait)
        return name

    def create_model(
        self,
        name: str,
        role: str | None = None,
        container_defs: Any = None,
        vpc_config: Mapping[str, Any] | None = None,
        enable_network_isolation: bool = False,
        primary_container: Any = None,
        tags: Any = None,
    ) -> str:
        """Create a model of an archive and an image.

        Args:
            name: Name of the model.
            role: Name or ARN of its role. Default: ``SageMakerRole``.
            container_defs: The container: ``{"Image": ..., "ModelDataUrl": ..., "Environment": {...}}``, or a list of
                containers, of which the service accepts one.
            vpc_config: Sent as ``VpcConfig``.
            enable_network_isolation: Sent as ``EnableNetworkIsolation``, which the service refuses for models.
            primary_container: Earlier name of ``container_defs``.
            tags: Tags of the model: a dictionary, or a list of ``{"Key": ..., "Value": ...}``.

        Returns:
            The name.

        Raises:
            ValueError: Both or none of ``container_defs`` and ``primary_container`` are given.
        """
        if (container_defs is None) == (primary_container is None):
            raise ValueError(f"the model {name!r} needs container_defs, or primary_container, and not both")
        given = primary_container if container_defs is None else container_defs
        containers = {"Containers": list(given)} if isinstance(given, list) else {"PrimaryContainer": dict(given)}
        self.sagemaker_client.create_model(
            ModelName=name,
            ExecutionRoleArn=self.expand_role(role or "SageMakerRole"),
            **containers,
            **present(
                VpcConfig=vpc_config, Tags=tags_of(tags), EnableNetworkIsolation=enable_network_isolation or None
            ),
        )
        return name

    def delete_endpoint(self, endpoint_name: str) -> None:
        """Delete an endpoint; its configuration is kept.

        Args:
            endpoint_name: Name of the endpoint.
        """
        self.sagemaker_client.delete_endpoint(EndpointName=endpoint_name)

    def delete_endpoint_config(self, endpoint_config_name: str) -> None:
        """Delete an endpoint's configuration.

        Args:
            endpoint_config_name: Name of the configuration.
        """
        self.sagemaker_client.delete_endpoint_config(EndpointConfigName=endpoint_config_name)

    def delete_model(self, model_name: str) -> None:
        """Delete a model; its archive is kept.

        Args:
            model_name: Name of the model.
        """
        self.sagemaker_client.delete_model(ModelName=model_name)


def production_variant(
    model_name: Any,
    instance_type: Any = None,
    initial_instance_count: Any = None,
    variant_name: str = "AllTraffic",
    initial_weight: float = 1,
    accelerator_type: str | None = None,
    serverless_inference_config: Mapping[str, Any] | None = None,
    volume_size: int | None = None,
    model_data_download_timeout: int | None = None,
    container_startup_health_check_timeout: int | None = None,
) -> dict[str, Any]:
    """Return a variant of an endpoint's configuration.

    Args:
        model_name: Name of the model.
        instance_type: Type of the instances. Default: ``local``.
        initial_instance_count: Number of instances. Default: 1.
        variant_name: Name of the variant.
        initial_weight: Its share of the requests, relative to the weights of other variants.
        accelerator_type: Ignored: Elastic Inference no longer exists.
        serverless_inference_config: The request's ``ServerlessConfig``, in place of instances.
        volume_size: In GB, sent as ``VolumeSizeInGB``. Recorded without effect.
        model_data_download_timeout: In seconds, sent as ``ModelDataDownloadTimeoutInSeconds``. Recorded without effect.
        container_startup_health_check_timeout: Maximum time in seconds for the server to start, sent as
            ``ContainerStartupHealthCheckTimeoutInSeconds``.

    Returns:
        A member of ``ProductionVariants``.
    """
    del accelerator_type
    has_instances = serverless_inference_config is None
    return present(
        ModelName=model_name,
        VariantName=variant_name,
        InitialVariantWeight=initial_weight,
        InitialInstanceCount=(1 if initial_instance_count is None else initial_instance_count)
        if has_instances
        else None,
        InstanceType=(instance_type or "local") if has_instances else None,
        ServerlessConfig=serverless_inference_config,
        VolumeSizeInGB=volume_size,
        ModelDataDownloadTimeoutInSeconds=model_data_download_timeout,
        ContainerStartupHealthCheckTimeoutInSeconds=container_startup_health_check_timeout,
    )
