"""What the doctor checks of the machine: programs, isolation, processors and GPUs.

Each check returns its result, with a remedy if the result is not OK.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemill.core.findings import Finding, Level
from tidemill.core.frameworks import ENVIRONMENTS
from tidemill.errors import ConfigurationError, EnvironmentBuildError, MissingInterpreterError

if TYPE_CHECKING:
    from tidemill.settings import Settings

_PYTHONS = ((3, 11), (3, 13))
_TENSORFLOW_TIMEOUT_S = 120


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


MACHINE_CHECKS: tuple[Callable[["Settings"], Finding], ...] = (
    _python,
    _uv,
    _frameworks,
    _isolation,
    _fast_files,
    _memory_limits,
    _processors,
    _gpus,
)
