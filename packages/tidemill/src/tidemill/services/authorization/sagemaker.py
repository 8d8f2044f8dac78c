"""Permissions that SageMaker's operations need."""

from collections.abc import Callable, Mapping
from typing import Any

from tidemill.control.resources import TITLES
from tidemill.core.compatibility.nothing import EMPTY_LISTS
from tidemill.core.lineage import artifact_id
from tidemill.core.names import role_arn, sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.core.registry import package_key
from tidemill.services.authorization.pipelines import PIPELINES
from tidemill.services.authorization.rule import Members, Rule, by_name, everything
from tidemill.wire.exchange import Context, Reply

_KINDS = {title: kind for kind, title in TITLES.items()}


def _arn(kind: str, name: str, region: str) -> str:
    """Return the ARN of a resource that a request names; some members are a name or an ARN."""
    return name if name.startswith("arn:") else sagemaker_arn(kind, name, region=region)


def _named(operation: str, *resources: str) -> Rule:
    """Return the rule of an operation on resources named by the members ``RESOURCEName``, e.g. ``EndpointName``."""

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        arns = [_arn(_KINDS[each], request[f"{each}Name"], region) for each in resources]
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


def _create_tuning_job(request: Members, region: str) -> tuple[Permission, ...]:
    """Return what CreateHyperParameterTuningJob needs: also the roles of all definitions."""
    definitions = [*request.get("TrainingJobDefinitions", ()), request.get("TrainingJobDefinition") or {}]
    roles = dict.fromkeys(given["RoleArn"] for given in definitions if "RoleArn" in given)
    passed = tuple(Permission("iam:PassRole", role_arn(role)) for role in roles)
    operation = "CreateHyperParameterTuningJob"
    return _create(operation, "HyperParameterTuningJob")(request, region) + passed


def _list(operation: str, resource: str) -> Rule:
    return lambda request, region: (
        Permission(f"sagemaker:{operation}", sagemaker_arn(_KINDS[resource], "*", region=region)),
    )


def _create_package(request: Members, region: str) -> tuple[Permission, ...]:
    """Return what CreateModelPackage needs: on a new version of a group, and on the group, or on the package."""
    group = request.get("ModelPackageGroupName")
    if group is None:
        arns = [_arn("model-package", request.get("ModelPackageName", "*"), region)]
    else:
        name = package_key(group)
        arns = [_arn("model-package", f"{name}/*", region), _arn("model-package-group", name, region)]
    needs = tuple(Permission("sagemaker:CreateModelPackage", arn) for arn in arns)
    return needs + ((Permission("sagemaker:AddTags", arns[0]),) if request.get("Tags") else ())


def _given(operation: str, members: Callable[[Members], list[str]]) -> Rule:
    """Return the rule of an operation on the resources whose ARNs a request has."""

    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        return tuple(Permission(f"sagemaker:{operation}", arn) for arn in members(request))

    return rule


def _create_artifact(request: Members, region: str) -> tuple[Permission, ...]:
    arn = _arn("artifact", artifact_id(request["Source"]), region)
    needs = (Permission("sagemaker:CreateArtifact", arn),)
    return needs + ((Permission("sagemaker:AddTags", arn),) if request.get("Tags") else ())


def _artifact(request: Members, region: str) -> str:
    """Return the ARN of an artifact that is named by its ARN, or by its Source."""
    source = request.get("Source")
    # The ARN of what the handler finds, which is not always the text that the request has.
    name = request.get("ArtifactArn", "").rpartition("/")[2] or (artifact_id(source) if source else "*")
    return _arn("artifact", name, region)


def _ends(request: Members) -> list[str]:
    return list(dict.fromkeys((request["SourceArn"], request["DestinationArn"])))


def _metrics_of(request: Members, region: str) -> tuple[Permission, ...]:
    names = dict.fromkeys(query["ResourceArn"].rpartition("/")[2] for query in request["MetricQueries"])
    arns = (_arn("experiment-trial-component", name, region) for name in names)
    return tuple(Permission("sagemaker:BatchGetMetrics", arn) for arn in arns)


_VERBS = {
    "Endpoint": ("Delete", "Describe"),
    "EndpointConfig": ("Delete", "Describe"),
    "Experiment": ("Delete", "Describe", "Update"),
    "HyperParameterTuningJob": ("Delete", "Describe", "Stop"),
    "Model": ("Delete", "Describe"),
    "ModelPackage": ("Delete", "Describe"),
    "ModelPackageGroup": ("Delete", "Describe"),
    "ProcessingJob": ("Delete", "Describe", "Stop"),
    "TrainingJob": ("Delete", "Describe", "Stop", "Update"),
    "TransformJob": ("Describe", "Stop"),
    "Trial": ("Delete", "Describe", "Update"),
    "TrialComponent": ("Delete", "Describe", "Update"),
}
"""By kind: the beginnings of the operations that need only the permission of their name for the resource they name."""

SAGEMAKER: Mapping[str, Rule] = {
    **{f"{verb}{kind}": _named(f"{verb}{kind}", kind) for kind, verbs in _VERBS.items() for verb in verbs},
    **{f"List{kind}s": _list(f"List{kind}s", kind) for kind in _VERBS},
    # Results of Search are limited to what the caller may describe.
    **by_name("sagemaker", everything, "Search", "GetSearchSuggestions", *EMPTY_LISTS),
    "AssociateTrialComponent": _named("AssociateTrialComponent", "Trial", "TrialComponent"),
    "DisassociateTrialComponent": _named("DisassociateTrialComponent", "Trial", "TrialComponent"),
    "CreateExperiment": _create("CreateExperiment", "Experiment"),
    "CreateTrial": _create("CreateTrial", "Trial", "Experiment"),
    "CreateTrialComponent": _create("CreateTrialComponent", "TrialComponent"),
    "CreateArtifact": _create_artifact,
    **by_name("sagemaker", _artifact, "DescribeArtifact", "UpdateArtifact", "DeleteArtifact"),
    **by_name("sagemaker", everything, "ListArtifacts", "ListAssociations"),
    "AddAssociation": _given("AddAssociation", _ends),
    "DeleteAssociation": _given("DeleteAssociation", _ends),
    **PIPELINES,
    **by_name("sagemaker", lambda request, region: request["ResourceArn"], "AddTags", "DeleteTags", "ListTags"),
    "CreateEndpoint": _create("CreateEndpoint", "Endpoint", "EndpointConfig"),
    "CreateEndpointConfig": _create("CreateEndpointConfig", "EndpointConfig", role="ExecutionRoleArn"),
    "BatchDescribeModelPackage": _given("BatchDescribeModelPackage", lambda request: request["ModelPackageArnList"]),
    "CreateHyperParameterTuningJob": _create_tuning_job,
    "CreateModel": _create("CreateModel", "Model", role="ExecutionRoleArn"),
    "CreateModelPackage": _create_package,
    "CreateModelPackageGroup": _create("CreateModelPackageGroup", "ModelPackageGroup"),
    "CreateProcessingJob": _create("CreateProcessingJob", "ProcessingJob", role="RoleArn"),
    "CreateTrainingJob": _create("CreateTrainingJob", "TrainingJob", role="RoleArn"),
    "CreateTransformJob": _create("CreateTransformJob", "TransformJob", "Model"),
    "ListTrainingJobsForHyperParameterTuningJob": _named(
        "ListTrainingJobsForHyperParameterTuningJob", "HyperParameterTuningJob"
    ),
    "UpdateEndpoint": _named("UpdateEndpoint", "Endpoint", "EndpointConfig"),
    "UpdateEndpointWeightsAndCapacities": _named("UpdateEndpointWeightsAndCapacities", "Endpoint"),
    **by_name("sagemaker", lambda request, region: request["ModelPackageArn"], "UpdateModelPackage"),
}
"""By operation."""

METRICS: Mapping[str, Rule] = {
    "BatchPutMetrics": _named("BatchPutMetrics", "TrialComponent"),
    "BatchGetMetrics": _metrics_of,
}
"""By operation of SageMaker Metrics."""

RUNTIME: Mapping[str, Rule] = {
    # One permission for both, as in AWS's service authorization reference.
    "InvokeEndpoint": _named("InvokeEndpoint", "Endpoint"),
    "InvokeEndpointAsync": _named("InvokeEndpointAsync", "Endpoint"),
    "InvokeEndpointWithResponseStream": _named("InvokeEndpoint", "Endpoint"),
}
"""By operation of SageMaker Runtime."""

_LISTS = {
    "ListArtifacts": ("ArtifactSummaries", "Artifact"),
    "ListEndpointConfigs": ("EndpointConfigs", "EndpointConfig"),
    "ListEndpoints": ("Endpoints", "Endpoint"),
    "ListExperiments": ("ExperimentSummaries", "Experiment"),
    "ListModelPackageGroups": ("ModelPackageGroupSummaryList", "ModelPackageGroup"),
    "ListModelPackages": ("ModelPackageSummaryList", "ModelPackage"),
    "ListModels": ("Models", "Model"),
    "ListProcessingJobs": ("ProcessingJobSummaries", "ProcessingJob"),
    "ListTrainingJobs": ("TrainingJobSummaries", "TrainingJob"),
    "ListTransformJobs": ("TransformJobSummaries", "TransformJob"),
    "ListTrialComponents": ("TrialComponentSummaries", "TrialComponent"),
    "ListTrials": ("TrialSummaries", "Trial"),
}
"""By operation: the member with the list, and the kind of its entries."""


def visible(
    answer: Mapping[str, Any] | Reply, context: Context, allows: Callable[[Permission], bool]
) -> Mapping[str, Any] | Reply:
    """Return the answer of a list without the entries that its caller may not describe; other answers unchanged.

    Args:
        answer: Output members.
        allows: Returns whether the policies that limit the caller allow a permission.
    """
    if context.service != "sagemaker" or context.operation not in _LISTS or isinstance(answer, Reply):
        return answer
    member, kind = _LISTS[context.operation]
    action = f"sagemaker:Describe{kind}"
    return {**answer, member: [each for each in answer[member] if allows(Permission(action, each[f"{kind}Arn"]))]}
