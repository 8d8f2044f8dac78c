"""Artifacts and their associations: create, look up, list, update, delete."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.named_resources import GivenTags, NamedResources, existing
from tidemill.control.resources import ARTIFACT, EXPERIMENT, TRIAL_COMPONENT, record_of
from tidemill.control.search.pages import filtered_page, next_token, position_in, walk
from tidemill.core.lineage import Association, LineageArtifact, artifact_id
from tidemill.errors import ResourceNotFound, ValidationException
from tidemill.store.records.base import Query, Record, Summary, Transaction

_ASSOCIATION = "association"
"""Kind of an association; its record is named ``SOURCE DESTINATION``, by the ARNs of its ends."""

_END = "association-end"
"""Kind of the record that has the names of a trial component's or experiment's associations. It is named by the ARN."""


class Lineage(NamedResources):
    """The artifacts of the account, and what is associated with them. Arguments are those of `NamedResources`."""

    async def create(self, request: Mapping[str, Any], *, caller: str, tags: GivenTags = ()) -> LineageArtifact:
        """Create an artifact.

        Args:
            request: The members of CreateArtifact without its tags.
            caller: ARN of the caller.
            tags: ``{"Key": ..., "Value": ...}`` each.

        Raises:
            ValidationException: There is an artifact with this Source. AWS's SDK looks for "already exists".
        """
        key, now = artifact_id(request["Source"]), self._clock.now_ms()
        arn = self._arn(ARTIFACT, key)
        artifact = LineageArtifact(id=key, arn=arn, members=request, created_ms=now, created_by=caller)

        await self._insert(record_of(ARTIFACT, artifact, name=key), tags)
        return artifact

    def _taken(self, record: Record) -> ValidationException:
        uri, arn = record.document["members"]["Source"]["SourceUri"], record.summary["arn"]
        return ValidationException(
            f"Artifact with Source {uri!r} already exists: {arn}; use it, or give other SourceTypes"
        )

    async def update(self, name: str, request: Mapping[str, Any], *, caller: str) -> LineageArtifact:
        """Replace the name of an artifact, add properties and remove some.

        Args:
            request: ``ArtifactName``, ``Properties``, ``PropertiesToRemove``.
            caller: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such artifact.
        """
        removed = set(request.get("PropertiesToRemove", ()))

        def change(artifact: LineageArtifact) -> LineageArtifact:
            members = dict(artifact.members)
            if "ArtifactName" in request:
                members["ArtifactName"] = request["ArtifactName"]
            merged = {**members.get("Properties", {}), **request.get("Properties", {})}
            members["Properties"] = {key: value for key, value in merged.items() if key not in removed}
            return replace(artifact, members=members, modified_by=caller)

        return await self._records.change(lambda transaction: _changed(transaction, name, change))

    async def delete(self, name: str) -> str:
        """Delete an artifact without associations, and its tags.

        Raises:
            ResourceNotFound: There is no such artifact.
            ValidationException: It has associations.
        """

        def check(transaction: Transaction, record: Record) -> None:
            artifact = LineageArtifact.from_document(record.document)
            if artifact.associations:
                raise ValidationException(
                    f"Artifact {artifact.arn!r} cannot be deleted: it has {artifact.associations} associations;"
                    " delete them first (DeleteAssociation; ListAssociations shows them)"
                )

        return await self._delete(ARTIFACT, name, check)

    async def list(
        self, query: Query, *, uri: str | None = None, kind: str | None = None
    ) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of artifacts, and the token of the next page.

        Args:
            uri: Only artifacts with this SourceUri.
            kind: Only artifacts of this ArtifactType.

        Raises:
            ValidationException: The token was not issued for this listing.
        """

        def accepts(artifact: Summary) -> bool:
            shown = artifact.summary.get("shown", {})
            return (uri is None or shown.get("Source", {}).get("SourceUri") == uri) and (
                kind is None or shown.get("ArtifactType") == kind
            )

        identity = {"uri": uri, "type": kind}
        return await filtered_page(self._records, ARTIFACT, query, accepts=accepts, identity=identity)

    async def associate(self, source: str, destination: str, *, kind: str | None, caller: str) -> None:
        """Associate two entities.

        Args:
            source: ARN of an artifact, a trial component or an experiment.
            destination: ARN of another.
            kind: The AssociationType; None without one.
            caller: ARN of the caller.

        Raises:
            ResourceNotFound: There is no such entity.
            ValidationException: They are associated. AWS's SDK looks for "already exists".
        """
        now = self._clock.now_ms()

        def insert(transaction: Transaction) -> None:
            members = _end(transaction, source, "Source") | _end(transaction, destination, "Destination")
            members |= {"AssociationType": kind} if kind else {}
            made = Association(
                source=source, destination=destination, members=members, created_ms=now, created_by=caller
            )
            if transaction.get(_ASSOCIATION, made.key) is not None:
                raise ValidationException(f"Association of {source!r} with {destination!r} already exists; use it")
            transaction.insert(
                Record(
                    kind=_ASSOCIATION,
                    name=made.key,
                    created_ms=now,
                    modified_ms=now,
                    document={},
                    summary=made.to_summary(),
                )
            )
            _note(transaction, made.key, now)

        await self._records.change(insert, grows=True)

    async def disassociate(self, source: str, destination: str) -> None:
        """Delete an association.

        Args:
            source: ARN of the entity where it begins.
            destination: ARN of the entity where it ends.

        Raises:
            ResourceNotFound: There is no such association.
        """

        def delete(transaction: Transaction) -> None:
            if not _delete_association(transaction, f"{source} {destination}"):
                raise ResourceNotFound(f"Association of {source!r} with {destination!r} does not exist.")

        await self._records.change(delete)

    async def associations(
        self, query: Query, *, filters: Mapping[str, str], order: str
    ) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of associations, and the token of the next page.

        Args:
            query: Bounds of the creation time, direction, size and position of the page.
            filters: Values that members must have, by botocore's names, e.g. ``{"SourceArn": ...}``.
            order: Member by which they are sorted; CreationTime for the time.

        Raises:
            ValidationException: The token was not issued for this listing.
        """
        listing = {**filters, "kind": _ASSOCIATION, "sort": order, "descending": query.descending}
        after = position_in(query.after, listing)

        def position(each: Summary) -> tuple[Any, str]:
            return (each.created_ms if order == "CreationTime" else each.summary.get(order, "")), each.name

        found = [
            each
            async for each in walk(self._records, _ASSOCIATION, replace(query, sort_by="created", after=None))
            if all(each.summary.get(member) == value for member, value in filters.items())
        ]
        found.sort(key=position, reverse=query.descending)
        if after is not None:
            passed = (position(each) < after if query.descending else position(each) > after for each in found)
            found = [each for each, is_beyond in zip(found, passed, strict=True) if is_beyond]
        page = tuple(found[: query.limit])
        return page, next_token(position(page[-1]), listing) if len(found) > len(page) else None


def _delete_association(transaction: Transaction, key: str) -> bool:
    """Delete an association by the name of its record. Returns whether there was one."""
    if transaction.delete(_ASSOCIATION, key) is None:
        return False
    _note(transaction, key, None)
    return True


def delete_associations(transaction: Transaction, arn: str) -> None:
    """Delete all associations of a trial component or an experiment, in both directions.

    Args:
        transaction: The transaction that deletes the entity, so that none is made meanwhile.
        arn: ARN of the entity.
    """
    end = transaction.get(_END, arn)
    for key in end.document["associations"] if end is not None else ():
        _delete_association(transaction, key)


def _changed(
    transaction: Transaction, name: str, change: Callable[[LineageArtifact], LineageArtifact]
) -> LineageArtifact:
    changed = change(LineageArtifact(**existing(transaction, ARTIFACT, name).document))
    transaction.update(ARTIFACT, name, lambda _: record_of(ARTIFACT, changed, name=name))
    return changed


def _end(transaction: Transaction, arn: str, side: str) -> dict[str, str]:
    """Return the name and type of an end of an association, after checking that it exists."""
    kind, _, name = arn.rpartition(":")[2].partition("/")
    if kind not in (ARTIFACT, TRIAL_COMPONENT, EXPERIMENT):  # actions and contexts do not exist here
        raise ResourceNotFound(f"{arn!r} does not exist.")
    document = existing(transaction, kind, name).document
    if document["arn"] != arn:
        raise ResourceNotFound(f"{arn!r} does not exist.")
    if kind == ARTIFACT:
        artifact = LineageArtifact.from_document(document)
        return {f"{side}Name": artifact.name, f"{side}Type": artifact.members["ArtifactType"]}
    job = document.get("source", {}).get("SourceType")
    return {f"{side}Name": name, **({f"{side}Type": job} if job else {})}


def _note(transaction: Transaction, key: str, created_ms: int | None) -> None:
    """Note at the ends of an association that it was made; or that it was deleted, without a time."""
    count = -1 if created_ms is None else 1
    for arn in dict.fromkeys(key.split(" ")):
        kind, _, name = arn.rpartition(":")[2].partition("/")
        if kind == ARTIFACT:
            _changed(transaction, name, lambda now: replace(now, associations=now.associations + count))
            continue
        end = transaction.get(_END, arn)
        known = set() if end is None else set(end.document["associations"])
        document = {"associations": sorted(known - {key} if created_ms is None else known | {key})}
        if end is not None:
            changed = replace(end, document=document)
            transaction.update(_END, arn, lambda _, changed=changed: changed)
        elif created_ms is not None:
            transaction.insert(
                Record(kind=_END, name=arn, created_ms=created_ms, modified_ms=created_ms, document=document)
            )
        if not document["associations"]:
            transaction.delete(_END, arn)
