"""Access to the remote S3 stores of an instance: signed URLs, and TLS verification of the servers.

boto3 and TLS are imported at first use, since instances without remote data need neither.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.instance.remote_s3 import presigned_get, remote_client, tls_context
from tidemill.instance.spec import SERVICE, RemoteObject

if TYPE_CHECKING:
    import ssl


class RemoteStores:
    """The remote stores of an instance. May be used by several threads.

    Args:
        remotes: The stores, by the names in entries.
        job_keys: ``AWS_*`` variables with the keys of the job, to read the service's S3 from another machine. Default:
            none.
        connect_timeout_s: Longest time until a connection is made. Default: 10 s.
    """

    def __init__(
        self,
        remotes: Mapping[str, RemoteS3],
        job_keys: Mapping[str, str] | None = None,
        *,
        connect_timeout_s: float = 10,
    ) -> None:
        self.connect_timeout_s = connect_timeout_s
        self._remotes = remotes
        self._job_keys = job_keys
        self._lock = threading.Lock()
        self._clients: dict[str, Any] = {}
        self._tls: ssl.SSLContext | None = None

    def __bool__(self) -> bool:
        return bool(self._remotes)

    def endpoint(self, entry: RemoteObject) -> str:
        """Return the URL of the store that has ``entry``."""
        return self._remotes[entry.remote].endpoint_url

    def link(self, entry: RemoteObject) -> str:
        """Return a signed URL to read ``entry``. It expires soon, so use it immediately.

        Raises:
            RemoteUnusable: There are no credentials for the store.
        """
        uri = S3Uri.parse(entry.uri)
        return presigned_get(self.client(entry.remote), uri.bucket, uri.key)

    def tls(self) -> "ssl.SSLContext":
        """Return the TLS context that verifies servers."""
        with self._lock:
            self._tls = self._tls or tls_context()
            return self._tls

    def client(self, name: str) -> Any:
        """Return boto3's client of a store.

        Raises:
            RemoteUnusable: There are no credentials for the store.
        """
        with self._lock:
            if name not in self._clients:
                keys = self._job_keys if name == SERVICE else None
                self._clients[name] = remote_client(self._remotes[name], keys, connect_timeout_s=self.connect_timeout_s)
            return self._clients[name]
