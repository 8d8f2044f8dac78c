"""Which resource a request target names. Paths of TF Serving are matched without regard to case."""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from tidemill_serving.errors import invalid

__all__ = ["ModelTarget", "model_target", "path_of", "version_number"]

_NAME = r"(?P<name>[^/:]+)"
_VERSION = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_CALL = re.compile(rf"/v1/models/{_NAME}{_VERSION}:(?P<verb>predict|classify|regress)", re.IGNORECASE)
_LOOK = re.compile(rf"/v1/models/{_NAME}{_VERSION}(?P<verb>/metadata)?", re.IGNORECASE)
_CACHED_TARGETS = 512
_MAX_DIGITS = 19
_SHOWN_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A model, or one version of it, and what is asked of it.

    Attributes:
        verb: ``predict``, ``classify``, ``regress`` for POST; ``status``, ``metadata`` for GET.
    """

    name: str
    version: int | None
    verb: str


@lru_cache(maxsize=_CACHED_TARGETS)
def path_of(target: bytes) -> str:
    """The path of a request target, without query; ``/tfs`` in front of a TF Serving path is taken off."""
    path = target.partition(b"?")[0].decode("latin-1")
    if path.startswith(("http://", "https://")):
        path = "/" + path.split("/", 3)[3] if path.count("/") >= 3 else "/"
    return path.removeprefix("/tfs") if path.lower().startswith("/tfs/v1/") else path


@lru_cache(maxsize=_CACHED_TARGETS)
def model_target(method: bytes, path: str) -> ModelTarget:
    """Read a path below ``/v1/``.

    Raises:
        RequestError: INVALID_ARGUMENT, the path or the method is not one of TF Serving's, or a label is named that no
            version carries.
    """
    match = (_CALL if method == b"POST" else _LOOK).fullmatch(path) if method in (b"POST", b"GET", b"HEAD") else None
    if match is None:
        raise invalid(f"Malformed request: {method.decode('latin-1')} {path}")
    if match["label"] is not None:
        raise invalid(f"Unrecognized servable version label: {unquote(match['label'])}")
    verb = (match["verb"] or "/status").lower().removeprefix("/")
    version = version_number(match["version"]) if match["version"] else None
    return ModelTarget(unquote(match["name"]), version, verb)


def version_number(digits: str) -> int:
    """Read the number of a version.

    Raises:
        RequestError: INVALID_ARGUMENT, it is no number that a 64-bit integer holds.
    """
    is_number = digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) <= _MAX_DIGITS
    if not is_number or int(digits) >= 2**63:
        raise invalid(f"Failed to convert version: {digits[:_SHOWN_CHARACTERS]} to a number from 0 to {2**63 - 1}")
    return int(digits)
