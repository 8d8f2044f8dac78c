"""The key of Signature Version 4. Apart from the verification, whose import would slow completion in shells."""

import hmac
from functools import lru_cache

ALGORITHM = "AWS4-HMAC-SHA256"


@lru_cache(maxsize=512)
def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Derive the key for one day, region and service; cached, because all requests of a day use the same key.

    Args:
        date: ``YYYYMMDD``.
        service: Signing name of the service.

    Returns:
        32 bytes.
    """
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode("utf-8"), "sha256")
    return key
