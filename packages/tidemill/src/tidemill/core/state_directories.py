"""The state directories of all services of this user that share a directory of environments.

Each service leaves a small file with the path of its state directory there, so that the jobs of every other service do
not see it. The file stays when the service ends, because its keys and data remain.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from tidemill.core.files import write_durably

_PREFIX = ".state-directory-"


def register_state_directory(directory: Path, *, environments_dir: Path) -> None:
    """Leave a file for a state directory, and remove the files of those that no longer exist.

    Raises:
        OSError: The directory of environments cannot be written.
    """
    environments_dir.mkdir(parents=True, exist_ok=True)
    path = os.fsencode(directory)
    file = environments_dir / f"{_PREFIX}{hashlib.sha256(path).hexdigest()[:32]}"
    if not file.exists():
        write_durably(file, path)
    for other in environments_dir.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError, ValueError):
            if not Path(os.fsdecode(other.read_bytes())).exists():
                other.unlink()


def known_state_directories(environments_dir: Path) -> tuple[Path, ...]:
    """Return the state directories that have a file here; none if it cannot be read.

    Returns:
        Absolute paths, which need not exist.
    """
    found = []
    files: list[Path] = []
    with contextlib.suppress(OSError):
        files = sorted(environments_dir.glob(f"{_PREFIX}*"))
    for file in files:
        with contextlib.suppress(OSError):
            found.append(Path(os.fsdecode(file.read_bytes())))
    return tuple(path for path in found if path.is_absolute())
