"""Rows of the training operations: CreateTrainingJob and those that find, list and stop jobs."""

from collections.abc import Mapping

from tidemill.core.compatibility.experiments import EXPERIMENT_CONFIG
from tidemill.core.compatibility.rows import JOB_LIST, TAGS, Honored, Recorded, Refused, Row, Rows, Unencrypted

_KEY = Unencrypted(names_key=True)
_FAST_FILE = (
    "with data of the service's own S3, FastFile is File mode: in isolation `mount`, neither copies objects. Objects of"
    " a remote S3 are read-only files, whose bytes are fetched when the script reads them (FUSE). A job fails if its"
    " machine cannot mount them, and the error says what is missing"
)
_NO_DEBUGGER = "there is no debugger"
_NO_PROFILER = "there is no profiler; SDK v2 sends it by default"
_NO_REMOTE_SHELL = Refused("there is no remote shell: jobs run on this machine; leave it out")
_AS_FILE = "a library of the script finds it in `/opt/ml/input/config/{}.json`"

_ALGORITHM: Rows = {
    "AlgorithmSpecification": Honored(),
    "AlgorithmSpecification.TrainingImage": Honored(
        "the image is not run: its tag selects an environment with this TensorFlow and Python. A TensorFlow version"
        " without an environment runs on the nearest one that has one, with a notice in the log; a version above the"
        " newest, a Python that TensorFlow does not support, and an image of another framework are refused. An image of"
        " your own runs as its tag or the setting `images` says; the log's first line names what runs instead. With an"
        " image for GPUs, a job on TensorFlow 2.21 runs on GPUs if the machine and the instance type have some,"
        " otherwise on CPUs with a notice. An image of legacy mode (`sagemaker-tensorflow`) is refused",
        in_part=True,
    ),
    "AlgorithmSpecification.AlgorithmName": Refused("there is no marketplace of algorithms: give TrainingImage"),
    "AlgorithmSpecification.TrainingInputMode": Honored(_FAST_FILE),
    "AlgorithmSpecification.MetricDefinitions": Honored(
        "CloudWatch shows their points while the job runs and afterwards; when the job has ended, FinalMetricDataList"
        " shows the last value of each. A regular expression that Python cannot compile is refused; one that takes more"
        " than 5 s of CPU for 256 KiB of the log is abandoned, and the job's last StatusMessage says so"
    ),
    "AlgorithmSpecification.MetricDefinitions[].Name": Honored(),
    "AlgorithmSpecification.MetricDefinitions[].Regex": Honored(
        "Python's syntax, searched in the first 8,192 characters of each line of the log, and of each logged state of a"
        " progress bar. The value is the first group of the first match, or the whole match if there is no group."
        " Values that are not finite numbers are ignored"
    ),
    "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries": Recorded(
        "SageMaker's own store of time series has no public interface; SDK v2 sends it by default"
    ),
    "AlgorithmSpecification.ContainerEntrypoint": Honored("run instead of the script, with the same environment"),
    "AlgorithmSpecification.ContainerArguments": Honored(),
    "AlgorithmSpecification.TrainingImageConfig": Recorded("no image is pulled"),
}

_CHANNELS: Rows = {
    "InputDataConfig": Honored("at most 20 channels, whose names differ after upper-casing"),
    "InputDataConfig[].ChannelName": Honored("`.`, `..` and names that a Pipe channel needs for its files are refused"),
    "InputDataConfig[].DataSource": Honored(),
    "InputDataConfig[].DataSource.S3DataSource": Honored("required"),
    "InputDataConfig[].DataSource.S3DataSource.S3DataType": Honored(
        "AugmentedManifestFile in Pipe mode only, as on SageMaker",
        only=("S3Prefix", "ManifestFile", "AugmentedManifestFile"),
    ),
    "InputDataConfig[].DataSource.S3DataSource.S3Uri": Honored(),
    "InputDataConfig[].DataSource.S3DataSource.S3DataDistributionType": Honored(
        "ShardedByS3Key distributes the objects to the instances in turn"
    ),
    "InputDataConfig[].DataSource.S3DataSource.AttributeNames": Honored(
        "needed by AugmentedManifestFile; refused with anything else"
    ),
    "InputDataConfig[].DataSource.S3DataSource.InstanceGroupNames": Honored(
        "the instances of other groups do not have the channel; ShardedByS3Key divides it among those that have it"
    ),
    "InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig": Refused(
        "there are no gated models: copy the model into a bucket and leave it out"
    ),
    "InputDataConfig[].DataSource.S3DataSource.HubAccessConfig": Refused(
        "there is no model hub: copy the content into a bucket and leave it out"
    ),
    "InputDataConfig[].DataSource.FileSystemDataSource": Refused("no file system of AWS is mounted: give S3DataSource"),
    "InputDataConfig[].DataSource.DatasetSource": Refused("there is no catalog of data sets: give S3DataSource"),
    "InputDataConfig[].ContentType": Honored("passed to the script in inputdataconfig.json"),
    "InputDataConfig[].CompressionType": Honored("Gzip in Pipe mode only, as on SageMaker"),
    "InputDataConfig[].RecordWrapperType": Honored("RecordIO in Pipe mode only, as on SageMaker"),
    "InputDataConfig[].InputMode": Honored(_FAST_FILE),
    "InputDataConfig[].ShuffleConfig": Honored("in Pipe mode for every epoch; files have no order"),
    "InputDataConfig[].ShuffleConfig.Seed": Honored(),
}

_RESOURCES: Rows = {
    "ResourceConfig": Honored("required"),
    "ResourceConfig.InstanceType": Honored(
        "required, unless there are InstanceGroups; any name. The script sees it, and gets the number of GPUs of this"
        " type, or all GPUs of the machine if it has fewer. If the setting `limit_to_instance_type` is on, the memory"
        " and the processors of the type are limits"
    ),
    "ResourceConfig.InstanceCount": Honored(
        "1 to 100, all on this machine; in isolation mode `full` in a separate network. A job with more instances than"
        " `max_instances`, or more instances with GPUs than the machine has GPUs, is refused (ResourceLimitExceeded);"
        " on a cluster it fails with SageMaker's CapacityError. If one instance fails, the others are stopped and the"
        " job fails. The model and the output are those of `algo-1`"
    ),
    "ResourceConfig.VolumeSizeInGB": Honored(
        "if the setting `limit_to_instance_type` is on, a limit for the files that an instance writes; otherwise a job"
        " may use all free space of the disk"
    ),
    "ResourceConfig.VolumeKmsKeyId": _KEY,
    "ResourceConfig.KeepAlivePeriodInSeconds": Recorded("no instance has to be started, so none is kept warm"),
    "ResourceConfig.InstanceGroups": Honored(
        "instead of InstanceType and InstanceCount; names are unique, and all groups together have at most 100"
        " instances, numbered across the groups in their order"
    ),
    "ResourceConfig.InstanceGroups[].InstanceGroupName": Honored(),
    "ResourceConfig.InstanceGroups[].InstanceType": Honored("as for InstanceType"),
    "ResourceConfig.InstanceGroups[].InstanceCount": Honored("at least 1"),
    "ResourceConfig.TrainingPlanArn": Refused("no capacity can be reserved; leave it out, and the job waits its turn"),
    "ResourceConfig.InstancePlacementConfig": Refused("there are no UltraServers to be placed on; leave it out"),
    "ResourceConfig.InstancePreferences": Refused("there is one kind of instance: give InstanceType and InstanceCount"),
    "ResourceConfig.SelectedInstanceType": Refused("it belongs to InstancePreferences: give InstanceType"),
    "ResourceConfig.SelectedInstanceCount": Refused("it belongs to InstancePreferences: give InstanceCount"),
}

_OBSERVERS: Rows = {
    "DebugHookConfig": Recorded(f"{_NO_DEBUGGER}; {_AS_FILE.format('debughookconfig')}; SDK v2 sends it by default"),
    "DebugRuleConfigurations": Recorded(f"{_NO_DEBUGGER}: the log says that no rule is evaluated, and each is Stopped"),
    "TensorBoardOutputConfig": Honored(
        "files in LocalPath are copied below `NAME/tensorboard-output` while the job runs; none is deleted there"
    ),
    "TensorBoardOutputConfig.LocalPath": Honored(
        "`/opt/ml/output/tensorboard` by default; a directory below `/opt/ml`, but not in `input` or `code`"
    ),
    "TensorBoardOutputConfig.S3OutputPath": Honored("its bucket must exist in the service's own S3"),
    **EXPERIMENT_CONFIG,
    "ProfilerConfig": Recorded(
        f"there is no profiler; {_AS_FILE.format('profilerconfig')}, unless it is disabled; SDK v2 sends it by default"
    ),
    "ProfilerRuleConfigurations": Recorded(f"{_NO_PROFILER}. Each rule is Stopped"),
    "RemoteDebugConfig": Honored(),
    "RemoteDebugConfig.EnableRemoteDebug": _NO_REMOTE_SHELL,
    "InfraCheckConfig": Recorded("there is no cluster whose health could be checked"),
}

_CREATE: Rows = {
    "TrainingJobName": Honored(),
    "HyperParameters": Honored("at most 100; the platform's own hyperparameters have rows below"),
    **_ALGORITHM,
    "RoleArn": Honored("its name selects the policy of the job's keys; a role without a policy gets the built-in one"),
    **_CHANNELS,
    "OutputDataConfig": Honored(),
    "OutputDataConfig.KmsKeyId": _KEY,
    "OutputDataConfig.S3OutputPath": Honored("its bucket must exist in the service's own S3"),
    "OutputDataConfig.CompressionType": Honored(only=("GZIP",)),
    **_RESOURCES,
    "VpcConfig": Recorded("there is no network but this machine's"),
    "StoppingCondition": Honored(),
    "StoppingCondition.MaxRuntimeInSeconds": Honored("at most 28 days, of all attempts together"),
    "StoppingCondition.MaxWaitTimeInSeconds": Honored(
        "a job with EnableManagedSpotTraining starts again after interruptions until this time has passed; less than"
        " MaxRuntimeInSeconds is refused. Without EnableManagedSpotTraining it has no effect"
    ),
    "StoppingCondition.MaxPendingTimeInSeconds": Refused(
        "a job waits for room without a limit; leave it out, and stop a job that waits too long"
    ),
    **TAGS,
    "EnableNetworkIsolation": Honored(
        "the script reaches only the instances of its job: not the service, its S3 or any other network. No packages"
        " are installed from a network. Refused if isolation mode `full` is not available"
    ),
    "EnableInterContainerTrafficEncryption": Honored(
        "on one machine, traffic between instances is not encrypted: it stays in memory, in a network of the job to"
        " which no other program has access; refused for several instances if isolation mode `full` is not available."
        " On a cluster, model parallelism (and Horovod in it) encrypts traffic between machines with TLS; refused for"
        " several instances without model parallelism"
    ),
    "EnableManagedSpotTraining": Honored(
        "instances are reclaimed only by `tidemill interrupt`. After it, and after lost instances, the"
        " job starts again from its checkpoints as long as MaxWaitTimeInSeconds allows"
    ),
    "CheckpointConfig": Honored(
        "files are restored before the script starts and uploaded while it runs; all of them are uploaded when it"
        " ends, also after a failure. Nothing is deleted in the bucket, as on SageMaker"
    ),
    "CheckpointConfig.S3Uri": Honored("a prefix; its bucket must exist in the service's own S3"),
    "CheckpointConfig.LocalPath": Honored(
        "`/opt/ml/checkpoints` by default; a directory below `/opt/ml`, but not in `input`, `code`, `model` or"
        " `output`; or, unless the isolation mode is `plain`, any other that hides nothing of the system, such as"
        " `/checkpoints`, but not `/etc/x`"
    ),
    **_OBSERVERS,
    "Environment": Honored("at most 100; names that the service sets (`SM_*`, `TIDEMILL_*`, AWS keys) are refused"),
    "RetryStrategy": Honored(
        "a job that has lost an instance starts again from its checkpoints, at most twice by default. With"
        " RetryStrategy it starts again after every InternalServerError. A script that fails is not started again"
    ),
    "RetryStrategy.MaximumRetryAttempts": Honored("1 to 30"),
    "SessionChainingConfig": Honored(),
    "SessionChainingConfig.EnableSessionTagChaining": Refused("a job's keys carry no session tags; leave it out"),
    "ServerlessJobConfig": Refused("a job trains a script: give AlgorithmSpecification and ResourceConfig"),
    "MlflowConfig": Refused("there is no MLflow server: let the script log to one of yours, and leave it out"),
    "ModelPackageConfig": Refused("register the model when it is trained, by CreateModelPackage, and leave it out"),
}

_LIST: Rows = {
    **JOB_LIST,
    "WarmPoolStatusEquals": Honored("no job keeps a warm pool, so none is listed"),
    "TrainingPlanArnEquals": Honored("no job has a training plan, so none is listed"),
}

_NAME: Mapping[str, Row] = {"TrainingJobName": Honored()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateTrainingJob": _CREATE,
    "DescribeTrainingJob": _NAME,
    "DeleteTrainingJob": {
        "TrainingJobName": Honored("a job that has ended; its logs and objects stay, and the name is free again")
    },
    "ListTrainingJobs": _LIST,
    "StopTrainingJob": _NAME,
    "UpdateTrainingJob": {
        "TrainingJobName": Honored(),
        "ProfilerConfig": Recorded("there is no profiler; refused unless the job is InProgress"),
        "ProfilerRuleConfigurations": Recorded("there is no profiler; refused unless the job is InProgress"),
        "ResourceConfig": Recorded("no instance has to be started, so none is kept warm"),
        "RemoteDebugConfig": Honored(),
        "RemoteDebugConfig.EnableRemoteDebug": _NO_REMOTE_SHELL,
    },
}
