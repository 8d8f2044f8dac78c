"""The canonical text of a request that Signature Version 4 signs.

S3 signs the path as sent; every other service signs the normalized path, encoded once more. A plus sign in a query is
not decoded to a space.
"""

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote_to_bytes

from tidemill.wire.request import Request

__all__ = ["canonical_headers", "canonical_query", "canonical_request", "path_candidates"]

_SPACES = re.compile(r" {2,}")
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9\-_.~]*", re.ASCII)


def canonical_request(
    request: Request, *, path: str, query: str, signed: str, names: Iterable[str], payload: str
) -> bytes:
    """Join the six parts.

    Args:
        request: The request with the signed headers.
        path: One of ``path_candidates``.
        query: The result of ``canonical_query``.
        signed: The signed header names, joined by semicolons, as the client wrote them.
        names: The same names, sorted.
        payload: The hash of the body, or the keyword in its place.
    """
    headers = canonical_headers(request, names)
    return f"{request.method}\n{path}\n{query}\n{headers}\n{signed}\n{payload}".encode("latin-1", "replace")


def canonical_headers(request: Request, names: Iterable[str]) -> str:
    """Return one line per name; runs of spaces become one space."""
    lines: list[str] = []
    for name in names:
        value = request.headers.get(name, "").strip()
        lines.append(f"{name}:{_SPACES.sub(' ', value) if '  ' in value else value}\n")
    return "".join(lines)


def canonical_query(request: Request, *, leave_out: str | None = None) -> str:
    """Return the query parameters, encoded uniformly and sorted.

    Args:
        request: The request.
        leave_out: Name of the parameter with the signature itself.
    """
    if not request.query_string:
        return ""
    pairs = [(_recode(name), _recode(value)) for name, _, value in request.query_pairs if name != leave_out]
    pairs.sort()
    return "&".join(f"{name}={value}" for name, value in pairs)


def path_candidates(raw_path: str, *, is_s3: bool) -> list[str]:
    """Return the canonical forms that a client may have signed for this path, the most likely one first.

    For S3 both the bytes as sent and their canonical encoding are tried: clients differ in the characters that they
    encode, and both forms mean the same key.
    """
    if not is_s3:
        return [quote(_normalise(raw_path), safe="/-_.~")]
    tidy = quote(unquote_to_bytes(raw_path.encode("latin-1")), safe="/-_.~")
    return [raw_path] if tidy == raw_path else [raw_path, tidy]


def _normalise(path: str) -> str:
    if path == "/" or not ("//" in path or "/." in path):
        return path
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if kept:
                kept.pop()
        elif segment not in ("", "."):
            kept.append(segment)
    return "/" + "/".join(kept) + ("/" if kept and path.endswith("/") else "")


def _recode(text: str) -> str:
    if _PLAIN_QUERY.fullmatch(text):
        return text
    return quote(unquote_to_bytes(text.encode("latin-1")), safe="-_.~")
