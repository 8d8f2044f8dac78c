"""Permissions that SageMaker's operations on pipelines and their executions need."""

from collections.abc import Mapping

from tidemill.core.names import role_arn, sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members, Rule, by_name


def _pipeline(operation: str) -> Rule:
    """Return the rule of an operation on a pipeline, which its member names by name or ARN.

    It also needs AddTags for tags, PassRole for a role, and GetObject for a definition in S3.
    """

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        arn = sagemaker_arn("pipeline", request["PipelineName"].rpartition("/")[2], region=region)
        needs = [Permission(f"sagemaker:{operation}", arn)]
        if request.get("Tags"):
            needs.append(Permission("sagemaker:AddTags", arn))
        if request.get("RoleArn"):
            needs.append(Permission("iam:PassRole", role_arn(request["RoleArn"])))
        place = request.get("PipelineDefinitionS3Location")
        if place:
            needs.append(Permission("s3:GetObject", f"arn:aws:s3:::{place['Bucket']}/{place['ObjectKey']}"))
        return tuple(needs)

    return rule


_OF_PIPELINES = (
    *("CreatePipeline", "DeletePipeline", "DescribePipeline", "ListPipelineExecutions", "ListPipelineVersions"),
    *("StartPipelineExecution", "UpdatePipeline"),
)
_OF_EXECUTIONS = (
    *("DescribePipelineDefinitionForExecution", "DescribePipelineExecution", "ListPipelineExecutionSteps"),
    *("ListPipelineParametersForExecution", "RetryPipelineExecution", "StopPipelineExecution"),
    "UpdatePipelineExecution",
)

PIPELINES: Mapping[str, Rule] = {
    **{name: _pipeline(name) for name in _OF_PIPELINES},
    **by_name("sagemaker", lambda request, region: request.get("PipelineExecutionArn", "*"), *_OF_EXECUTIONS),
    **by_name("sagemaker", lambda request, region: sagemaker_arn("pipeline", "*", region=region), "ListPipelines"),
}
"""By operation."""
