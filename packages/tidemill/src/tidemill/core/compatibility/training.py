"""Rows of the training operations: CreateTrainingJob and those that find, list and stop jobs."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honoured, Recorded, Refused, Row, Rows

__all__ = ["OPERATIONS"]

_NO_KEYS = "there is no key ring to encrypt with; leave it out, or keep the state directory on an encrypted disk"
_ONE_GROUP = "a job has one group of instances here: give InstanceType and InstanceCount"
_NO_DEBUGGER = "there is no debugger"
_NO_PROFILER = "there is no profiler; SDK v2 sends it by default"

_ALGORITHM: Rows = {
    "AlgorithmSpecification": Honoured(),
    "AlgorithmSpecification.TrainingImage": Honoured(
        "its tag chooses the TensorFlow version; versions without an environment run on 2.21 with a notice in the log."
        " An image of legacy mode (`sagemaker-tensorflow`) is refused"
    ),
    "AlgorithmSpecification.AlgorithmName": Refused("there is no marketplace of algorithms: give TrainingImage"),
    "AlgorithmSpecification.TrainingInputMode": Honoured(only=("File", "Pipe")),
    "AlgorithmSpecification.MetricDefinitions": Honoured(
        "FinalMetricDataList shows the last match of each in the log, once the job has ended. A regular expression that"
        " Python cannot compile is refused; one that takes more than 5 s of CPU gives no value, and the job's last"
        " StatusMessage says so. There are no metrics while the job runs, and none in CloudWatch"
    ),
    "AlgorithmSpecification.MetricDefinitions[].Name": Honoured(),
    "AlgorithmSpecification.MetricDefinitions[].Regex": Honoured("Python's syntax; its first group is the value"),
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": Recorded(
        "there is no store of time series; SDK v2 sends it by default"
    ),
    "AlgorithmSpecification.ContainerEntrypoint": Honoured("run instead of the script, with the same environment"),
    "AlgorithmSpecification.ContainerArguments": Honoured(),
    "AlgorithmSpecification.TrainingImageConfig": Recorded("no image is pulled"),
}

_CHANNELS: Rows = {
    "InputDataConfig": Honoured("at most 20 channels, whose names differ after upper-casing"),
    "InputDataConfig[].ChannelName": Honoured(
        "`.`, `..` and names that a Pipe channel needs for its files are refused"
    ),
    "InputDataConfig[].DataSource": Honoured(),
    "InputDataConfig[].DataSource.S3DataSource": Honoured("required"),
    "InputDataConfig[].DataSource.S3DataSource.S3DataType": Honoured(
        "AugmentedManifestFile in Pipe mode only, as on SageMaker",
        only=("S3Prefix", "ManifestFile", "AugmentedManifestFile"),
    ),
    "InputDataConfig[].DataSource.S3DataSource.S3Uri": Honoured(),
    "InputDataConfig[].DataSource.S3DataSource.S3DataDistributionType": Honoured(
        "with the one instance of a job, ShardedByS3Key hands it everything"
    ),
    "InputDataConfig[].DataSource.S3DataSource.AttributeNames": Honoured(
        "needed by AugmentedManifestFile; refused with anything else"
    ),
    "InputDataConfig[].DataSource.S3DataSource.InstanceGroupNames": Refused(_ONE_GROUP),
    "InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig": Refused(
        "there are no gated models: copy the model into a bucket and leave it out"
    ),
    "InputDataConfig[].DataSource.S3DataSource.HubAccessConfig": Refused(
        "there is no model hub: copy the content into a bucket and leave it out"
    ),
    "InputDataConfig[].DataSource.FileSystemDataSource": Refused("no file system of AWS is mounted: give S3DataSource"),
    "InputDataConfig[].DataSource.DatasetSource": Refused("there is no catalogue of data sets: give S3DataSource"),
    "InputDataConfig[].ContentType": Honoured("told to the script by inputdataconfig.json"),
    "InputDataConfig[].CompressionType": Honoured("Gzip in Pipe mode only, as on SageMaker"),
    "InputDataConfig[].RecordWrapperType": Honoured("RecordIO in Pipe mode only, as on SageMaker"),
    "InputDataConfig[].InputMode": Honoured(only=("File", "Pipe")),
    "InputDataConfig[].ShuffleConfig": Honoured("in Pipe mode for every epoch; files have no order"),
    "InputDataConfig[].ShuffleConfig.Seed": Honoured(),
}

_RESOURCES: Rows = {
    "ResourceConfig": Honoured("required"),
    "ResourceConfig.InstanceType": Honoured("required; any name. The script sees it, and it has no other effect"),
    "ResourceConfig.InstanceCount": Honoured(only=(1,), instead="run one instance, or start one job for each"),
    "ResourceConfig.VolumeSizeInGB": Recorded("a job may use the disk as far as there is room"),
    "ResourceConfig.VolumeKmsKeyId": Refused(_NO_KEYS),
    "ResourceConfig.KeepAlivePeriodInSeconds": Recorded("no instance has to be started, so none is kept warm"),
    "ResourceConfig.InstanceGroups": Refused(_ONE_GROUP),
    "ResourceConfig.TrainingPlanArn": Refused("no capacity can be reserved; leave it out, and the job waits its turn"),
    "ResourceConfig.InstancePlacementConfig": Refused("there are no UltraServers to be placed on; leave it out"),
    "ResourceConfig.InstancePreferences": Refused("there is one kind of instance: give InstanceType and InstanceCount"),
    "ResourceConfig.SelectedInstanceType": Refused("it belongs to InstancePreferences: give InstanceType"),
    "ResourceConfig.SelectedInstanceCount": Refused("it belongs to InstancePreferences: give InstanceCount"),
}

_OBSERVERS: Rows = {
    "DebugHookConfig": Recorded(f"{_NO_DEBUGGER}; SDK v2 sends it by default"),
    "DebugHookConfig.HookParameters": Refused(f"{_NO_DEBUGGER}: save what you need to SM_OUTPUT_DATA_DIR"),
    "DebugHookConfig.CollectionConfigurations": Refused(f"{_NO_DEBUGGER}: save what you need to SM_OUTPUT_DATA_DIR"),
    "DebugRuleConfigurations": Refused(f"{_NO_DEBUGGER} that would evaluate rules; leave them out"),
    "TensorBoardOutputConfig": Refused(
        "TensorBoard's files are not copied to S3 while a job runs: write them to SM_OUTPUT_DATA_DIR, which becomes"
        " output.tar.gz"
    ),
    "ExperimentConfig": Recorded("there are no experiments to be listed with"),
    "ProfilerConfig": Recorded(_NO_PROFILER),
    "ProfilerConfig.ProfilingParameters": Refused(
        "there is no profiler: use TensorFlow's own in the script, and leave it out"
    ),
    "ProfilerRuleConfigurations": Recorded(_NO_PROFILER),
    "RemoteDebugConfig": Honoured(),
    "RemoteDebugConfig.EnableRemoteDebug": Refused("there is no remote shell: jobs run on this machine; leave it out"),
    "InfraCheckConfig": Recorded("there is no cluster whose health could be checked"),
}

_CREATE: Rows = {
    "TrainingJobName": Honoured(),
    "HyperParameters": Honoured("at most 100; those of the platform have rows of their own below"),
    **_ALGORITHM,
    "RoleArn": Honoured("its name selects the policy of the job's keys; a role without a policy gets the built-in one"),
    **_CHANNELS,
    "OutputDataConfig": Honoured(),
    "OutputDataConfig.KmsKeyId": Refused(_NO_KEYS),
    "OutputDataConfig.S3OutputPath": Honoured("its bucket must exist in the service's own S3"),
    "OutputDataConfig.CompressionType": Honoured(only=("GZIP",)),
    **_RESOURCES,
    "VpcConfig": Recorded("there is no network but this machine's"),
    "StoppingCondition": Honoured(),
    "StoppingCondition.MaxRuntimeInSeconds": Honoured("at most 28 days"),
    "StoppingCondition.MaxWaitTimeInSeconds": Recorded(
        "no instance is a spot instance; less than MaxRuntimeInSeconds is refused"
    ),
    "StoppingCondition.MaxPendingTimeInSeconds": Refused(
        "a job waits for room without a limit; leave it out, and stop a job that waits too long"
    ),
    "Tags": Honoured(),
    "Tags[].Key": Honoured(),
    "Tags[].Value": Honoured(),
    "EnableNetworkIsolation": Refused("no isolation mode of this version closes the network; leave it out"),
    "EnableInterContainerTrafficEncryption": Refused("there is one instance and no traffic to encrypt; leave it out"),
    "EnableManagedSpotTraining": Recorded("no instance is a spot instance"),
    "CheckpointConfig": Refused("this version does not sync checkpoints to S3; save them to SM_MODEL_DIR"),
    **_OBSERVERS,
    "Environment": Honoured("at most 100; names that the service sets (`SM_*`, `TIDEMILL_*`, AWS keys) are refused"),
    "RetryStrategy": Refused("this version does not restart jobs; leave it out, and start the job again"),
    "SessionChainingConfig": Honoured(),
    "SessionChainingConfig.EnableSessionTagChaining": Refused("a job's keys carry no session tags; leave it out"),
    "ServerlessJobConfig": Refused("a job trains a script: give AlgorithmSpecification and ResourceConfig"),
    "MlflowConfig": Refused("there is no MLflow server: let the script log to one of yours, and leave it out"),
    "ModelPackageConfig": Refused("there is no model registry; leave it out"),
}

_LIST: Rows = {
    "NextToken": Honoured(),
    "MaxResults": Honoured(),
    "CreationTimeAfter": Honoured(),
    "CreationTimeBefore": Honoured(),
    "LastModifiedTimeAfter": Honoured(),
    "LastModifiedTimeBefore": Honoured(),
    "NameContains": Honoured(),
    "StatusEquals": Honoured(),
    "SortBy": Honoured(),
    "SortOrder": Honoured(),
    "WarmPoolStatusEquals": Honoured("no job keeps a warm pool, so none is listed"),
    "TrainingPlanArnEquals": Honoured("no job has a training plan, so none is listed"),
}

_NAME: Mapping[str, Row] = {"TrainingJobName": Honoured()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateTrainingJob": _CREATE,
    "DescribeTrainingJob": _NAME,
    "ListTrainingJobs": _LIST,
    "StopTrainingJob": _NAME,
}
