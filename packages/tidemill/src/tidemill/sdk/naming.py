"""Names that the SDK generates: ``BASE-YYYY-MM-DD-HH-MM-SS-mmm``, in UTC, at most 63 characters.

Names of tuning jobs have at most 32, so their time stamps are shorter: ``YYMMDD-HHMMSS``. The functions of AWS's SDK
for names are here, too.
"""

import re
import secrets
import time
from typing import Any

from tidemill.core.images import parse_image
from tidemill.sdk.variable import known

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
    stamp = _stamp(time.time_ns() // 1_000_000 if now_ms is None else now_ms)
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


def image_base(image_uri: Any) -> str:
    """Return a base derived from an image's repository name, with other characters replaced by ``-``.

    Args:
        image_uri: URI of the image.
    """
    return re.sub(r"[^a-zA-Z0-9]+", "-", parse_image(known(image_uri) or "").repository).strip("-") or "training"


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


def sagemaker_timestamp() -> str:
    """Return the time stamp of generated names.

    Returns:
        ``YYYY-MM-DD-HH-MM-SS-mmm`` in UTC.
    """
    return _stamp(time.time_ns() // 1_000_000)


def sagemaker_short_timestamp() -> str:
    """Return the time stamp of short generated names.

    Returns:
        ``YYMMDD-HHMM`` in UTC.
    """
    return time.strftime("%y%m%d-%H%M", time.gmtime())


def name_from_base(base: str, max_length: int = _MAX_CHARS, short: bool = False) -> str:
    """Return a text, truncated if necessary, with a time stamp.

    Args:
        base: First part of the name.
        max_length: Maximum number of characters. Default: 63.
        short: Whether the time stamp is a short one. Default: False.

    Returns:
        The name.
    """
    stamp = sagemaker_short_timestamp() if short else sagemaker_timestamp()
    return f"{base[: max_length - len(stamp) - 1]}-{stamp}"


def unique_name_from_base(base: str, max_length: int = _MAX_CHARS) -> str:
    """Return a text, truncated if necessary, with the seconds since the epoch and four random digits.

    Args:
        base: First part of the name.
        max_length: Maximum number of characters. Default: 63.

    Returns:
        The name.
    """
    tail = f"{int(time.time())}-{secrets.token_hex(2)}"
    return f"{base[: max_length - len(tail) - 1]}-{tail}"


def name_from_image(image: str, max_length: int = _MAX_CHARS) -> str:
    """Return the repository of an image with a time stamp.

    Args:
        image: URI of the image.
        max_length: Maximum number of characters. Default: 63.

    Returns:
        The name.
    """
    return name_from_base(base_name_from_image(image), max_length=max_length)


def base_name_from_image(image: Any, default_base_name: str | None = None) -> str:
    """Return the repository of an image.

    Args:
        image: URI of the image, or a parameter of a pipeline with a default.
        default_base_name: Result for a parameter without a default. Default: ``base_name``.

    Returns:
        The name of the repository.

    Example:
        >>> base_name_from_image("000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311")
        'tensorflow-training'
    """
    uri = known(image)
    return uri.rpartition("/")[2].partition(":")[0] if uri else default_base_name or "base_name"


def base_from_name(name: str) -> str:
    """Return a generated name without its time stamp.

    Args:
        name: Name of a job, model or endpoint.

    Returns:
        The first part; names without a time stamp are returned unchanged.

    Example:
        >>> base_from_name("digits-1970-01-01-00-00-00-000")
        'digits'
    """
    return re.sub(r"^(.+)-(\d{4}(-\d{2}){5}-\d{3}|\d{6}-\d{4}).*", r"\1", name)


def get_short_version(framework_version: str) -> str:
    """Return the first two numbers of a version.

    Args:
        framework_version: For example ``2.21.0``.

    Returns:
        For example ``2.21``.
    """
    return ".".join(framework_version.split(".")[:2])


def to_string(obj: Any) -> Any:
    """Return a value as a text; a variable of a pipeline as one whose value is a text.

    Args:
        obj: Any value.

    Returns:
        A text or a variable.
    """
    return obj.to_string() if hasattr(obj, "to_string") else str(obj)


def _stamp(moment_ms: int) -> str:
    return time.strftime("%Y-%m-%d-%H-%M-%S", time.gmtime(moment_ms // 1000)) + f"-{moment_ms % 1000:03d}"
