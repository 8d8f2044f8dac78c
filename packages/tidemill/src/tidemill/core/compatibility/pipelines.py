"""Rows of pipelines and their executions."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import TAGS, Honored, Recorded, Refused, Rows, honored

_TOKEN = Honored("a repeated request has the effect of the first")
_ALIASES = Refused("versions have numbers only; name the version by PipelineVersionId")
_PIPELINE: Rows = {"PipelineName": Honored("a name or an ARN")}
_EXECUTION: Rows = {"PipelineExecutionArn": Honored()}
_PARALLELISM: Rows = {
    "ParallelismConfiguration": Honored(),
    "ParallelismConfiguration.MaxParallelExecutionSteps": Honored("the most steps of an execution whose jobs run"),
}
_LIST: Rows = honored("CreatedAfter", "CreatedBefore", "SortBy", "SortOrder", "NextToken", "MaxResults")
_DEFINITION: Rows = {
    **honored("PipelineName", "PipelineDisplayName"),
    "PipelineDefinition": Honored(
        "schema version 2020-12-01; the types of steps, expressions and conditions that `how-to/pipelines.md` lists."
        " Everything else is refused by name"
    ),
    "PipelineDefinitionS3Location": Honored("in the service's own S3; it is read once, by this request"),
    **honored("PipelineDefinitionS3Location.Bucket", "PipelineDefinitionS3Location.ObjectKey"),
    "PipelineDefinitionS3Location.VersionId": Refused("objects have no versions; leave it out"),
    "PipelineDescription": Honored(),
    "RoleArn": Honored(
        "if the role was given a policy, that limits the requests of the steps; otherwise they have the"
        " rights of the key that started the execution"
    ),
    **_PARALLELISM,
    "PipelineVersionAliases": _ALIASES,
}
_START: Rows = {
    **_PIPELINE,
    **honored("PipelineExecutionDisplayName", "PipelineParameters", "PipelineParameters[].Name"),
    "PipelineParameters[].Value": Honored("read by the parameter's type; compared with its EnumValues"),
    "PipelineExecutionDescription": Honored(),
    "ClientRequestToken": _TOKEN,
    **_PARALLELISM,
    "SelectiveExecutionConfig": Honored(
        "the other steps have the results of the source; a step that needs one which the source does not have is"
        " refused"
    ),
    "SelectiveExecutionConfig.SourcePipelineExecutionArn": Honored("an execution of this pipeline that has ended"),
    **honored("SelectiveExecutionConfig.SelectedSteps", "SelectiveExecutionConfig.SelectedSteps[].StepName"),
    "PipelineVersionId": Honored("the newest if it is not given"),
    "MlflowExperimentName": Refused("there is no MLflow here; leave it out"),
    "PipelineVersionAlias": _ALIASES,
    "RoleArn": Honored("as for CreatePipeline; takes the place of the pipeline's"),
}

OPERATIONS: Mapping[str, Rows] = {
    "CreatePipeline": {
        **_DEFINITION,
        "ClientRequestToken": _TOKEN,
        **TAGS,
    },
    "UpdatePipeline": _DEFINITION,
    "DescribePipeline": {
        **_PIPELINE,
        "PipelineVersionId": Honored("the newest if it is not given"),
        "PipelineVersionAlias": _ALIASES,
    },
    "DeletePipeline": {
        "PipelineName": Honored(
            "refused while an execution runs; deletes versions and executions, but no job or model"
        ),
        "ClientRequestToken": Recorded("a pipeline that is deleted does not exist for a repeated request"),
    },
    "ListPipelines": {**_LIST, "PipelineNamePrefix": Honored(), "ManagedBy": Honored("none is managed by AWS")},
    "ListPipelineVersions": {
        **_PIPELINE,
        **{name: row for name, row in _LIST.items() if name != "SortBy"},
    },
    "StartPipelineExecution": _START,
    "DescribePipelineExecution": _EXECUTION,
    "DescribePipelineDefinitionForExecution": _EXECUTION,
    "ListPipelineExecutions": {**_PIPELINE, **_LIST, "PipelineVersionAlias": _ALIASES},
    "ListPipelineExecutionSteps": {
        **_EXECUTION,
        **honored("NextToken", "MaxResults"),
        "SortOrder": Honored("by the begin of the steps; the newest first if it is not given"),
    },
    "ListPipelineParametersForExecution": {**_EXECUTION, "NextToken": Honored(), "MaxResults": Honored()},
    "UpdatePipelineExecution": {
        **_EXECUTION,
        **honored("PipelineExecutionDescription", "PipelineExecutionDisplayName"),
        **_PARALLELISM,
    },
    "StopPipelineExecution": {**_EXECUTION, "ClientRequestToken": _TOKEN},
    "RetryPipelineExecution": {**_EXECUTION, "ClientRequestToken": _TOKEN, **_PARALLELISM},
}
"""Rows by operation."""
