"""Rows of processing jobs: CreateProcessingJob and the operations that find, list, stop and delete jobs."""

from collections.abc import Mapping

from tidemill.core.compatibility.experiments import EXPERIMENT_CONFIG
from tidemill.core.compatibility.rows import JOB_LIST, TAGS, Honored, Recorded, Refused, Row, Rows, Unencrypted, honored

_KEY = Unencrypted(names_key=True)
_PATH = Honored("`/opt/ml/processing` or a directory below it")
_MANAGED = Honored("the service neither brings nor uploads it: the command does, with the job's keys")

_INPUTS: Rows = {
    **honored("ProcessingInputs", "ProcessingInputs[].InputName"),
    "ProcessingInputs[].AppManaged": _MANAGED,
    **honored("ProcessingInputs[].S3Input", "ProcessingInputs[].S3Input.S3Uri"),
    "ProcessingInputs[].S3Input.LocalPath": _PATH,
    "ProcessingInputs[].S3Input.S3DataType": Honored(only=("S3Prefix", "ManifestFile")),
    "ProcessingInputs[].S3Input.S3InputMode": Honored(
        only=("File",), instead="let the command read the files, or read the objects with boto3"
    ),
    "ProcessingInputs[].S3Input.S3DataDistributionType": Honored(
        "with ShardedByS3Key each instance gets every n-th object, as in training"
    ),
    "ProcessingInputs[].S3Input.S3CompressionType": Honored(
        only=("None",), instead="files are handed over as they are; let the command unpack them"
    ),
    "ProcessingInputs[].DatasetDefinition": Refused(
        "there is neither Athena nor Redshift here; put the result of the query into S3, and name it by S3Input"
    ),
}

_OUTPUTS: Rows = {
    **honored("ProcessingOutputConfig", "ProcessingOutputConfig.Outputs"),
    **honored("ProcessingOutputConfig.Outputs[].OutputName"),
    "ProcessingOutputConfig.Outputs[].AppManaged": _MANAGED,
    "ProcessingOutputConfig.Outputs[].S3Output": Honored(),
    "ProcessingOutputConfig.Outputs[].S3Output.S3Uri": Honored("its bucket must exist in the service's own S3"),
    "ProcessingOutputConfig.Outputs[].S3Output.LocalPath": _PATH,
    "ProcessingOutputConfig.Outputs[].S3Output.S3UploadMode": Honored(
        "EndOfJob uploads when the command has ended, unless it failed; Continuous uploads each file that no longer"
        " changes. A file that cannot be uploaded makes the job fail"
    ),
    "ProcessingOutputConfig.Outputs[].FeatureStoreOutput": Refused(
        "there is no feature store here; name a place by S3Output"
    ),
    "ProcessingOutputConfig.KmsKeyId": _KEY,
}

_RESOURCES: Rows = {
    **honored("ProcessingResources", "ProcessingResources.ClusterConfig"),
    "ProcessingResources.ClusterConfig.InstanceType": Honored(
        "any name. Its memory and processors are limits if the setting `limit_to_instance_type` is on; else an instance"
        " may use the whole machine"
    ),
    "ProcessingResources.ClusterConfig.InstanceCount": Honored("1 if it is not given"),
    "ProcessingResources.ClusterConfig.VolumeSizeInGB": Honored("as for training jobs"),
    "ProcessingResources.ClusterConfig.VolumeKmsKeyId": _KEY,
    **{
        f"ProcessingResources.ClusterConfig.Selected{name}": Recorded(
            "SageMaker's own choice among preferences, in replies"
        )
        for name in ("InstanceType", "InstanceCount")
    },
    "ProcessingResources.ClusterConfig.InstancePreferences": Refused(
        "every instance type is available here; name one by InstanceType and InstanceCount"
    ),
}

_CREATE: Rows = {
    "ProcessingJobName": Honored(),
    **_INPUTS,
    **_OUTPUTS,
    **_RESOURCES,
    "StoppingCondition": Honored(),
    "StoppingCondition.MaxRuntimeInSeconds": Honored("one day if it is not given; the job is then Stopped"),
    "AppSpecification": Honored(),
    "AppSpecification.ImageUri": Honored(
        "selects the environment, as for training jobs; images of scikit-learn run on the newest scikit-learn and"
        " pandas. All other images are refused, unless the setting `images` maps them"
    ),
    "AppSpecification.ContainerEntrypoint": Honored("required: images are not run, so their own are unknown"),
    "AppSpecification.ContainerArguments": Honored(),
    "Environment": Honored("names that the service sets (`SM_*`, AWS keys) are refused"),
    "NetworkConfig": Honored(),
    "NetworkConfig.EnableInterContainerTrafficEncryption": Honored(
        "needs a network of the job's own, as for training jobs"
    ),
    "NetworkConfig.EnableNetworkIsolation": Honored("needs a network of the job's own, as for training jobs"),
    "NetworkConfig.VpcConfig": Recorded("there is one machine and no VPC"),
    "RoleArn": Honored("its name selects the policy of the job's keys"),
    **TAGS,
    **EXPERIMENT_CONFIG,
}

_NAME: Mapping[str, Row] = {"ProcessingJobName": Honored()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateProcessingJob": _CREATE,
    "DescribeProcessingJob": _NAME,
    "DeleteProcessingJob": {
        "ProcessingJobName": Honored("a job that has ended; its logs and objects stay, and the name is free again")
    },
    "ListProcessingJobs": JOB_LIST,
    "StopProcessingJob": _NAME,
}
