"""Names that the SDK generates: ``BASE-YYYY-MM-DD-HH-MM-SS-mmm``, in UTC, at most 63 characters.

Names of tuning jobs have at most 32, so their time stamps are shorter: ``YYMMDD-HHMMSS``.
"""

import re
import time

from tidemill.core.images import parse_image

__all__ = ["base_of", "check_name", "image_base", "timestamped", "tuning_name"]

_MAX_CHARS = 63
_MAX_TUNING_CHARS = 32
_LEGAL = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_STAMP = re.compile(r"-\d{4}-\d{2}-\d{2}-\d{2}-\d{2}-\d{2}-\d{3}$")


def timestamped(base: str, *, now_ms: int | None = None) -> str:
    """Return ``base``, truncated if necessary, with a time stamp.

    Args:
        base: First part of the name.
        now_ms: Time in milliseconds since the epoch. Default: now.

    Example:
        >>> timestamped("digits", now_ms=0)
        'digits-1970-01-01-00-00-00-000'
    """
    moment_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(moment_ms // 1000)) + f"-{moment_ms % 1000:03d}"
    return f"{base[: _MAX_CHARS - len(stamp) - 1].rstrip('-')}-{stamp}"


def tuning_name(base: str) -> str:
    """Return ``base``, truncated if necessary, with a short time stamp.

    Args:
        base: First part of the name.
    """
    stamp = time.strftime("%y%m%d-%H%M%S", time.gmtime())
    return f"{base[: _MAX_TUNING_CHARS - len(stamp) - 1].rstrip('-')}-{stamp}"


def base_of(name: str) -> str:
    """Return a name without the time stamp of `timestamped`; names without one are returned unchanged.

    Args:
        name: Name of a job, model or endpoint.
    """
    return _STAMP.sub("", name)


def image_base(image_uri: str) -> str:
    """Return a base derived from an image's repository name, with other characters replaced by ``-``.

    Args:
        image_uri: URI of the image.
    """
    return re.sub(r"[^a-zA-Z0-9]+", "-", parse_image(image_uri).repository).strip("-") or "training"


def check_name(argument: str, name: str) -> str:
    """Return ``name`` if SageMaker allows it.

    Raises:
        ValueError: SageMaker does not allow it; the message names ``argument`` and the allowed characters.
    """
    if not _LEGAL.fullmatch(name):
        raise ValueError(
            f"{argument}={name!r} is not a legal name; allowed are 1-63 characters of a-z, A-Z, 0-9 and '-',"
            " beginning and ending with a letter or digit"
        )
    return name
