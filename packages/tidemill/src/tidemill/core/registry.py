"""Model packages and their groups: what a model needs to be served, with a version and an approval."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.core.documents import Document

APPROVED = "Approved"
PENDING_APPROVAL = "PendingManualApproval"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageGroup(Document):
    """A model package group, which numbers its packages.

    Attributes:
        request: The CreateModelPackageGroup request, by botocore's member names.
        created_by: ARN of the caller who created it.
        last_version: The newest number that a package got. A number is not used again after its package is deleted.
    """

    name: str
    arn: str
    request: Mapping[str, Any]
    created_ms: int
    created_by: str
    last_version: int = 0

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show."""
        return {"arn": self.arn, "description": self.request.get("ModelPackageGroupDescription", "")}


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredModel(Document):
    """A model package: versioned, as a member of a group, or unversioned, with a name of its own.

    Attributes:
        key: Unique name: ``GROUP/VERSION``, or the name of an unversioned package.
        request: The members of CreateModelPackage that describe it, by botocore's names, as later updates left them.
        created_by: ARN of the caller who created it.
        modified_by: ARN of the caller who updated it last; empty if nobody has.
        token: The ClientToken of the request that created it.
    """

    key: str
    arn: str
    request: Mapping[str, Any] = field(default_factory=dict)
    created_ms: int
    created_by: str
    modified_by: str = ""
    token: str = ""

    @property
    def name(self) -> str:
        """Name of its record."""
        return self.key

    @property
    def group(self) -> str:
        """Name of its group; empty for an unversioned package."""
        return self.key.partition("/")[0] if self.version is not None else ""

    @property
    def version(self) -> int | None:
        """Its number in the group; None for an unversioned package."""
        number = self.key.partition("/")[2]
        return int(number) if number else None

    @property
    def approval(self) -> str:
        """Its ModelApprovalStatus; empty for an unversioned package, which needs none."""
        if self.version is None:
            return ""
        return str(self.request.get("ModelApprovalStatus", PENDING_APPROVAL))

    def containers(self, specification: str = "") -> list[Mapping[str, Any]]:
        """Return its containers, by botocore's names; empty if the specification does not exist.

        Args:
            specification: Name of one of its AdditionalInferenceSpecifications. Default: its InferenceSpecification.
        """
        if not specification:
            return list(self.request.get("InferenceSpecification", {}).get("Containers", []))
        for each in self.request.get("AdditionalInferenceSpecifications", []):
            if each["Name"] == specification:
                return list(each["Containers"])
        return []

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show."""
        shown = ("ModelPackageDescription", "ModelLifeCycle", "ModelPackageRegistrationType")
        return {
            "arn": self.arn,
            "approval": self.approval,
            "shown": {name: self.request[name] for name in shown if name in self.request},
        }


def package_key(text: str) -> str:
    """Return the key of a package, or the name of a group, that a request names by its name or its ARN.

    Args:
        text: A ModelPackageName, ModelPackageArn or ModelPackageGroupName.
    """
    return text.rpartition(":")[2].partition("/")[2] if text.startswith("arn:") else text
