"""Parse the path of a request. Paths of TF Serving are case-insensitive."""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from tidemill_serving.errors import invalid

_NAME = r"(?P<name>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_CALL = re.compile(rf"/v1/models/{_NAME}{_VERSION}:(?P<verb>predict|classify|regress)", re.IGNORECASE)
_LOOK = re.compile(rf"/v1/models/{_NAME}{_VERSION}(?P<verb>/metadata)?", re.IGNORECASE)
_CACHED_TARGETS = 512
_MAX_DIGITS = 19
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A model, or one version of it, and the requested method.

    Attributes:
        version: Requested version number; None means the label's version, or the highest without a label.
        label: Requested label, or None.
        verb: ``predict``, ``classify``, ``regress`` for POST; ``status``, ``metadata`` for GET.
    """

    name: str
    version: int | None
    label: str | None
    verb: str


@lru_cache(maxsize=_CACHED_TARGETS)
def path_of(target: bytes) -> str:
    """Return the path of a request target, without the query and without a ``/tfs`` before a TF Serving path.

    Args:
        target: Path and query, or an absolute URL.

    Returns:
        A path that begins with ``/``.
    """
    path = target.partition(b"?")[0].decode("latin-1")
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("/", 3)[3] if path.count("/") >= 3 else "/"
    return path.removeprefix("/tfs") if path.lower().startswith("/tfs/v1/") else path


@lru_cache(maxsize=_CACHED_TARGETS)
def model_target(method: bytes, path: str) -> ModelTarget:
    """Parse a path below ``/v1/``.

    Raises:
        RequestError: INVALID_ARGUMENT, the path or the method is not one of TF Serving's.
    """
    match = (_CALL if method == b"POST" else _LOOK).fullmatch(path) if method in (b"POST", b"GET", b"HEAD") else None
    if match is None:
        raise invalid(f"Malformed request: {method.decode('latin-1')} {path}")
    verb = (match["verb"] or "/status").lower().removeprefix("/")
    version = version_number(match["version"]) if match["version"] else None
    label = None if match["label"] is None else unquote(match["label"])
    return ModelTarget(unquote(match["name"]), version, label, verb)


def version_number(digits: str) -> int:
    """Parse a version number.

    Raises:
        RequestError: INVALID_ARGUMENT, the number does not fit into a signed 64-bit integer.
    """
    is_number = digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MAX_DIGITS
    if not is_number or int(digits) >= 2**63:
        raise invalid(f"Failed to convert version: {digits[:_SHOWN_CHARACTERS]} to a number from 0 to {2**63 - 1}")
    return int(digits)
