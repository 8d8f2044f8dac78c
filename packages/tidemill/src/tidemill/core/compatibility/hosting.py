"""Rows of models, endpoint configurations, endpoints, their invocation, and tags."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Rows

__all__ = ["OPERATIONS", "RUNTIME_OPERATIONS"]

_NO_KEYS = "there is no key ring to encrypt with; leave it out, or keep the state directory on an encrypted disk"
_NO_ISOLATION = "no isolation mode of this version closes the network; leave it out"
_NO_NETWORK = Recorded("there is no network but this machine's")

_TAGS: Rows = {"Tags": Honoured(), "Tags[].Key": Honoured(), "Tags[].Value": Honoured()}


def _container(at: str) -> Rows:
    rows: Rows = {
        "ContainerHostname": Recorded("a model has one container; SageMaker ignores it then"),
        "Image": Honoured(
            "its tag chooses the TensorFlow version. An image of the older Python server (`sagemaker-tensorflow`) is"
            " refused: endpoints are of TensorFlow Serving's kind"
        ),
        "ImageConfig": Recorded("no image is pulled"),
        "Mode": Honoured(only=("SingleModel",), instead="make an endpoint for each model"),
        "ModelDataUrl": Honoured("required; in the service's own S3"),
        "ModelDataSource": Refused("pack the model as model.tar.gz and give ModelDataUrl"),
        "AdditionalModelDataSources": Refused("pack everything into the one model.tar.gz of ModelDataUrl"),
        "Environment": Honoured(),
        "ModelPackageName": Refused("there is no model registry: give Image and ModelDataUrl"),
        "InferenceSpecificationName": Refused("there is no model registry: give Image and ModelDataUrl"),
        "MultiModelConfig": Refused("an endpoint serves one model; make an endpoint for each"),
        "ContainerMetricsConfig": Refused("metrics of containers are not collected; leave it out"),
    }
    return {f"{at}.{name}": row for name, row in rows.items()}


_MODEL: Rows = {
    "ModelName": Honoured(),
    "PrimaryContainer": Honoured("either it or Containers"),
    **_container("PrimaryContainer"),
    "Containers": Honoured("exactly one"),
    **_container("Containers[]"),
    "InferenceExecutionConfig": Honoured(),
    "InferenceExecutionConfig.Mode": Honoured("a model has one container", only=("Serial",)),
    "ExecutionRoleArn": Recorded("a server gets no keys: a model needs none, and a model is code"),
    **_TAGS,
    "VpcConfig": _NO_NETWORK,
    "EnableNetworkIsolation": Refused(_NO_ISOLATION),
}

_VARIANT: Rows = {
    "VariantName": Honoured(),
    "ModelName": Honoured("required: there are no inference components"),
    "InitialInstanceCount": Honoured("1 to 8"),
    "InstanceType": Recorded("every type is this machine"),
    "InstancePools": Refused("there is one kind of instance: give InstanceType"),
    "VariantInstanceProvisionTimeoutInSeconds": Recorded("no instance has to be provided first"),
    "InitialVariantWeight": Honoured("the one variant gets every request, whatever its weight"),
    "AcceleratorType": Recorded("such accelerators are gone everywhere"),
    "CoreDumpConfig": Refused("core dumps are not collected; leave it out"),
    "ServerlessConfig": Refused("endpoints here have instances: give InstanceType and InitialInstanceCount"),
    "VolumeSizeInGB": Recorded("a server may use the disk as far as there is room"),
    "ModelDataDownloadTimeoutInSeconds": Recorded("the model lies on this machine"),
    "ContainerStartupHealthCheckTimeoutInSeconds": Honoured("15 minutes if it is not given"),
    "EnableSSMAccess": Refused("there is no remote shell: endpoints run on this machine; leave it out"),
    "ManagedInstanceScaling": Refused("the number of instances stays as created: give InitialInstanceCount"),
    "RoutingConfig": Honoured(),
    "RoutingConfig.RoutingStrategy": Honoured("requests go to the instances in turn", only=("RANDOM",)),
    "RoutingConfig.PrefixAwareRoutingConfig": Refused("requests go to the instances in turn; leave it out"),
    "InferenceAmiVersion": Recorded("there are no machine images"),
    "CapacityReservationConfig": Refused("no capacity can be reserved; leave it out"),
    "AcceleratorPartitionLayouts": Refused("accelerators are not divided; leave it out"),
}

_CONFIG: Rows = {
    "EndpointConfigName": Honoured(),
    "ProductionVariants": Honoured("exactly one"),
    **{f"ProductionVariants[].{name}": row for name, row in _VARIANT.items()},
    "DataCaptureConfig": Honoured("refused unless EnableCapture is false: requests and replies are not captured"),
    "DataCaptureConfig.EnableCapture": Honoured("only false"),
    **{
        f"DataCaptureConfig.{name}": Recorded("nothing is captured")
        for name in (
            "InitialSamplingPercentage",
            "DestinationS3Uri",
            "KmsKeyId",
            "CaptureOptions",
            "CaptureContentTypeHeader",
        )
    },
    **_TAGS,
    "KmsKeyId": Refused(_NO_KEYS),
    "AsyncInferenceConfig": Refused("endpoints answer at once, with InvokeEndpoint; leave it out"),
    "ExplainerConfig": Refused("there is no explainer; leave it out"),
    "ShadowProductionVariants": Refused("requests are not copied to a second variant; leave it out"),
    "ExecutionRoleArn": Recorded("a server gets no keys: a model needs none, and a model is code"),
    "VpcConfig": _NO_NETWORK,
    "EnableNetworkIsolation": Refused(_NO_ISOLATION),
    "MetricsConfig": Honoured(),
    "MetricsConfig.EnableEnhancedMetrics": Refused("there are no metrics of endpoints; leave it out"),
    "MetricsConfig.EnableDetailedObservability": Refused("there are no metrics of endpoints; leave it out"),
    "MetricsConfig.MetricPublishFrequencyInSeconds": Recorded("there are no metrics of endpoints"),
    "CrossRegionTrafficConfig": Refused("there is one region; leave it out"),
}

_ENDPOINT: Rows = {
    "EndpointName": Honoured(),
    "EndpointConfigName": Honoured(),
    "DeploymentConfig": Refused("endpoints are not updated in place; leave it out, and create a second endpoint"),
    **_TAGS,
}

_LIST: Rows = {
    name: Honoured()
    for name in (
        "SortBy",
        "SortOrder",
        "NextToken",
        "MaxResults",
        "NameContains",
        "CreationTimeBefore",
        "CreationTimeAfter",
    )
}
_MODEL_NAME: Rows = {"ModelName": Honoured()}
_CONFIG_NAME: Rows = {"EndpointConfigName": Honoured()}
_ENDPOINT_NAME: Rows = {"EndpointName": Honoured()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateModel": _MODEL,
    "DescribeModel": _MODEL_NAME,
    "ListModels": _LIST,
    "DeleteModel": _MODEL_NAME,
    "CreateEndpointConfig": _CONFIG,
    "DescribeEndpointConfig": _CONFIG_NAME,
    "ListEndpointConfigs": _LIST,
    "DeleteEndpointConfig": _CONFIG_NAME,
    "CreateEndpoint": _ENDPOINT,
    "DescribeEndpoint": _ENDPOINT_NAME,
    "ListEndpoints": {
        **_LIST,
        "LastModifiedTimeBefore": Honoured(),
        "LastModifiedTimeAfter": Honoured(),
        "StatusEquals": Honoured(),
    },
    "DeleteEndpoint": _ENDPOINT_NAME,
    "ListTags": {
        "ResourceArn": Honoured(),
        "NextToken": Refused("all tags come in one reply, which has no token; ask again without one"),
        "MaxResults": Honoured(
            "at least 50, as on SageMaker; a resource has at most 50 tags, so one reply has them all"
        ),
    },
    "AddTags": {"ResourceArn": Honoured(), **_TAGS},
    "DeleteTags": {"ResourceArn": Honoured(), "TagKeys": Honoured()},
}

RUNTIME_OPERATIONS: Mapping[str, Rows] = {
    "InvokeEndpoint": {
        "EndpointName": Honoured(),
        "Body": Honoured(),
        "ContentType": Honoured(),
        "Accept": Honoured(),
        "CustomAttributes": Honoured(),
        "TargetModel": Refused(
            "an endpoint serves one archive; leave it out, or choose a model of the archive by"
            " CustomAttributes tfs-model-name=NAME"
        ),
        "TargetVariant": Honoured("an endpoint has one variant; another name is refused"),
        "TargetContainerHostname": Refused("a model has one container; leave it out"),
        "InferenceId": Recorded("it marks captured data, and nothing is captured"),
        "EnableExplanations": Refused("there is no explainer; leave it out"),
        "InferenceComponentName": Refused("there are no inference components; leave it out"),
        "SessionId": Refused("servers keep no sessions; leave it out"),
        "PrefixAwareId": Refused("requests go to the instances in turn; leave it out"),
    }
}
