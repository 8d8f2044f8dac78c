"""The remote S3 stores that an instance reads from: who signs its requests, and who is believed to be whom.

Costs nothing until it is asked: an instance without remote data loads neither boto3 nor TLS.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.executors.base import RemoteObject
from tidemill.executors.remote_s3 import presigned_get, remote_client, tls_context

if TYPE_CHECKING:
    import ssl

__all__ = ["RemoteStores"]


class RemoteStores:
    """The remote stores of an instance. May be used by several threads.

    Args:
        remotes: By the name that entries have for them.
    """

    def __init__(self, remotes: Mapping[str, RemoteS3]) -> None:
        self._remotes = remotes
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._tls: ssl.SSLContext | None = None

    def __bool__(self) -> bool:
        return bool(self._remotes)

    def endpoint(self, entry: RemoteObject) -> str:
        """The URL of the store that has ``entry``."""
        return self._remotes[entry.remote].endpoint_url

    def link(self, entry: RemoteObject) -> str:
        """A URL that reads ``entry``, good for a request that is made now.

        Raises:
            RemoteUnusable: There are no credentials.
        """
        uri = S3Uri.parse(entry.uri)
        return presigned_get(self._client(entry.remote), uri.bucket, uri.key)

    def tls(self) -> "ssl.SSLContext":
        """By which servers are verified."""
        with self._lock:
            self._tls = self._tls or tls_context()
            return self._tls

    def _client(self, name: str) -> Any:
        with self._lock:
            if name not in self._clients:
                self._clients[name] = remote_client(self._remotes[name])
            return self._clients[name]
