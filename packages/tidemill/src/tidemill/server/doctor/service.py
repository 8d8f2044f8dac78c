"""What the doctor checks of this user's service, and of the shell that the command runs in."""

import importlib.metadata
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.core.findings import Finding, Level
from tidemill.core.sizes import size
from tidemill.errors import ConfigurationError
from tidemill.server.discovery import ServiceRecord, find_service
from tidemill.server.exports import REMOVED_VARIABLES
from tidemill.server.keys import Keys
from tidemill.server.listener import listening
from tidemill.server.state import StateDirectory, network_filesystem

if TYPE_CHECKING:
    from tidemill.settings import Settings

_ROOM_BYTES = 5 * 1024**3
_ROOM_INODES = 100_000


def _state_directory(settings: "Settings") -> Finding:
    root = settings.state_dir.absolute()
    another = "name another directory with TIDEMILL_STATE_DIR or --state-dir"
    place = _existing(root)
    kind = network_filesystem(place)
    if kind:
        return Finding("state directory", Level.FAIL, f"{root} lies on {kind}: locks do not hold there", another)
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("state directory", Level.FAIL, f"{place} is not writable for you", another)
    if place == root:
        mode = stat.S_IMODE(root.stat().st_mode)
        if mode & 0o077 and any(root.iterdir()):
            remedy = f"chmod 700 {shlex.quote(str(root))}"
            return Finding(
                "state directory", Level.FAIL, f"{root} has mode {mode:04o}, others can look into it", remedy
            )
    return Finding("state directory", Level.OK, str(root) if place == root else f"{root} (made at the first start)")


def _keys(settings: "Settings") -> Finding:
    try:
        keys = Keys.load(StateDirectory(settings.state_dir.absolute()).keys_file)
    except ConfigurationError as error:
        return Finding("keys", Level.FAIL, str(error), "chmod 600 the file, or delete it and start the service again")
    return Finding("keys", Level.OK, f"{keys.access_key_id}, for you alone" if keys else "made at the first start")


def _room(settings: "Settings") -> Finding:
    short: list[str] = []
    seen: list[str] = []
    for label, path in (("state", settings.state_dir), ("environments", settings.environments_dir)):
        figures = os.statvfs(_existing(path.absolute()))
        free_bytes = figures.f_bavail * figures.f_frsize
        seen.append(f"{label} {size(free_bytes)}")
        # Some file systems create inodes on demand and report 0 for both counts.
        if free_bytes < _ROOM_BYTES or (figures.f_files and figures.f_favail < _ROOM_INODES):
            short.append(f"{label}: {size(free_bytes)} and {figures.f_favail} inodes free")
    if not short:
        return Finding("room on disk", Level.OK, f"free: {', '.join(seen)}")
    return Finding(
        "room on disk", Level.WARN, "; ".join(short), "`tidemill gc`, or free space; jobs fail on a full disk"
    )


def _service(settings: "Settings") -> Finding:
    try:
        record: ServiceRecord | None = find_service(StateDirectory(settings.state_dir.absolute()))
        if record is not None:
            return Finding("service", Level.OK, f"runs at {record.url} (pid {record.pid})")
        with listening(host=settings.host, port=settings.port, or_next=not settings.port_is_chosen) as sock:
            return Finding("service", Level.OK, f"does not run; port {sock.getsockname()[1]} is free for it")
    except ConfigurationError as error:
        return Finding("service", Level.FAIL, str(error), "tidemill up --port 0")


def _warm_start(settings: "Settings") -> Finding:
    if not settings.warm:
        text = "off: each script imports TensorFlow itself, in seconds; `tidemill up --warm` saves them"
    elif settings.limit_to_instance_type or settings.limit_policy.of("", volume_gib=None):
        text = "on, but the settings limit instances, and a limited script starts cold"
    else:
        text = f"on, for TensorFlow {settings.default_framework} from the start, for others after their first job"
    return Finding("warm start", Level.OK, text)


def shell(settings: "Settings") -> Finding:
    """Check where the AWS clients of this process's environment go.

    Args:
        settings: The settings of the command.
    """
    record = find_service(StateDirectory(settings.state_dir.absolute()))
    url = record.url if record else None
    elsewhere = [
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if (name == "AWS_ENDPOINT_URL" or name.startswith("AWS_ENDPOINT_URL_")) and value != url
    ]
    spoiling = [name for name in REMOVED_VARIABLES if os.environ.get(name)]
    if elsewhere or spoiling:
        text = f"AWS clients of this shell go elsewhere: {', '.join(elsewhere + spoiling)}"
        return Finding(
            "shell", Level.WARN, text, f'unset {" ".join(_names(elsewhere) + spoiling)}; eval "$(tidemill env)"'
        )
    if os.environ.get("AWS_ENDPOINT_URL"):
        return Finding("shell", Level.OK, "AWS clients of this shell talk to the service")
    return Finding("shell", Level.OK, 'AWS clients of this shell talk to AWS; eval "$(tidemill env)" changes that')


def _pipe_mode(_settings: "Settings") -> Finding:
    try:
        version = importlib.metadata.version("sagemaker_tensorflow")
    except importlib.metadata.PackageNotFoundError:
        return Finding("sagemaker_tensorflow", Level.OK, "no other distribution of this name in this environment")
    text = f"AWS's sagemaker_tensorflow {version} is installed beside tidemill: it fits one TensorFlow version only"
    return Finding("sagemaker_tensorflow", Level.WARN, text, f"{sys.executable} -m pip uninstall sagemaker_tensorflow")


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())


def _names(assignments: list[str]) -> list[str]:
    return [assignment.partition("=")[0] for assignment in assignments]


SERVICE_CHECKS: tuple[Callable[["Settings"], Finding], ...] = (
    _state_directory,
    _keys,
    _room,
    _service,
    _warm_start,
    _pipe_mode,
)
