"""The containers that model packages describe: check them, and find the one that a model is served by."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tidemill.control.admission import check_s3_uri, refusal
from tidemill.core.registry import APPROVED, RegisteredModel
from tidemill.errors import ValidationException
from tidemill.store.records.base import Record


def check_specifications(request: Mapping[str, Any]) -> None:
    """Refuse containers whose archive is not in S3, and specifications of the same name.

    An image that cannot be served here is accepted: a registry also keeps models that are deployed elsewhere.

    Args:
        request: The members of CreateModelPackage or UpdateModelPackage.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
    """
    _check_containers(request.get("InferenceSpecification", {}).get("Containers", ()), "inferenceSpecification")
    for member in ("AdditionalInferenceSpecifications", "AdditionalInferenceSpecificationsToAdd"):
        added = request.get(member, [])
        for number, each in enumerate(added, start=1):
            _check_containers(each["Containers"], f"{member[0].lower()}{member[1:]}.{number}.member")
        check_additions({}, added)


def check_additions(request: Mapping[str, Any], added: Iterable[Mapping[str, Any]]) -> None:
    """Refuse an additional specification whose name is taken.

    Args:
        request: The members of the package.
        added: The new specifications.

    Raises:
        ValidationException: Names the specification.
    """
    names = {each["Name"] for each in request.get("AdditionalInferenceSpecifications", [])}
    for each in added:
        if each["Name"] in names:
            raise ValidationException(
                f"Value {each['Name']!r} at 'additionalInferenceSpecifications' is not allowed: another specification"
                " of the package has this name; choose another"
            )
        names.add(each["Name"])


def container_of(container: Mapping[str, Any], package_of: Callable[[str], Record]) -> Mapping[str, Any]:
    """Return the container of a model with what its package describes; other containers unchanged.

    Args:
        container: The container of a CreateModel request, by botocore's names.
        package_of: Returns the record of a package, or raises ValidationException.

    Raises:
        ValidationException: The package does not exist, is not approved, or does not describe one container.
    """
    name = container.get("ModelPackageName")
    if name is None:
        return container
    for member in ("Image", "ModelDataUrl"):
        if member in container:
            raise refusal(
                f"container.{member[0].lower()}{member[1:]}",
                container[member],
                "a container has either a ModelPackageName or its own Image and ModelDataUrl",
            )
    package = RegisteredModel(**package_of(name).document)
    if package.approval not in ("", APPROVED):
        raise refusal(
            "container.modelPackageName",
            name,
            f"its approval status is {package.approval}; only Approved versions can be deployed. UpdateModelPackage"
            " approves it",
        )
    described = package.containers(container.get("InferenceSpecificationName", ""))
    if len(described) != 1:
        raise refusal(
            "container.modelPackageName",
            name,
            f"it describes {len(described)} containers; a model has exactly one here. InferenceSpecificationName"
            " selects an additional specification",
        )
    served = {member: described[0][member] for member in ("Image", "ModelDataUrl") if member in described[0]}
    environment = {**described[0].get("Environment", {}), **container.get("Environment", {})}
    return {**container, **served, **({"Environment": environment} if environment else {})}


def _check_containers(containers: Iterable[Mapping[str, Any]], at: str) -> None:
    for number, container in enumerate(containers, start=1):
        place = f"{at}.containers.{number}.member"
        if "Image" not in container:
            raise refusal(f"{place}.image", None, "give the image that serves the model")
        if "ModelDataUrl" in container:
            check_s3_uri(container["ModelDataUrl"], f"{place}.modelDataUrl")
