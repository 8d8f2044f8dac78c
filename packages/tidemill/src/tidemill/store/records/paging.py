"""Page tokens: the position at which a listing continues, signed so that clients cannot forge one.

A token is the sort key of the last row examined, signed together with its query. It holds no offset, so every page
costs the same, and rows added between two pages cause neither duplicates nor gaps.
"""

import base64
import binascii
import hmac
import json
from collections.abc import Sequence

SortKey = tuple[str | int, ...]

MAC_BYTES = 16


class PageTokens:
    """Makes and checks tokens.

    Args:
        secret: Known to this store only; tokens of other stores are refused.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, query: Sequence[object], key: SortKey) -> str:
        """Return the token with which ``query`` continues after ``key``.

        Args:
            query: What the next request must repeat; part of the signature.
            key: Key of the page's last row.

        Returns:
            Text that no client can change.
        """
        payload = json.dumps(key, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(query, payload) + payload).decode().rstrip("=")

    def read(self, query: Sequence[object], token: str) -> SortKey:
        """Return the key in ``token``.

        Raises:
            ValueError: The token was not made here for the same query.
        """
        try:
            data = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        mac, payload = data[:MAC_BYTES], data[MAC_BYTES:]
        if not payload or not hmac.compare_digest(mac, self._mac(query, payload)):
            raise ValueError(
                f"{token[:64]!r} is not a page token of this listing; pass the token of the page before unchanged,"
                " with the same filters and order, or none to begin again"
            )
        return tuple(json.loads(payload))

    def _mac(self, query: Sequence[object], payload: bytes) -> bytes:
        bound = json.dumps(query).encode()
        return hmac.digest(self._secret, len(bound).to_bytes(8, "big") + bound + payload, "sha256")[:MAC_BYTES]
