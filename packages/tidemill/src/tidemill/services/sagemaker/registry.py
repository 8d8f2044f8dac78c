"""Model packages and their groups on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.registry.packages import ModelRegistry
from tidemill.control.resources import MODEL_PACKAGE, MODEL_PACKAGE_GROUP
from tidemill.core.registry import RegisteredModel, package_key
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.callers import user_of
from tidemill.services.sagemaker.listing import arn_of, page_reply, query_of, row_of, status_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

_COMPLETED = "Completed"
"""Status of every package and group: nothing is validated or scanned, so both are complete at once."""
_UNVERSIONED = "^[^/]+$"
_VERSIONED = "/"
_TYPES = {"Unversioned": _UNVERSIONED, "Versioned": _VERSIONED, "Both": ""}


class RegistryHandlers(Operations):
    """Create, describe, list, update and delete model packages and groups."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry

    async def create_model_package_group(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        group = await self._registry.create_group(request, caller=context.caller.arn, tags=tags)
        return {"ModelPackageGroupArn": group.arn}

    async def describe_model_package_group(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return group_description(self._registry.group(request["ModelPackageGroupName"]))

    async def list_model_package_groups(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if request.get("CrossAccountFilterOption") == "CrossAccount":
            return {"ModelPackageGroupSummaryList": []}
        found, token = await self._registry.list(MODEL_PACKAGE_GROUP, query_of(request))
        return page_reply("ModelPackageGroupSummaryList", [group_summary(each) for each in found], token)

    async def delete_model_package_group(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._registry.delete_group(request["ModelPackageGroupName"])
        return {}

    async def create_model_package(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        package = await self._registry.create_package(request, caller=context.caller.arn, tags=tags)
        return {"ModelPackageArn": package.arn}

    async def describe_model_package(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return package_description(self._registry.package(request["ModelPackageName"]))

    async def batch_describe_model_package(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        errors: dict[str, Any] = {}
        for arn in request["ModelPackageArnList"]:
            try:
                found[arn] = _batch_summary(RegisteredModel(**self._registry.package(arn).document))
            except ValidationException as error:
                errors[arn] = {"ErrorCode": error.code, "ErrorResponse": error.message}
        return {
            **({"ModelPackageSummaries": found} if found else {}),
            **({"BatchDescribeModelPackageErrorMap": errors} if errors else {}),
        }

    async def list_model_packages(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        by_status = {**request, "StatusEquals": request.get("ModelApprovalStatus")}
        query = query_of(by_status, name_pattern=_pattern(request))
        found, token = await self._registry.list(MODEL_PACKAGE, query)
        return page_reply("ModelPackageSummaryList", [package_summary(each) for each in found], token)

    async def update_model_package(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"ModelPackageArn": (await self._registry.update_package(request, caller=context.caller.arn)).arn}

    async def delete_model_package(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._registry.delete_package(request["ModelPackageName"])
        return {}


def group_description(record: Record) -> dict[str, Any]:
    """Return the description of a group.

    Args:
        record: The stored group.
    """
    group = record.document
    return {
        **group["request"],
        "ModelPackageGroupArn": group["arn"],
        "CreationTime": when(record.created_ms),
        "CreatedBy": user_of(group["created_by"]),
        "ModelPackageGroupStatus": _COMPLETED,
    }


def package_description(record: Record) -> dict[str, Any]:
    """Return the description of a package.

    Args:
        record: The stored package.
    """
    package = RegisteredModel.from_document(record.document)
    modified = {"LastModifiedTime": when(record.modified_ms), "LastModifiedBy": user_of(package.modified_by)}
    return {
        **package.request,
        **_identity(package),
        "ModelPackageStatusDetails": {"ValidationStatuses": [], "ImageScanStatuses": []},
        "CreatedBy": user_of(package.created_by),
        **(modified if package.modified_by else {}),
    }


def _identity(package: RegisteredModel) -> dict[str, Any]:
    versioned = {
        "ModelPackageGroupName": package.group,
        "ModelPackageVersion": package.version,
        "ModelApprovalStatus": package.approval,
    }
    return {
        "ModelPackageName": package.key,  # of a version GROUP/VERSION: SDK v3 sends it back
        "ModelPackageArn": package.arn,
        "CreationTime": when(package.created_ms),
        "ModelPackageStatus": _COMPLETED,
        **(versioned if package.version is not None else {}),
    }


def _batch_summary(package: RegisteredModel) -> dict[str, Any]:
    shown = ("ModelPackageDescription", "ModelPackageRegistrationType")
    identity = _identity(package)
    del identity["ModelPackageName"]
    return {
        **identity,
        **{name: package.request[name] for name in shown if name in package.request},
        "InferenceSpecification": package.request.get("InferenceSpecification", {"Containers": []}),
    }


def group_summary(group: Summary) -> dict[str, Any]:
    """Return what lists show of a group.

    Args:
        group: The summary.
    """
    description = group.summary.get("description")
    return {
        **row_of("ModelPackageGroup", group, changes=False, status=False),
        "ModelPackageGroupStatus": _COMPLETED,
        **({"ModelPackageGroupDescription": description} if description else {}),
    }


def package_summary(package: Summary) -> dict[str, Any]:
    """Return what lists show of a package.

    Args:
        package: The summary.
    """
    name, _, version = package.name.partition("/")
    versioned = {"ModelPackageGroupName": name, "ModelPackageVersion": int(version)} if version.isdecimal() else {}
    return {
        **package.summary.get("shown", {}),
        **(versioned or {"ModelPackageName": name}),
        "ModelPackageArn": arn_of(package),
        "CreationTime": when(package.created_ms),
        "ModelPackageStatus": _COMPLETED,
        **({"ModelApprovalStatus": status_of(package)} if package.status else {}),
    }


def _pattern(request: Mapping[str, Any]) -> str:
    """Return the pattern of the listed packages' keys. Without a group or a type, unversioned packages are listed."""
    if "ModelPackageGroupName" in request:
        return f"^{package_key(request['ModelPackageGroupName'])}/"
    return _TYPES[request.get("ModelPackageType", "Unversioned")]
