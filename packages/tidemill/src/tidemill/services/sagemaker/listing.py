"""Parameters that list operations share: sorting, filters, page size, token."""

from collections.abc import Mapping
from typing import Any, Literal

from tidemill.services.times import milliseconds
from tidemill.store.records.base import Query

__all__ = ["query_of"]

_SORTS: Mapping[str, Literal["name", "created", "status"]] = {
    "Name": "name",
    "CreationTime": "created",
    "Status": "status",
}


def query_of(request: Mapping[str, Any]) -> Query:
    """Return the query of a List request. Without a SortOrder the newest come first, as on SageMaker."""
    statuses = request.get("StatusEquals")
    return Query(
        sort_by=_SORTS[request.get("SortBy", "CreationTime")],
        descending=request.get("SortOrder", "Descending") == "Descending",
        statuses=(statuses,) if statuses else (),
        name_contains=request.get("NameContains", ""),
        created_after_ms=milliseconds(request.get("CreationTimeAfter")),
        created_before_ms=milliseconds(request.get("CreationTimeBefore")),
        modified_after_ms=milliseconds(request.get("LastModifiedTimeAfter")),
        modified_before_ms=milliseconds(request.get("LastModifiedTimeBefore")),
        limit=request.get("MaxResults", 10),
        after=request.get("NextToken"),
    )
