"""Lineage: artifacts, each with its place, and their associations with each other and with runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.documents import Document

_ID_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageArtifact(Document):
    """Something that a run reads or makes, e.g. a data set or a chart, with its place.

    Attributes:
        id: Name of the record, from `artifact_id`.
        members: The members that describe it, by botocore's names.
        created_by: ARN of the caller who created it.
        modified_by: ARN of the caller who updated it last; empty if nobody has.
        associations: Number of associations that name it. It can be deleted without them only.
    """

    id: str
    arn: str
    members: Mapping[str, Any]
    created_ms: int
    created_by: str
    modified_by: str = ""
    associations: int = 0

    @property
    def name(self) -> str:
        """Its name, or without one its id."""
        return self.members.get("ArtifactName", self.id)

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show, and by which they are filtered."""
        shown = ("ArtifactName", "Source", "ArtifactType")
        return {"arn": self.arn, "shown": {name: self.members[name] for name in shown if name in self.members}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """An edge from one entity to another.

    Attributes:
        source: ARN of the entity where it begins, e.g. of a run that produced an artifact.
        destination: ARN of the entity where it ends.
        members: What lists show besides the ARNs, by botocore's names.
        created_by: ARN of the caller who created it.
    """

    source: str
    destination: str
    members: Mapping[str, str]
    created_ms: int
    created_by: str

    @property
    def key(self) -> str:
        """Name of its record: two entities have at most one association in each direction."""
        return f"{self.source} {self.destination}"

    def to_summary(self) -> dict[str, Any]:
        """Return the JSON-able form for the store, all of which lists show."""
        return {
            **self.members,
            "SourceArn": self.source,
            "DestinationArn": self.destination,
            "CreatedBy": self.created_by,
        }


def artifact_id(source: Mapping[str, Any]) -> str:
    """Return the id of the artifact at a place: there is one artifact for each place.

    Args:
        source: ``SourceUri`` and, in any order, ``SourceTypes``, e.g. the ETag of the object.
    """
    types = sorted((each["SourceIdType"], each["Value"]) for each in source.get("SourceTypes", ()))
    text = json.dumps([source["SourceUri"], types])
    return hashlib.blake2b(text.encode(), digest_size=_ID_BYTES).hexdigest()
