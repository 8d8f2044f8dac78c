"""List and pin objects of remote S3 stores, for training data in buckets that this service does not hold.

Everything here uses the network: never call it in a transaction or in the event loop.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TypeVar

from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3, pattern_for
from tidemill.instance.remote_s3 import RemoteUnusable, remote_client

Result = TypeVar("Result")
_AT_ONCE = 16
_AHEAD = 256
_CHUNK_BYTES = 1 << 20
_MISSING = ("404", "NoSuchKey", "NotFound")


class RemoteListingFault(Exception):
    """A request to a remote S3 failed; the message names the S3 and says what to do."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """The current version of an object.

    Attributes:
        etag: ETag, with quotes, as S3 returns it.
    """

    key: str
    size_bytes: int
    etag: str


class RemoteStore:
    """One remote S3.

    Args:
        name: The pattern in the settings.
        remote: Its address and credentials, from the settings.

    Raises:
        RemoteFault: There are no credentials for the remote S3.
    """

    def __init__(self, name: str, remote: RemoteS3) -> None:
        self.name = name
        self.remote = remote
        try:
            self._client = remote_client(remote)
        except RemoteUnusable as error:
            raise RemoteListingFault(str(error)) from error

    def below(self, uri: S3Uri) -> Iterator[Pinned]:
        """Yield every object below a prefix, in the order of keys.

        Raises:
            RemoteFault: The bucket does not exist there, or cannot be listed.
        """
        with self._named(uri):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=uri.bucket, Prefix=uri.key):
                for found in page.get("Contents", ()):
                    yield Pinned(found["Key"], found["Size"], found["ETag"])

    def head(self, uri: S3Uri) -> Pinned | None:
        """Return an object, or None if it does not exist.

        Raises:
            RemoteFault: The request failed.
        """
        from botocore.exceptions import ClientError

        with self._named(uri):
            try:
                found = self._client.head_object(Bucket=uri.bucket, Key=uri.key)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in _MISSING:
                    return None
                raise
        return Pinned(uri.key, found["ContentLength"], found["ETag"])

    def fetch(self, uri: S3Uri, file: IO[bytes]) -> bool:
        """Copy a small object, e.g. a manifest, into ``file``; return False if it does not exist.

        Raises:
            RemoteFault: The object cannot be read.
        """
        from botocore.exceptions import ClientError

        with self._named(uri):
            try:
                body = self._client.get_object(Bucket=uri.bucket, Key=uri.key)["Body"]
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") in _MISSING:
                    return False
                raise
            for chunk in body.iter_chunks(_CHUNK_BYTES):
                file.write(chunk)
        file.flush()
        return True

    @contextmanager
    def _named(self, uri: S3Uri) -> Generator[None]:
        """Turn botocore's errors into messages for a FailureReason."""
        from botocore.exceptions import BotoCoreError, ClientError

        place = f"{self.remote.endpoint_url} (remote_s3 {self.name!r})"
        try:
            yield
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error.response.get("Error", {}).get("Code", "")
            if code == "NoSuchBucket":
                raise RemoteListingFault(f"the bucket of {uri} does not exist at {place}") from error
            advice = "; check its credentials and what they allow" if status in (400, 401, 403) else ""
            said = f"HTTP {status}" if code == str(status) else f"HTTP {status} {code}"  # HEAD has no error code
            raise RemoteListingFault(f"{uri} cannot be read from {place}: {said}{advice}") from error
        except BotoCoreError as error:
            raise RemoteListingFault(f"{uri} cannot be read from {place}: {error}; check its endpoint_url") from error


class Remotes:
    """The remote stores of the settings, each opened on first use.

    Create a new instance for each channel, because credentials may have changed since the last job.

    Args:
        remotes: Addresses and credentials, by bucket name or pattern.
    """

    def __init__(self, remotes: Mapping[str, RemoteS3]) -> None:
        self._remotes = remotes
        self._opened: dict[str, RemoteStore] = {}

    def store_of(self, bucket: str) -> RemoteStore | None:
        """Return the remote store of a bucket, or None if the settings name none.

        Raises:
            RemoteFault: There are no credentials for the store.
        """
        pattern = pattern_for(bucket, self._remotes)
        if pattern is not None and pattern not in self._opened:
            self._opened[pattern] = RemoteStore(pattern, self._remotes[pattern])
        return None if pattern is None else self._opened[pattern]


def in_order(items: Iterable[Result | Callable[[], Result]]) -> Iterator[Result]:
    """Yield the items in order, with callables replaced by their results; several calls run at once.

    Raises:
        Exception: The exception of the first call that failed.
    """
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remote-s3")
    waiting: deque[Future[Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(item) if callable(item) else _done(item))
            if len(waiting) >= _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _done(value: Result) -> Future[Result]:
    future: Future[Result] = Future()
    future.set_result(value)
    return future
