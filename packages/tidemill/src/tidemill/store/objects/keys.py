"""Check object keys: any text of at most 1,024 bytes that a listing can show. A key never becomes a path."""

import re

from tidemill.errors import AwsError
from tidemill.store.objects.errors import InvalidArgument

__all__ = ["check_key"]

KEY_MAX_BYTES = 1024

# Characters that XML 1.0 cannot contain, so that no listing could show them.
_UNLISTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def check_key(key: str) -> None:
    """Refuse a text that cannot be a key.

    Raises:
        AwsError: KeyTooLongError: ``key`` has more than 1,024 bytes as UTF-8.
        InvalidArgument: ``key`` is empty, or contains characters that no listing can show.
    """
    if not key or _UNLISTABLE.search(key):
        raise InvalidArgument(
            f"{key!r} cannot be a key: it must not be empty or hold control characters other than tab and line ends"
        )
    size_bytes = len(key.encode())
    if size_bytes > KEY_MAX_BYTES:
        raise AwsError(
            f"the key has {size_bytes} bytes as UTF-8; at most {KEY_MAX_BYTES} are allowed",
            code="KeyTooLongError",
            status=400,
            members={"Size": size_bytes, "MaxSizeAllowed": KEY_MAX_BYTES},
        )
