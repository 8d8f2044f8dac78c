"""Rows of batch transform: CreateTransformJob and the operations that find, list and stop jobs."""

from collections.abc import Mapping

from tidemill.core.compatibility.experiments import EXPERIMENT_CONFIG
from tidemill.core.compatibility.rows import JOB_LIST, TAGS, Honored, Recorded, Refused, Row, Rows, Unencrypted, honored

_KEY = Unencrypted(names_key=True)
_FILTERED = (
    "names, indexes, slices and `*`, as on SageMaker; needs records of CSV or JSON. Several names select an object,"
    " other paths to several places a list"
)

_INPUT: Rows = {
    **honored("TransformInput", "TransformInput.DataSource", "TransformInput.DataSource.S3DataSource"),
    "TransformInput.DataSource.S3DataSource.S3DataType": Honored(only=("S3Prefix", "ManifestFile")),
    **honored("TransformInput.DataSource.S3DataSource.S3Uri", "TransformInput.ContentType"),
    **honored("TransformInput.CompressionType"),
    "TransformInput.SplitType": Honored(
        "empty lines are skipped. With SingleRecord, a request has the payload of one RecordIO or TFRecord record;"
        " otherwise it has whole records with their framing"
    ),
}

_OUTPUT: Rows = {
    "TransformOutput": Honored(),
    "TransformOutput.S3OutputPath": Honored("its bucket must exist in the service's own S3"),
    "TransformOutput.Accept": Honored(),
    "TransformOutput.AssembleWith": Honored("Line: a line feed follows the answer to each request"),
    "TransformOutput.KmsKeyId": _KEY,
}

_CREATE: Rows = {
    "TransformJobName": Honored(),
    "ModelName": Honored("a model of Mode MultiModel is refused. Its ExecutionRoleArn selects the policy of the job"),
    "MaxConcurrentTransforms": Honored("1 if it is not given or 0; its product with MaxPayloadInMB is at most 100 MB"),
    "ModelClientConfig": Honored(),
    "ModelClientConfig.InvocationsTimeoutInSeconds": Honored("also the limit of user code in the server"),
    "ModelClientConfig.InvocationsMaxRetries": Honored(
        "a request is retried after status 429 or 5xx, and if the server does not answer"
    ),
    "MaxPayloadInMB": Honored("6 if it is not given; 0 means 100, with a Content-Length"),
    "BatchStrategy": Honored("MultiRecord if it is not given; with SplitType None an object is one record"),
    "Environment": Honored("added to the model's; names that the service sets (`SM_*`, AWS keys) are refused"),
    **_INPUT,
    **_OUTPUT,
    "DataCaptureConfig": Refused("requests and answers of transform jobs are not captured; leave it out"),
    "TransformResources": Honored(),
    "TransformResources.InstanceType": Honored(
        "any name. Its memory and processors are limits if the setting `limit_to_instance_type` is on; else a server"
        " may use the whole machine"
    ),
    "TransformResources.InstanceCount": Honored("1 to 8 servers; each free server takes the next object"),
    "TransformResources.VolumeKmsKeyId": _KEY,
    "TransformResources.TransformAmiVersion": Recorded("there are no machine images"),
    "DataProcessing": Honored(),
    "DataProcessing.InputFilter": Honored(_FILTERED),
    "DataProcessing.OutputFilter": Honored(_FILTERED),
    "DataProcessing.JoinSource": Honored(
        "records and answers must have the same format, CSV or JSON; if a request has several records, the answer must"
        " have one line for each"
    ),
    **TAGS,
    **EXPERIMENT_CONFIG,
}

_NAME: Mapping[str, Row] = {"TransformJobName": Honored()}

OPERATIONS: Mapping[str, Rows] = {
    "CreateTransformJob": _CREATE,
    "DescribeTransformJob": _NAME,
    "ListTransformJobs": JOB_LIST,
    "StopTransformJob": _NAME,
}
