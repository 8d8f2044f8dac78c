"""Model packages and their groups: create, look up, list, update, delete."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemill.control.registry.containers import check_additions, check_specifications
from tidemill.control.resources import MODEL_PACKAGE, MODEL_PACKAGE_GROUP, group_record, package_record, page_of
from tidemill.control.tags import check_tags, delete_tags, insert_tags
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import sagemaker_arn
from tidemill.core.registry import PackageGroup, RegisteredModel, package_key
from tidemill.errors import ConflictException, ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Summary, Transaction

_REPEATABLE = "client-token"
"""Kind of the record of a ClientToken, with the key of the package that its request created."""
_REPLACED = (
    "ModelApprovalStatus",
    "ModelPackageRegistrationType",
    "ApprovalDescription",
    "InferenceSpecification",
    "SourceUri",
    "ModelCard",
    "ModelLifeCycle",
)
"""Members of UpdateModelPackage that replace what the package has."""

_Tags = Sequence[Mapping[str, str]]


class ModelRegistry:
    """The model packages of the account.

    Args:
        records: Stores packages and groups.
        region: Region in ARNs.
        clock: Provides the current time.
    """

    def __init__(self, records: RecordStore, *, region: str, clock: Clock) -> None:
        self._records = records
        self._region = region
        self._clock = clock

    async def create_group(self, request: Mapping[str, Any], *, caller: str, tags: _Tags = ()) -> PackageGroup:
        """Create an empty group.

        Args:
            request: The members of CreateModelPackageGroup without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The name is taken.
        """
        checked_tags = check_tags(tags)
        group = self._new_group(request, caller)

        def insert(transaction: Transaction) -> None:
            if transaction.get(MODEL_PACKAGE_GROUP, group.name) is not None:
                raise ValidationException(
                    f"Model Package Group already exists: {group.arn}; choose another name, or add versions to it"
                )
            transaction.insert(group_record(group))
            insert_tags(transaction, group.arn, checked_tags, at_ms=group.created_ms)

        await self._records.change(insert, grows=True)
        return group

    async def create_package(self, request: Mapping[str, Any], *, caller: str, tags: _Tags = ()) -> RegisteredModel:
        """Create a package: a new version of its group, or an unversioned one.

        A request with the ClientToken of a package that exists returns that package.

        Args:
            request: The members of CreateModelPackage without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: It names no group and no package or both, the group does not exist, the name is taken,
                or a container cannot be registered.
        """
        checked_tags = check_tags(tags)
        members = {name: value for name, value in request.items() if name != "ClientToken"}
        token = request.get("ClientToken", "")
        _check_names(members)
        check_specifications(members)

        def insert(transaction: Transaction) -> RegisteredModel:
            earlier = _made_before(transaction, token)
            if earlier is not None:
                return earlier
            key = self._new_key(transaction, members)
            package = RegisteredModel(
                key=key,
                arn=sagemaker_arn(MODEL_PACKAGE, key, region=self._region),
                request=members,
                created_ms=self._clock.now_ms(),
                created_by=caller,
                token=token,
            )
            transaction.insert(package_record(package))
            insert_tags(transaction, package.arn, checked_tags, at_ms=package.created_ms)
            if token:
                transaction.insert(_token_record(package))
            return package

        package = await self._records.change(insert, grows=True)
        faults.point("control.registry.created")
        return package

    async def update_package(self, request: Mapping[str, Any], *, caller: str) -> RegisteredModel:
        """Change a package's approval, descriptions and specifications.

        Args:
            request: The members of UpdateModelPackage.
            caller: ARN of the caller.

        Raises:
            ValidationException: There is no such package, or a specification's name is taken.
        """
        check_specifications(request)

        def change(record: Record) -> Record:
            package = RegisteredModel(**record.document)
            return package_record(replace(package, request=_updated(package, request), modified_by=caller))

        def update(transaction: Transaction) -> Record:
            key = self._existing(transaction, MODEL_PACKAGE, request["ModelPackageArn"])
            record = transaction.update(MODEL_PACKAGE, key, change)
            assert record is not None
            return record

        return RegisteredModel(**(await self._records.change(update, grows=True)).document)

    async def delete_package(self, name: str) -> None:
        """Delete a package and its tags. Models that were created from it stay.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such package.
        """

        def delete(transaction: Transaction) -> None:
            key = self._existing(transaction, MODEL_PACKAGE, name)
            record = transaction.delete(MODEL_PACKAGE, key)
            assert record is not None
            transaction.delete(_REPEATABLE, record.document.get("token", ""))
            delete_tags(transaction, sagemaker_arn(MODEL_PACKAGE, key, region=self._region))

        await self._records.change(delete)

    async def delete_group(self, name: str) -> None:
        """Delete an empty group and its tags.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such group.
            ConflictException: It has packages.
        """
        key = package_key(name)
        last_version = self.group(name).document["last_version"]
        page = await self._records.summaries(MODEL_PACKAGE, Query(name_pattern=_of_group(key), limit=1))

        def delete(transaction: Transaction) -> None:
            record = transaction.get(MODEL_PACKAGE_GROUP, self._existing(transaction, MODEL_PACKAGE_GROUP, name))
            assert record is not None
            if page.records or record.document["last_version"] != last_version:
                raise ConflictException(
                    f"Model Package Group {record.document['arn']} cannot be deleted because it still contains Model"
                    " Packages; delete those first"
                )
            transaction.delete(MODEL_PACKAGE_GROUP, key)
            delete_tags(transaction, record.document["arn"])

        await self._records.change(delete)

    def group(self, name: str) -> Record:
        """Return the stored record of a group.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such group.
        """
        return self._record(MODEL_PACKAGE_GROUP, name)

    def package(self, name: str) -> Record:
        """Return the stored record of a package.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such package.
        """
        return self._record(MODEL_PACKAGE, name)

    async def list(self, kind: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of summaries, and the token of the next page (None on the last page).

        Args:
            kind: `MODEL_PACKAGE` or `MODEL_PACKAGE_GROUP`.
            query: Filters, order, size and position of the page.

        Raises:
            ValidationException: The service has not issued this token for this query.
        """
        return await page_of(self._records, kind, query)

    def _record(self, kind: str, name: str) -> Record:
        record = self._records.get(kind, package_key(name))
        if record is None or (name.startswith("arn:") and record.document["arn"] != name):
            raise self._missing(kind, name)
        return record

    def _existing(self, transaction: Transaction, kind: str, name: str) -> str:
        record = transaction.get(kind, package_key(name))
        if record is None or (name.startswith("arn:") and record.document["arn"] != name):
            raise self._missing(kind, name)
        return record.name

    def _missing(self, kind: str, name: str) -> ValidationException:
        title = "ModelPackageGroup" if kind == MODEL_PACKAGE_GROUP else "ModelPackage"
        arn = name if name.startswith("arn:") else sagemaker_arn(kind, name, region=self._region)
        return ValidationException(f"{title} {arn} does not exist.")

    def _new_group(self, request: Mapping[str, Any], caller: str) -> PackageGroup:
        name = request["ModelPackageGroupName"]
        return PackageGroup(
            name=name,
            arn=sagemaker_arn(MODEL_PACKAGE_GROUP, name, region=self._region),
            request=dict(request),
            created_ms=self._clock.now_ms(),
            created_by=caller,
        )

    def _new_key(self, transaction: Transaction, request: Mapping[str, Any]) -> str:
        """Return the key of a new package, after taking its number from its group."""
        if "ModelPackageName" in request:
            key = str(request["ModelPackageName"])
            if transaction.get(MODEL_PACKAGE, key) is not None:
                arn = sagemaker_arn(MODEL_PACKAGE, key, region=self._region)
                raise ValidationException(f"Model Package already exists: {arn}; choose another name")
            return key
        group = request["ModelPackageGroupName"]
        name = self._existing(transaction, MODEL_PACKAGE_GROUP, group)
        record = transaction.update(MODEL_PACKAGE_GROUP, name, _numbered)
        assert record is not None
        return f"{name}/{record.document['last_version']}"


def _numbered(record: Record) -> Record:
    group = PackageGroup(**record.document)
    return group_record(replace(group, last_version=group.last_version + 1))


def _of_group(name: str) -> str:
    """Return the pattern of the keys of a group's packages."""
    return f"^{name}/"


def _check_names(request: Mapping[str, Any]) -> None:
    given = [name for name in ("ModelPackageName", "ModelPackageGroupName") if name in request]
    if len(given) != 1:
        raise ValidationException(
            f"{' and '.join(given) or 'Neither of them'} given, but exactly one is allowed: ModelPackageGroupName for a"
            " new version of a group, or ModelPackageName for an unversioned package"
        )


def _made_before(transaction: Transaction, token: str) -> RegisteredModel | None:
    """Return the package that a request with the same token created, if it still exists."""
    record = transaction.get(_REPEATABLE, token) if token else None
    package = transaction.get(MODEL_PACKAGE, record.document["key"]) if record is not None else None
    return None if package is None else RegisteredModel(**package.document)


def _token_record(package: RegisteredModel) -> Record:
    return Record(
        kind=_REPEATABLE,
        name=package.token,
        created_ms=package.created_ms,
        modified_ms=package.created_ms,
        document={"key": package.key},
    )


def _updated(package: RegisteredModel, request: Mapping[str, Any]) -> dict[str, Any]:
    members = dict(package.request)
    members |= {name: request[name] for name in _REPLACED if name in request}
    metadata = {**members.get("CustomerMetadataProperties", {}), **request.get("CustomerMetadataProperties", {})}
    for name in request.get("CustomerMetadataPropertiesToRemove", ()):
        metadata.pop(name, None)
    if metadata or "CustomerMetadataProperties" in members:
        members["CustomerMetadataProperties"] = metadata
    added = request.get("AdditionalInferenceSpecificationsToAdd", [])
    if added:
        check_additions(members, added)
        members["AdditionalInferenceSpecifications"] = [*members.get("AdditionalInferenceSpecifications", []), *added]
    return members
