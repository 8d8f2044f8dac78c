"""Fetch the versions of a model from S3.

A version is a numbered prefix that contains a SavedModel. It is downloaded into a temporary directory, and loaded when
it is complete. The files stay there as long as it is loaded, because a graph may read its assets at each run.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemill_serving.errors import StartFailed
from tidemill_serving.models import MAX_VERSION, MODEL_FILES, ModelVersion

SCHEME = "s3"


class S3Models:
    """A prefix of a bucket with a prefix for each version below it.

    Args:
        bucket: Name of the bucket.
        prefix: Prefix without the slash at its end; empty for the bucket itself.
    """

    def __init__(self, *, bucket: str, prefix: str) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.rstrip('/')}/" if prefix.strip("/") else ""
        self._known: set[int] = set()
        self._closed = False

    def find(self, name: str) -> tuple[ModelVersion, ...]:
        """Return the versions in the bucket; see `ModelSource`."""
        with _as_os_error(self._url("")):
            directories = reversed(self._directories())  # of 01/ and 1/, the first is served, as of local directories
            found = {number: directory for directory in directories if (number := _number(directory)) >= 0}
            self._known = {
                number
                for number, directory in found.items()
                if number in self._known or not set(MODEL_FILES).isdisjoint(self._files(directory))
            }
        return tuple(
            ModelVersion(name, number, Path(self._url(directory)))
            for number, directory in sorted(found.items())
            if number in self._known
        )

    def fetch(self, version: ModelVersion) -> ModelVersion:
        """Download a version into a directory of its own; see `ModelSource`."""
        directory = version.path.name
        target = Path(tempfile.mkdtemp(dir=self._downloads)) / directory
        fetched = replace(version, path=target, url=self._url(directory))
        try:
            with _as_os_error(self._url(directory)):
                files = self._files(directory)
                self._check_paths(directory, files)
                for file in files:
                    if self._closed:  # a directory that is made after `close` would stay
                        raise StartFailed("the server stops")
                    (target / file).parent.mkdir(parents=True, exist_ok=True)
                    self._client.download_file(self._bucket, f"{self._prefix}{directory}/{file}", str(target / file))
                if self._files(directory) != files:
                    raise StartFailed(f"{self._url(directory)} changed while it was downloaded")
        except BaseException as error:
            self.discard(fetched)
            if not isinstance(error, OSError):
                raise
            raise StartFailed(f"cannot download {self._url(directory)}: {error.strerror or error}") from error
        return fetched

    def discard(self, version: ModelVersion) -> None:
        """Remove a downloaded version; see `ModelSource`."""
        shutil.rmtree(version.path.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove all downloaded versions, and end a download; see `ModelSource`."""
        self._closed = True
        self._temporary.cleanup()

    def _directories(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, Delimiter="/"
        )
        found = [each["Prefix"] for page in pages for each in page.get("CommonPrefixes", [])]
        return [prefix.removeprefix(self._prefix).rstrip("/") for prefix in found]

    def _files(self, directory: str) -> Mapping[str, str]:
        """Return the ETags of the objects of a version, by their paths in its directory."""
        prefix = f"{self._prefix}{directory}/"
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix)
        objects = (each for page in pages for each in page.get("Contents", []))
        tags = {each["Key"].removeprefix(prefix): each["ETag"] for each in objects}
        return {file: tag for file, tag in tags.items() if file and not file.endswith("/")}  # else it is a directory

    def _check_paths(self, directory: str, files: Iterable[str]) -> None:
        for file in files:
            if any(part in ("", ".", "..") for part in file.split("/")):
                raise OSError(0, f"the key {self._prefix}{directory}/{file} is no path of a file")

    def _url(self, directory: str) -> str:
        return f"{SCHEME}://{self._bucket}/{self._prefix}{directory}"

    @cached_property
    def _downloads(self) -> Path:
        return Path(self._temporary.name)

    @cached_property
    def _temporary(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(prefix="tidemill-models-", ignore_cleanup_errors=True)

    @cached_property
    def _client(self) -> Any:
        return _new_client(os.environ)


def _number(directory: str) -> int:
    """Return the version that a directory's name says; -1 if it is none."""
    number = int(directory) if directory.isascii() and directory.isdigit() else -1
    return number if number <= MAX_VERSION else -1


def _new_client(environment: Mapping[str, str]) -> Any:
    """Return a client for AWS's variables, or for those of TensorFlow's own S3 client.

    Raises:
        OSError: boto3 is not installed, or its configuration is wrong.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise OSError(0, "s3:// needs boto3: pip install 'tidemill-serving[s3]'") from error
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or environment.get("S3_REGION")
    config = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 3})
    with _as_os_error("the configuration of S3"):
        return boto3.session.Session(region_name=region).client(
            "s3", endpoint_url=_endpoint(environment), config=config
        )


def _endpoint(environment: Mapping[str, str]) -> str | None:
    """Return the endpoint of ``S3_ENDPOINT``, which boto3 does not read; None leaves the choice to boto3."""
    endpoint = environment.get("S3_ENDPOINT", "")
    if not endpoint or environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL"):
        return None
    if "://" in endpoint:
        return endpoint
    return f"{'http' if environment.get('S3_USE_HTTPS') == '0' else 'https'}://{endpoint}"


@contextlib.contextmanager
def _as_os_error(subject: str) -> Generator[None]:
    """Convert errors of boto3 to OSError, with S3's own words."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, Boto3Error, ClientError, ValueError) as error:
        raise OSError(0, f"{subject}: {error}") from error
