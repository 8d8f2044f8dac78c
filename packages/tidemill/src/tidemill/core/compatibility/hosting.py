"""Rows of models, endpoint configurations, endpoints, their invocation, and tags."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import TAGS, Honored, Recorded, Refused, Rows, Unencrypted, honored

_KEY = Unencrypted(names_key=True)
_NO_ISOLATION = "servers of models share the machine's network; leave it out"
_NO_NETWORK = Recorded("there is no network but this machine's")


def _container(at: str) -> Rows:
    rows: Rows = {
        "ContainerHostname": Recorded("a model has one container; SageMaker ignores it then"),
        "Image": Honored(
            "the image is not run: endpoints have one TensorFlow version, and the log names a difference. An image"
            " `sagemaker-tensorflow` makes a Python-based endpoint (`input_fn`, `output_fn`, `transform_fn`), every"
            " other one TensorFlow Serving's kind. An image of another framework, and a version above the newest, are"
            " refused",
            in_part=True,
        ),
        "ImageConfig": Recorded("no image is pulled"),
        "Mode": Honored("with MultiModel, an instance loads each model at its first request"),
        "ModelDataUrl": Honored(
            "required without a ModelPackageName; in the service's own S3. For MultiModel the prefix of the archives"
        ),
        "ModelDataSource": Refused("pack the model as model.tar.gz and give ModelDataUrl"),
        "AdditionalModelDataSources": Refused("pack everything into the one model.tar.gz of ModelDataUrl"),
        "Environment": Honored("with `AWS_ACCESS_KEY_ID` or `AWS_PROFILE`, servers get no other keys"),
        "ModelPackageName": Honored(
            "instead of Image and ModelDataUrl. The model keeps what the package says now; versions must be Approved"
        ),
        "InferenceSpecificationName": Honored("one of the package's AdditionalInferenceSpecifications"),
        "MultiModelConfig": Honored(),
        "MultiModelConfig.ModelCacheSetting": Honored(
            only=("Enabled",), instead="loaded models stay until their memory is needed; leave it out"
        ),
        "ContainerMetricsConfig": Refused("metrics of containers are not collected; leave it out"),
    }
    return {f"{at}.{name}": row for name, row in rows.items()}


_MODEL: Rows = {
    "ModelName": Honored(),
    "PrimaryContainer": Honored("either it or Containers"),
    **_container("PrimaryContainer"),
    "Containers": Honored("exactly one"),
    **_container("Containers[]"),
    "InferenceExecutionConfig": Honored(),
    "InferenceExecutionConfig.Mode": Honored("a model has one container", only=("Serial",)),
    "ExecutionRoleArn": Honored("the policy of the role limits the keys of the model's servers; none without a role"),
    **TAGS,
    "VpcConfig": _NO_NETWORK,
    "EnableNetworkIsolation": Refused(_NO_ISOLATION),
}

_VARIANT: Rows = {
    "VariantName": Honored(),
    "ModelName": Honored("required: there are no inference components"),
    "InitialInstanceCount": Honored("1 to 8 instances in all variants of an endpoint together"),
    "InstanceType": Honored(
        "any name. Its memory and processors are limits if the setting `limit_to_instance_type` is on; else a server"
        " may use the whole machine"
    ),
    "InstancePools": Refused("there is one kind of instance: give InstanceType"),
    "VariantInstanceProvisionTimeoutInSeconds": Recorded("no instance has to be provided first"),
    "InitialVariantWeight": Honored("requests go to the variants in turn, each gets its share; not all may be 0"),
    "AcceleratorType": Recorded("AWS no longer offers these accelerators"),
    "CoreDumpConfig": Refused("core dumps are not collected; leave it out"),
    "ServerlessConfig": Honored(
        "a server is started when the endpoint is created, and by the next request after it was stopped. It is stopped"
        " when it was idle for `serverless_idle_s` (a setting, 5 minutes by default). InstanceType and"
        " InitialInstanceCount are refused together with it"
    ),
    "ServerlessConfig.MemorySizeInMB": Recorded("a server may use all free memory of the machine"),
    "ServerlessConfig.MaxConcurrency": Honored("more requests at a time are answered ThrottlingException, 429"),
    "ServerlessConfig.ProvisionedConcurrency": Honored("the server is never stopped"),
    "VolumeSizeInGB": Recorded("a server may use all free space of the disk"),
    "ModelDataDownloadTimeoutInSeconds": Recorded("the model is on this machine"),
    "ContainerStartupHealthCheckTimeoutInSeconds": Honored("15 minutes if it is not given"),
    "EnableSSMAccess": Refused("there is no remote shell: endpoints run on this machine; leave it out"),
    "ManagedInstanceScaling": Refused(
        "a scalable target of Application Auto Scaling changes the number of instances; leave it out"
    ),
    "RoutingConfig": Honored(),
    "RoutingConfig.RoutingStrategy": Honored(
        "`RANDOM`, the default, gives requests to the instances in turn", only=("RANDOM", "LEAST_OUTSTANDING_REQUESTS")
    ),
    "RoutingConfig.PrefixAwareRoutingConfig": Refused("requests go to the instances in turn; leave it out"),
    "InferenceAmiVersion": Recorded("there are no machine images"),
    "CapacityReservationConfig": Refused("no capacity can be reserved; leave it out"),
    "AcceleratorPartitionLayouts": Refused("accelerators are not divided; leave it out"),
}

_CONFIG: Rows = {
    **honored("EndpointConfigName", "ProductionVariants"),
    **{f"ProductionVariants[].{name}": row for name, row in _VARIANT.items()},
    "DataCaptureConfig": Honored("files are written every 30 seconds, or when there is 1 MB of data"),
    "DataCaptureConfig.EnableCapture": Honored("true if it is not given"),
    "DataCaptureConfig.InitialSamplingPercentage": Honored(),
    "DataCaptureConfig.DestinationS3Uri": Honored("in the service's own S3; its bucket may be created later"),
    "DataCaptureConfig.KmsKeyId": _KEY,
    **honored("DataCaptureConfig.CaptureOptions", "DataCaptureConfig.CaptureOptions[].CaptureMode"),
    "DataCaptureConfig.CaptureContentTypeHeader": Honored("data of other types is written in Base64"),
    **honored("DataCaptureConfig.CaptureContentTypeHeader.CsvContentTypes"),
    **honored("DataCaptureConfig.CaptureContentTypeHeader.JsonContentTypes"),
    **TAGS,
    "KmsKeyId": _KEY,
    "AsyncInferenceConfig": Honored("the endpoint accepts InvokeEndpointAsync and refuses InvokeEndpoint"),
    "AsyncInferenceConfig.ClientConfig": Honored(),
    "AsyncInferenceConfig.ClientConfig.MaxConcurrentInvocationsPerInstance": Honored("4 if it is not given"),
    "AsyncInferenceConfig.OutputConfig": Honored(),
    "AsyncInferenceConfig.OutputConfig.KmsKeyId": _KEY,
    "AsyncInferenceConfig.OutputConfig.S3OutputPath": Honored("required"),
    "AsyncInferenceConfig.OutputConfig.S3FailurePath": Honored("without it failures are only in the service's log"),
    "AsyncInferenceConfig.OutputConfig.NotificationConfig": Refused(
        "there is no SNS to notify by: look for the objects at OutputLocation and FailureLocation, and leave it out"
    ),
    "ExplainerConfig": Refused("there is no explainer; leave it out"),
    "ShadowProductionVariants": Refused("requests are not copied to a second variant; leave it out"),
    "ExecutionRoleArn": Recorded("servers act as the ExecutionRoleArn of their model"),
    "VpcConfig": _NO_NETWORK,
    "EnableNetworkIsolation": Refused(_NO_ISOLATION),
    "MetricsConfig": Honored(),
    "MetricsConfig.EnableEnhancedMetrics": Refused("there are no metrics of endpoints; leave it out"),
    "MetricsConfig.EnableDetailedObservability": Refused("there are no metrics of endpoints; leave it out"),
    "MetricsConfig.MetricPublishFrequencyInSeconds": Recorded("there are no metrics of endpoints"),
    "CrossRegionTrafficConfig": Refused("there is one region; leave it out"),
}


def _deployment_config(when: str) -> Rows:
    traffic = "BlueGreenUpdatePolicy.TrafficRoutingConfiguration"
    rows: Rows = {
        "BlueGreenUpdatePolicy": Honored("all traffic is shifted at once, as without a policy"),
        traffic: Honored(),
        f"{traffic}.Type": Honored(only=("ALL_AT_ONCE",), instead="use production variants with weights for a canary"),
        f"{traffic}.WaitIntervalInSeconds": Recorded("there are no alarms to wait for"),
        f"{traffic}.CanarySize": Refused("all traffic is shifted at once; leave it out"),
        f"{traffic}.LinearStepSize": Refused("all traffic is shifted at once; leave it out"),
        "BlueGreenUpdatePolicy.TerminationWaitInSeconds": Recorded(
            "old instances end when they have answered all their requests"
        ),
        "BlueGreenUpdatePolicy.MaximumExecutionTimeoutInSeconds": Honored("an update that takes longer is rolled back"),
        "RollingUpdatePolicy": Refused("all traffic is shifted at once; give BlueGreenUpdatePolicy or leave it out"),
        "AutoRollbackConfiguration": Refused(
            "there are no alarms; an update whose instances do not come up is rolled back without it"
        ),
    }
    return {"DeploymentConfig": Honored(when), **{f"DeploymentConfig.{name}": row for name, row in rows.items()}}


_ENDPOINT: Rows = {
    **honored("EndpointName", "EndpointConfigName"),
    **_deployment_config("of later updates that retain it"),
    **TAGS,
}

_UPDATE: Rows = {
    "EndpointName": Honored(),
    "EndpointConfigName": Honored(
        "its instances are started while the old ones still serve, and take over when all of them answer /ping. If the"
        " update fails, the endpoint stays InService with its old configuration and a FailureReason"
    ),
    "RetainAllVariantProperties": Honored("of variants that have the same name"),
    "ExcludeRetainedVariantProperties": Honored("only with RetainAllVariantProperties"),
    "ExcludeRetainedVariantProperties[].VariantPropertyType": Honored(),
    **_deployment_config("of this update"),
    "RetainDeploymentConfig": Honored(),
}

_RESIZE: Rows = {
    "EndpointName": Honored(),
    "DesiredWeightsAndCapacities": Honored("takes effect when all new instances answer /ping"),
    "DesiredWeightsAndCapacities[].VariantName": Honored(),
    "DesiredWeightsAndCapacities[].DesiredWeight": Honored("not all may be 0"),
    "DesiredWeightsAndCapacities[].DesiredInstanceCount": Honored(
        "1 to 8 instances in all variants of an endpoint together"
    ),
    "DesiredWeightsAndCapacities[].ServerlessUpdateConfig": Refused(
        "endpoints here have instances: give DesiredInstanceCount"
    ),
}

_LIST: Rows = honored(
    *("SortBy", "SortOrder", "NextToken", "MaxResults", "NameContains", "CreationTimeBefore"),
    "CreationTimeAfter",
)
_MODEL_NAME: Rows = {"ModelName": Honored()}
_CONFIG_NAME: Rows = {"EndpointConfigName": Honored()}
_ENDPOINT_NAME: Rows = {"EndpointName": Honored()}

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
        **honored("LastModifiedTimeBefore", "LastModifiedTimeAfter", "StatusEquals"),
    },
    "UpdateEndpoint": _UPDATE,
    "UpdateEndpointWeightsAndCapacities": _RESIZE,
    "DeleteEndpoint": _ENDPOINT_NAME,
    "ListTags": {
        "ResourceArn": Honored(),
        "NextToken": Refused("all tags come in one reply, which has no token; ask again without one"),
        "MaxResults": Honored(
            "at least 50, as on SageMaker; a resource has at most 50 tags, so one reply has them all"
        ),
    },
    "AddTags": {"ResourceArn": Honored(), **TAGS},
    "DeleteTags": {"ResourceArn": Honored(), "TagKeys": Honored()},
}

_INVOKE: Rows = {
    **honored("EndpointName", "Body", "ContentType", "Accept", "CustomAttributes"),
    "TargetModel": Honored("required by endpoints of Mode MultiModel, and refused by others"),
    "TargetVariant": Honored("regardless of the weights"),
    "TargetContainerHostname": Refused("a model has one container; leave it out"),
    "InferenceId": Honored("marks captured data"),
    "EnableExplanations": Refused("there is no explainer; leave it out"),
    "InferenceComponentName": Refused("there are no inference components; leave it out"),
    "SessionId": Refused("servers keep no sessions; leave it out"),
    "PrefixAwareId": Refused("requests go to the instances in turn; leave it out"),
}

RUNTIME_OPERATIONS: Mapping[str, Rows] = {
    "InvokeEndpoint": _INVOKE,
    "InvokeEndpointAsync": {
        **{name: _INVOKE[name] for name in ("EndpointName", "ContentType", "Accept", "CustomAttributes")},
        "InferenceId": Honored("generated if it is not given; marks captured data"),
        "InputLocation": Honored("required; in the service's own S3, at most 100 MB"),
        "RequestTTLSeconds": Honored("6 hours if it is not given"),
        "InvocationTimeoutSeconds": Honored("15 minutes if it is not given"),
        "S3OutputPathExtension": Refused("results go below S3OutputPath itself; leave it out"),
        "Filename": Refused("results are named by the service; leave it out, and read OutputLocation"),
        "Body": Refused("upload the body to S3 and give InputLocation"),
    },
    "InvokeEndpointWithResponseStream": {
        name: row for name, row in _INVOKE.items() if name not in ("EnableExplanations", "TargetModel")
    },
}
