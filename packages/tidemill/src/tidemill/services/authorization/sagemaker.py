"""Permissions that SageMaker's operations need."""

from collections.abc import Mapping

from tidemill.core.names import role_arn, sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.services.authorization.rule import Members, Rule

__all__ = ["RUNTIME", "SAGEMAKER"]


_KINDS = {
    "TrainingJob": "training-job",
    "TransformJob": "transform-job",
    "Model": "model",
    "EndpointConfig": "endpoint-config",
    "Endpoint": "endpoint",
}


def _named(operation: str, *resources: str) -> Rule:
    """Return the rule of an operation on resources named by the members ``RESOURCEName``, e.g. ``EndpointName``."""

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        arns = [sagemaker_arn(_KINDS[each], request[f"{each}Name"], region=region) for each in resources]
        return tuple(Permission(f"sagemaker:{operation}", arn) for arn in arns)

    return rule


def _create(operation: str, *resources: str, role: str | None = None) -> Rule:
    """Return the rule of a create operation, which also needs AddTags for tags and PassRole for a role."""
    named = _named(operation, *resources)

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        needs = named(request, region)
        if request.get("Tags"):
            needs += (Permission("sagemaker:AddTags", needs[0].resource),)
        if role is not None and request.get(role):
            needs += (Permission("iam:PassRole", role_arn(request[role])),)
        return needs

    return rule


def _list(operation: str, resource: str) -> Rule:
    return lambda request, region: (
        Permission(f"sagemaker:{operation}", sagemaker_arn(_KINDS[resource], "*", region=region)),
    )


def _tags(operation: str) -> Rule:
    return lambda request, region: (Permission(f"sagemaker:{operation}", request["ResourceArn"]),)


SAGEMAKER: Mapping[str, Rule] = {
    "AddTags": _tags("AddTags"),
    "CreateEndpoint": _create("CreateEndpoint", "Endpoint", "EndpointConfig"),
    "CreateEndpointConfig": _create("CreateEndpointConfig", "EndpointConfig", role="ExecutionRoleArn"),
    "CreateModel": _create("CreateModel", "Model", role="ExecutionRoleArn"),
    "CreateTrainingJob": _create("CreateTrainingJob", "TrainingJob", role="RoleArn"),
    "CreateTransformJob": _create("CreateTransformJob", "TransformJob", "Model"),
    "DeleteEndpoint": _named("DeleteEndpoint", "Endpoint"),
    "DeleteEndpointConfig": _named("DeleteEndpointConfig", "EndpointConfig"),
    "DeleteModel": _named("DeleteModel", "Model"),
    "DeleteTags": _tags("DeleteTags"),
    "DeleteTrainingJob": _named("DeleteTrainingJob", "TrainingJob"),
    "DescribeEndpoint": _named("DescribeEndpoint", "Endpoint"),
    "DescribeEndpointConfig": _named("DescribeEndpointConfig", "EndpointConfig"),
    "DescribeModel": _named("DescribeModel", "Model"),
    "DescribeTrainingJob": _named("DescribeTrainingJob", "TrainingJob"),
    "DescribeTransformJob": _named("DescribeTransformJob", "TransformJob"),
    "ListEndpointConfigs": _list("ListEndpointConfigs", "EndpointConfig"),
    "ListEndpoints": _list("ListEndpoints", "Endpoint"),
    "ListModels": _list("ListModels", "Model"),
    "ListTags": _tags("ListTags"),
    "ListTrainingJobs": _list("ListTrainingJobs", "TrainingJob"),
    "ListTransformJobs": _list("ListTransformJobs", "TransformJob"),
    "StopTrainingJob": _named("StopTrainingJob", "TrainingJob"),
    "StopTransformJob": _named("StopTransformJob", "TransformJob"),
    "UpdateEndpoint": _named("UpdateEndpoint", "Endpoint", "EndpointConfig"),
    "UpdateEndpointWeightsAndCapacities": _named("UpdateEndpointWeightsAndCapacities", "Endpoint"),
    "UpdateTrainingJob": _named("UpdateTrainingJob", "TrainingJob"),
}
"""By operation."""

RUNTIME: Mapping[str, Rule] = {
    # One permission for both, as in AWS's service authorization reference.
    "InvokeEndpoint": _named("InvokeEndpoint", "Endpoint"),
    "InvokeEndpointAsync": _named("InvokeEndpointAsync", "Endpoint"),
    "InvokeEndpointWithResponseStream": _named("InvokeEndpoint", "Endpoint"),
}
"""By operation of SageMaker Runtime."""
