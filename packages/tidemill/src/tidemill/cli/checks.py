"""The checks of `tidemill doctor`. Each returns its result, with a remedy if the result is not OK."""

import importlib.metadata
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.cli.text import size
from tidemill.core.frameworks import ENVIRONMENTS
from tidemill.errors import ConfigurationError, EnvironmentBuildError, MissingInterpreterError
from tidemill.server.discovery import ServiceRecord, find_service
from tidemill.server.exports import REMOVED_VARIABLES
from tidemill.server.keys import Keys
from tidemill.server.listener import listening
from tidemill.server.state import StateDirectory, network_filesystem

if TYPE_CHECKING:
    from tidemill.settings import Settings

__all__ = ["Finding", "Level", "examine"]

_PYTHONS = ((3, 11), (3, 13))
_ROOM_BYTES = 5 * 1024**3
_ROOM_INODES = 100_000
_TENSORFLOW_TIMEOUT_S = 120


class Level(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        remedy: What to do; empty if nothing needs to be done.
    """

    name: str
    level: Level
    text: str
    remedy: str = ""


def examine(settings: "Settings") -> Iterator[Finding]:
    """Run every check, the fundamental ones first.

    Args:
        settings: The settings of the command.

    Yields:
        One finding for each check.
    """
    checks: tuple[Callable[[Settings], Finding], ...] = (
        _python,
        _uv,
        _frameworks,
        _isolation,
        _fast_files,
        _memory_limits,
        _processors,
        _gpus,
        _state_directory,
        _keys,
        _room,
        _service,
        _shell,
        _pipe_mode,
    )
    for check in checks:
        yield check(settings)


def _python(_settings: "Settings") -> Finding:
    here = ".".join(map(str, sys.version_info[:3]))
    lowest, highest = _PYTHONS
    if lowest <= sys.version_info[:2] <= highest:
        return Finding("python", Level.OK, here)
    span = f"{lowest[0]}.{lowest[1]} to {highest[0]}.{highest[1]}"
    return Finding("python", Level.FAIL, f"{here} is not supported", f"install tidemill under Python {span}")


def _uv(_settings: "Settings") -> Finding:
    from tidemill.environments.uv_command import find_uv

    try:
        return Finding("uv", Level.OK, find_uv())
    except EnvironmentBuildError as error:
        return Finding("uv", Level.FAIL, str(error), f"{shlex.quote(sys.executable)} -m pip install uv")


def _frameworks(_settings: "Settings") -> Finding:
    from tidemill.core.frameworks import FRAMEWORKS
    from tidemill.environments.interpreters import available

    pythons = sorted({python for each in FRAMEWORKS.values() for python in each.pythons}, key=_number, reverse=True)
    here = available(pythons)
    missing = [each for each in FRAMEWORKS.values() if not set(each.pythons) & set(here)]
    if not missing:
        return Finding("tensorflow", Level.OK, f"each of {', '.join(FRAMEWORKS)} has a Python here")
    wanted = " ".join(dict.fromkeys(each.pythons[-1] for each in missing))
    text = f"no Python for {', '.join(each.version for each in missing)}; jobs that ask for one let uv download it"
    return Finding("tensorflow", Level.WARN, text, f"uv python install {wanted}")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _isolation(settings: "Settings") -> Finding:
    from tidemill.core.instances import Isolation
    from tidemill.sandbox import detect

    remedy = "sudo apt-get install bubblewrap; in a container, allow unprivileged user namespaces"
    try:
        found = detect(settings.isolation)
    except ConfigurationError as error:
        return Finding("isolation", Level.FAIL, str(error), remedy)
    mode = Isolation.FULL if found.always else found.sandbox.isolation
    text = f"{mode} ({found.reason})"
    asked_for = settings.isolation == Isolation.PLAIN
    if found.sandbox.isolation is not Isolation.PLAIN or asked_for:
        return Finding("isolation", Level.OK, text)
    return Finding("isolation", Level.WARN, text, remedy)


def _fast_files(settings: "Settings") -> Finding:
    from tidemill.sandbox import detect, fuse_fault

    name = "fast file mode"
    try:
        fault = fuse_fault(detect(settings.isolation).sandbox)
    except ConfigurationError as error:
        fault = f"no sandbox: {error}"
    if not fault:
        return Finding(name, Level.OK, "jobs can read a remote S3 on demand (FUSE)")
    level = Level.WARN if settings.remote_s3 else Level.OK
    what, _, remedy = fault.rpartition("; ")
    return Finding(name, level, f"for the service's own S3 only: {what or fault}", remedy if what else "")


def _memory_limits(_settings: "Settings") -> Finding:
    from tidemill.shim.cgroup import CgroupUnavailable, available_layout

    try:
        text = f"enforced by the kernel (control group v{available_layout()})"
    except CgroupUnavailable as reason:
        text = f"measured four times a second: {reason}"
    return Finding("memory limits", Level.OK, text)


def _processors(settings: "Settings") -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    text = f"{count} usable; {settings.max_instances} instances at a time"
    if settings.max_instances <= count:
        return Finding("processors", Level.OK, text)
    return Finding("processors", Level.WARN, f"{text}: more than processors", f"set TIDEMILL_MAX_INSTANCES={count}")


def _gpus(settings: "Settings") -> Finding:
    from tidemill.executors.gpus import find_gpus

    found = find_gpus()
    devices = settings.gpus if settings.gpus is not None else tuple(gpu.uuid for gpu in found)
    if not devices:
        why = "switched off by the setting gpus" if found else "nvidia-smi lists none"
        return Finding("gpus", Level.OK, f"none ({why}); all jobs compute on processors")
    named = ", ".join(f"{gpu.name} with {gpu.memory}" for gpu in found) or "unknown to nvidia-smi"
    driver = f"driver {found[0].driver}" if found else "no driver"
    shared = "; jobs may share them" if settings.share_gpus else ""
    text = f"{len(devices)} for jobs, {driver}: {named}{shared}; {_seen_by_tensorflow(settings)}"
    if found:
        return Finding("gpus", Level.OK, text)
    return Finding("gpus", Level.WARN, text, "install NVIDIA's driver, or unset TIDEMILL_GPUS")


def _seen_by_tensorflow(settings: "Settings") -> str:
    """Ask the TensorFlow of the environment for GPUs, if it is built."""
    from tidemill.environments.builder import Environments

    environments = Environments(settings.environments_dir.absolute())
    name = next(name for name in ENVIRONMENTS if name.endswith("-gpu"))
    try:
        environment = environments.describe(name)
    except (MissingInterpreterError, EnvironmentBuildError) as error:
        return f"{name}: {error}"
    if not environments.is_built(environment):
        return f"the environment {name} is not built yet"
    code = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"
    try:
        asked = subprocess.run(
            [environment.python, "-c", code],
            env={"TF_CPP_MIN_LOG_LEVEL": "3", "PATH": os.environ.get("PATH", os.defpath)},
            capture_output=True,
            text=True,
            timeout=_TENSORFLOW_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"TensorFlow of {name} does not answer: {error}"
    count = asked.stdout.strip()
    return f"TensorFlow of {name} sees {count}" if count.isdecimal() else f"TensorFlow of {name} cannot be imported"


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


def _shell(settings: "Settings") -> Finding:
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
