"""Pages of the summaries that a function accepts, in the order of the store.

The store's own filters are names, status and times. For any other filter, the walk reads summaries in blocks, in a
thread, and asks the function about each. A page's token holds the sort key of its last record, so records that are
added or removed between two pages cause neither duplicates nor gaps.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.errors import ValidationException
from tidemill.store.records.base import Page, Query, RecordStore, Summary

_BLOCK_ROWS = 250
_DIGEST_BYTES = 8

Position = tuple[Any, str]
"""Sort value and name of the last record of a page."""


async def filtered_page(
    records: RecordStore,
    kind: str,
    query: Query,
    *,
    accepts: Callable[[Summary], bool],
    identity: Mapping[str, Any],
    with_documents: bool = False,
) -> tuple[tuple[Summary, ...], str | None]:
    """Return one page of summaries, and the token of the next page (None on the last page).

    Args:
        query: Order by name, creation or change; filters, size; and in ``after`` the token of the page before.
        accepts: Whether a record is listed.
        identity: The members of the request that determine what ``accepts`` does; a token is valid for the same only.
        with_documents: Whether ``accepts`` gets records with their documents, which costs more.

    Raises:
        ValidationException: The token was not issued for this listing.
    """
    listing = {**identity, "kind": kind, "sort": query.sort_by, "descending": query.descending}
    after = position_in(query.after, listing)
    found: list[Summary] = []
    async for each in walk(records, kind, replace(query, after=None), after=after, with_documents=with_documents):
        if not accepts(each):
            continue
        if len(found) == query.limit:
            return tuple(found), next_token((_value(found[-1], query), found[-1].name), listing)
        found.append(each)
    return tuple(found), None


async def walk(
    records: RecordStore, kind: str, query: Query, *, after: Position | None = None, with_documents: bool = False
) -> AsyncIterator[Summary]:
    """Yield the summaries of all records that a query selects, in its order.

    Args:
        query: Order and filters; its limit is not used.
        after: Where to continue: the sort value and the name of the record before. Default: at the beginning.
        with_documents: Whether to yield whole records, without those that are damaged. Default: summaries.
    """
    block = replace(_from(query, after), limit=_BLOCK_ROWS)
    while True:
        page: Page[Any] = await (records.list(kind, block) if with_documents else records.summaries(kind, block))
        for each in page.records:
            if after is None or _is_beyond((_value(each, query), each.name), after, query):
                yield each
        if page.next_token is None:
            return
        block = replace(block, after=page.next_token)


def position_in(token: str | None, listing: Mapping[str, Any]) -> Position | None:
    """Return the position in a page token.

    Args:
        token: The token; None for the first page.

    Raises:
        ValidationException: The token was not issued for this listing.
    """
    if token is None:
        return None
    try:
        digest, value, name = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (binascii.Error, ValueError, TypeError):
        digest, value, name = "", None, ""
    if digest != _digest(listing) or not isinstance(name, str):
        raise ValidationException(
            f"Value {token[:64]!r} at 'nextToken' is not valid: it is not a token of this listing; pass the token of"
            " the page before unchanged, with the same filters and order, or none to begin again"
        )
    return value, name


def next_token(position: Position, listing: Mapping[str, Any]) -> str:
    """Return the token with which a listing continues.

    Args:
        position: Sort value and name of the page's last record.
    """
    return base64.urlsafe_b64encode(json.dumps([_digest(listing), *position]).encode()).decode()


def _digest(listing: Mapping[str, Any]) -> str:
    text = json.dumps(listing, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _value(summary: Summary, query: Query) -> Any:
    return {"created": summary.created_ms, "modified": summary.modified_ms}.get(query.sort_by, "")


def _is_beyond(key: Position, after: Position, query: Query) -> bool:
    return key < tuple(after) if query.descending else key > tuple(after)


def _from(query: Query, after: Position | None) -> Query:
    """Return the query from the position on, if the store can find it by an index."""
    if after is None or query.sort_by not in ("created", "modified"):
        return query
    bound = f"{query.sort_by}_{'before' if query.descending else 'after'}_ms"
    given = getattr(query, bound)
    nearest = min if query.descending else max
    return replace(query, **{bound: after[0] if given is None else nearest(given, after[0])})
