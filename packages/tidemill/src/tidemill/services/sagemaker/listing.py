"""What list operations share: sorting, filters, page size, token; and how they show a damaged record."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from tidemill.errors import ValidationException
from tidemill.services.pages import position_of
from tidemill.services.times import milliseconds, when
from tidemill.store.records.base import Query, Summary

T = TypeVar("T")

_DAMAGED = "Damaged"

_SORTS: Mapping[str, Literal["name", "created", "status"]] = {
    "Name": "name",
    "CreationTime": "created",
    "Status": "status",
}


def query_of(request: Mapping[str, Any], *, name_pattern: str = "") -> Query:
    """Return the query of a List request. Without a SortOrder the newest come first, as on SageMaker.

    Args:
        request: Members of a List request, in botocore's names.
        name_pattern: Regular expression that is found in the names. Default: every name.
    """
    statuses = request.get("StatusEquals")
    return Query(
        sort_by=_SORTS[request.get("SortBy", "CreationTime")],
        descending=request.get("SortOrder", "Descending") == "Descending",
        statuses=(statuses,) if statuses else (),
        name_contains=request.get("NameContains", ""),
        name_pattern=name_pattern,
        created_after_ms=milliseconds(request.get("CreationTimeAfter")),
        created_before_ms=milliseconds(request.get("CreationTimeBefore")),
        modified_after_ms=milliseconds(request.get("LastModifiedTimeAfter")),
        modified_before_ms=milliseconds(request.get("LastModifiedTimeBefore")),
        limit=request.get("MaxResults", 10),
        after=request.get("NextToken"),
    )


def page_of_rows(
    rows: Sequence[T], request: Mapping[str, Any], *, listing: str, size: int
) -> tuple[Sequence[T], dict[str, str]]:
    """Return one page of rows in memory, and the member NextToken of the reply unless it is the last page.

    Args:
        request: Members of a List request: NextToken and MaxResults.
        listing: What determines the rows and their order; a token is valid for the same only.
        size: Rows of a page, unless the request says it.

    Raises:
        ValidationException: The token was not issued for this listing.
    """
    token = request.get("NextToken") or f"{listing}:0"
    head, _, place = token.rpartition(":")
    begin = position_of(place)
    if head != listing or begin is None:
        raise ValidationException(
            f"Value {token!r} at 'nextToken' is not valid: it is not the token of an earlier page of the same list"
        )
    end = begin + request.get("MaxResults", size)
    return rows[begin:end], {"NextToken": f"{listing}:{end}"} if end < len(rows) else {}


def page_reply(member: str, rows: Sequence[Mapping[str, Any]], token: str | None) -> dict[str, Any]:
    """Return the reply with one page of a list.

    Args:
        member: The member that has the rows.
        token: Token of the next page; None after the last one.
    """
    return {member: rows, **({"NextToken": token} if token else {})}


def row_of(title: str, resource: Summary, *, changes: bool = True, status: bool = True) -> dict[str, Any]:
    """Return the members that resources of all kinds have in lists, e.g. ``ModelName``, ``ModelArn``, CreationTime.

    Args:
        title: Beginning of the members' names.
        resource: A row of the list.
        changes: Whether the kind has a LastModifiedTime.
        status: Whether the kind has a status.
    """
    return {
        f"{title}Name": resource.name,
        f"{title}Arn": arn_of(resource),
        "CreationTime": when(resource.created_ms),
        **({"LastModifiedTime": when(resource.modified_ms)} if changes else {}),
        **({f"{title}Status": status_of(resource)} if status else {}),
    }


def status_of(summary: Summary) -> str:
    """Return the status to list: ``Damaged`` for a record that fails its checksum, whose other values may be wrong.

    Args:
        summary: A row of the list.
    """
    return _DAMAGED if summary.is_damaged else summary.status


def arn_of(summary: Summary) -> str:
    """Return the ARN to list; empty if the record is damaged and has none.

    Args:
        summary: A row of the list.
    """
    arn = summary.summary.get("arn") if summary.is_damaged else summary.summary["arn"]
    return arn if isinstance(arn, str) else ""
