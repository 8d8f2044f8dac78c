"""Register models: make a package of a container, in a group that is created if it is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.core.compatibility.sdk import refuse_arguments
from tidemill.sdk.arguments import present
from tidemill.sdk.session import Session


def request_of(given: Any) -> Any:
    """Return an object of the SDK, or one of AWS's, as the member of a request; other values unchanged.

    Args:
        given: An object with ``to_request`` or AWS's ``_to_request_dict``, a dictionary, or None.
    """
    for method in ("to_request", "_to_request_dict"):
        if hasattr(given, method):
            return getattr(given, method)()
    return given


def package_request(
    container: Mapping[str, Any],
    *,
    content_types: Sequence[str] | None,
    response_types: Sequence[str] | None,
    inference_instances: Sequence[str] | None,
    transform_instances: Sequence[str] | None,
    **members: Any,
) -> dict[str, Any]:
    """Return the CreateModelPackage request of a container.

    Args:
        container: Image, archive and environment, by botocore's names.
        content_types: SupportedContentTypes; None leaves it out, as for the others.
        response_types: SupportedResponseMIMETypes.
        inference_instances: SupportedRealtimeInferenceInstanceTypes.
        transform_instances: SupportedTransformInstanceTypes.
        **members: Further members; those that are None are left out.
    """
    refuse_arguments("Model.register", marketplace_cert=members.pop("marketplace_cert", False))
    specification = present(
        Containers=[dict(container)],
        SupportedContentTypes=content_types,
        SupportedResponseMIMETypes=response_types,
        SupportedRealtimeInferenceInstanceTypes=inference_instances,
        SupportedTransformInstanceTypes=transform_instances,
    )
    return {
        "InferenceSpecification": specification,
        **present(**{name: request_of(value) for name, value in members.items()}),
    }


def register(session: Session, request: Mapping[str, Any]) -> str:
    """Create a package, and its group if it is missing.

    Args:
        session: The session.
        request: The CreateModelPackage request.

    Returns:
        ARN of the package.
    """
    client = session.sagemaker_client
    group = request.get("ModelPackageGroupName")
    if group is not None and not group.startswith("arn:"):
        try:
            client.create_model_package_group(ModelPackageGroupName=group)
        except client.exceptions.ClientError as error:
            if "already exists" not in error.response["Error"]["Message"]:
                raise
    return str(client.create_model_package(**request).get("ModelPackageArn", "recorded"))
