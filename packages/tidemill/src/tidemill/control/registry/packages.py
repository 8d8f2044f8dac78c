"""Model packages and their groups: create, look up, list, update, delete."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.named_resources import GivenTags, NamedResources
from tidemill.control.registry.containers import check_additions, check_specifications
from tidemill.control.resources import MODEL_PACKAGE, MODEL_PACKAGE_GROUP, package_record, page_of, record_of
from tidemill.control.tags import check_tags
from tidemill.core import faults
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


class ModelRegistry(NamedResources):
    """The model packages of the account and their groups. Arguments are those of `NamedResources`."""

    async def create_group(self, request: Mapping[str, Any], *, caller: str, tags: GivenTags = ()) -> PackageGroup:
        """Create an empty group.

        Args:
            request: The members of CreateModelPackageGroup without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: The name is taken.
        """
        name = request["ModelPackageGroupName"]
        group = PackageGroup(
            name=name,
            arn=self._arn(MODEL_PACKAGE_GROUP, name),
            request=dict(request),
            created_ms=self._clock.now_ms(),
            created_by=caller,
        )
        await self._insert(record_of(MODEL_PACKAGE_GROUP, group), tags)
        return group

    async def create_package(self, request: Mapping[str, Any], *, caller: str, tags: GivenTags = ()) -> RegisteredModel:
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
                arn=self._arn(MODEL_PACKAGE, key),
                request=members,
                created_ms=self._clock.now_ms(),
                created_by=caller,
                token=token,
            )
            self._put(transaction, package_record(package), checked_tags)
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
            package = RegisteredModel.from_document(record.document)
            return package_record(replace(package, request=_updated(package, request), modified_by=caller))

        def update(transaction: Transaction) -> Record:
            key = self._found(transaction, MODEL_PACKAGE, request["ModelPackageArn"]).name
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

        def check(transaction: Transaction, record: Record) -> None:
            self._found(transaction, MODEL_PACKAGE, name)
            transaction.delete(_REPEATABLE, record.document.get("token", ""))

        await self._delete(MODEL_PACKAGE, package_key(name), check)

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

        def check(transaction: Transaction, record: Record) -> None:
            self._found(transaction, MODEL_PACKAGE_GROUP, name)
            if page.records or record.document["last_version"] != last_version:
                raise ConflictException(
                    f"Model Package Group {record.document['arn']} cannot be deleted because it still contains Model"
                    " Packages; delete those first"
                )

        await self._delete(MODEL_PACKAGE_GROUP, key, check)

    def group(self, name: str) -> Record:
        """Return the stored record of a group.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such group.
        """
        return self.record(MODEL_PACKAGE_GROUP, name)

    def package(self, name: str) -> Record:
        """Return the stored record of a package.

        Args:
            name: Name or ARN.

        Raises:
            ValidationException: There is no such package.
        """
        return self.record(MODEL_PACKAGE, name)

    async def list(self, kind: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of summaries, and the token of the next page (None on the last page).

        Args:
            kind: `MODEL_PACKAGE` or `MODEL_PACKAGE_GROUP`.
            query: Filters, order, size and position of the page.

        Raises:
            ValidationException: The service has not issued this token for this query.
        """
        return await page_of(self._records, kind, query)

    def record(self, kind: str, name: str) -> Record:
        """Return the stored record of a package or a group, by its name or ARN."""
        return self._found(self._records, kind, name)

    def _found(self, reads: RecordStore | Transaction, kind: str, name: str) -> Record:
        record = reads.get(kind, package_key(name))
        if record is None or (name.startswith("arn:") and record.document["arn"] != name):
            raise self._missing(kind, name)
        return record

    def _missing(self, kind: str, name: str) -> ValidationException:
        title = "ModelPackageGroup" if kind == MODEL_PACKAGE_GROUP else "ModelPackage"
        return ValidationException(
            f"{title} {name if name.startswith('arn:') else self._arn(kind, name)} does not exist."
        )

    def _taken(self, record: Record) -> ValidationException:
        if record.kind == MODEL_PACKAGE:
            return ValidationException(f"Model Package already exists: {record.summary['arn']}; choose another name")
        return ValidationException(
            f"Model Package Group already exists: {record.summary['arn']}; choose another name, or add versions to it"
        )

    def _new_key(self, transaction: Transaction, request: Mapping[str, Any]) -> str:
        """Return the key of a new package, after taking its number from its group."""
        if "ModelPackageName" in request:
            return str(request["ModelPackageName"])
        group = request["ModelPackageGroupName"]
        name = self._found(transaction, MODEL_PACKAGE_GROUP, group).name
        record = transaction.update(MODEL_PACKAGE_GROUP, name, _numbered)
        assert record is not None
        return f"{name}/{record.document['last_version']}"


def _numbered(record: Record) -> Record:
    group = PackageGroup.from_document(record.document)
    return record_of(MODEL_PACKAGE_GROUP, replace(group, last_version=group.last_version + 1))


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
    return None if package is None else RegisteredModel.from_document(package.document)


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
