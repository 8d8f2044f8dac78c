"""Where the versions of a model come from: a directory of this machine, or objects of S3."""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from tidemill_serving.errors import invalid
from tidemill_serving.models import ModelVersion, versions_in
from tidemill_serving.versions.s3_models import SCHEME, S3Models


class ModelSource(Protocol):
    """Finds and fetches the versions below a base path. All methods block, and are called on threads."""

    def find(self, name: str) -> tuple[ModelVersion, ...]:
        """Return the versions that are there, sorted by number.

        Args:
            name: Name of the model.

        Raises:
            OSError: The base path cannot be read; its ``strerror`` says why.
        """

    def fetch(self, version: ModelVersion) -> ModelVersion:
        """Return a version that was found, with a directory of this machine that holds all of it.

        Raises:
            StartFailed: It cannot be fetched.
        """

    def discard(self, version: ModelVersion) -> None:
        """Remove what was fetched of a version that is no longer loaded.

        Args:
            version: What `fetch` returned.
        """

    def close(self) -> None:
        """Remove everything that was fetched."""


class LocalModels:
    """A directory with a subdirectory for each version."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def find(self, name: str) -> tuple[ModelVersion, ...]:
        """See `ModelSource`."""
        return versions_in(name, self._directory)

    def fetch(self, version: ModelVersion) -> ModelVersion:
        """Return the version, which is loaded from where it is."""
        return version

    def discard(self, version: ModelVersion) -> None:
        """Do nothing: the directory belongs to its publisher."""

    def close(self) -> None:
        """Do nothing: nothing was fetched."""


def open_source(base_path: str, *, name: str) -> ModelSource:
    """Return the source for a base path. Nothing is read yet.

    Args:
        base_path: An absolute path, ``file:///PATH`` or ``s3://BUCKET/PREFIX``.
        name: Name of the model, for the error.

    Raises:
        RequestError: INVALID_ARGUMENT, the base path has another form.
    """
    # No URL parser: keys and names of directories may contain ? and #.
    scheme, separator, rest = base_path.partition("://")
    host, slash, path = rest.partition("/")
    if separator and scheme.lower() == SCHEME and host:
        return S3Models(bucket=host, prefix=path)
    is_file = separator and scheme.lower() == "file" and host in ("", "localhost")
    directory = slash + unquote(path) if is_file else base_path
    if "\0" not in directory and Path(directory).is_absolute():
        return LocalModels(Path(directory))
    raise invalid(
        f"Expected model {name} to have an absolute path or URI; got base_path()={base_path}; models are read from"
        " directories of this machine (/PATH or file:///PATH) and from S3 (s3://BUCKET/PREFIX)"
    )
