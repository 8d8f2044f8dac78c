"""Find the directory of the model in a load request, and check that it fits into memory."""

import asyncio
import contextlib
import os
import stat
import sys
from pathlib import Path

from tidemill_serving._shared.trees import remove_tree, walk
from tidemill_serving.errors import Code, RequestError
from tidemill_serving.models import ModelVersion, find_versions_of

MODELS_ROOT = Path("/opt/ml/models")
"""Where SageMaker puts the models of a multi-model endpoint."""
_CODE = "code"


def model_directory(url: str, *, root: Path) -> Path | None:
    """Return the directory for the URL of a load request, or None if it is not below the root.

    Args:
        url: Path as SageMaker sends it; `MODELS_ROOT` in it is replaced by ``root``.
    """
    path = Path(os.path.normpath(url))
    for base in (root, MODELS_ROOT):
        if path.is_relative_to(base) and path != base:
            return root / path.relative_to(base)
    return None


def model_versions(name: str, directory: Path | None, *, url: str) -> tuple[ModelVersion, ...]:
    """Find the versions of a model.

    Raises:
        RequestError: NOT_FOUND, the directory does not exist or contains no version.
    """
    versions = () if directory is None else find_versions_of(name, directory, ignored=_CODE)
    if not versions:
        raise RequestError(Code.NOT_FOUND, f"Could not find valid base path {url} for servable {name}")
    return versions


def check_memory(versions: tuple[ModelVersion, ...]) -> None:
    """Check that the files of a model fit into the available memory.

    Raises:
        RequestError: 507, the files are larger than the available memory.
    """
    size_bytes = sum(_size_bytes(each.path.resolve()) for each in versions)
    available_bytes = _available_bytes()
    if available_bytes is not None and size_bytes > available_bytes:
        raise RequestError(
            Code.RESOURCE_EXHAUSTED,
            f"Memory exhausted: the model has {size_bytes} bytes, and {available_bytes} are available; unload another"
            " model first",
            http_status=507,
        )


async def extract(archive: Path, directory: Path) -> None:
    """Unpack a model archive into a directory, which is emptied first.

    Raises:
        RequestError: 400, the file is not an archive or is unsafe to unpack. The directory is removed then.
    """
    remove(directory)
    directory.mkdir(parents=True)
    command = ("-m", "tidemill_runtime", "extract", str(archive), str(directory))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    _, said = await process.communicate()
    if process.returncode:
        remove(directory)
        last = said.decode(errors="replace").strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
        raise RequestError(Code.INVALID_ARGUMENT, f"the model archive cannot be unpacked: {last[0]}")


def remove(directory: Path) -> None:
    """Remove a directory that `extract` created.

    Args:
        directory: The directory; a missing one is no error.
    """
    with contextlib.suppress(OSError):
        remove_tree(directory)


def _size_bytes(directory: Path) -> int:
    """Return the size of the regular files below a directory, which the code of another model may change meanwhile."""
    total = 0
    for entry in walk(directory, on_error=lambda error: None):
        with contextlib.suppress(OSError):
            status = entry.status()
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _available_bytes() -> int | None:
    """Return the available memory, or None if the system does not report it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else None
