"""Whether this machine and its sandbox support FUSE mounts, found out by mounting one."""

import contextlib
import ctypes
import errno
import importlib.util
import os
import socket
import tempfile
from pathlib import Path

from tidemill.core.instances import Isolation
from tidemill.sandbox.base import FuseMount, Launch, Sandbox
from tidemill.sandbox.overlays import overlaid, trial_fault

FUSE_DEVICE = Path("/dev/fuse")
# 4 is the interface of libfuse since version 3.17.
_LIBRARIES = ("libfuse3.so.4", "libfuse3.so.3")


def fuse_library() -> str:
    """Return the name under which the dynamic linker finds libfuse3; empty if it is not installed."""
    for name in _LIBRARIES:
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return name
    return ""


def fuse_fault(sandbox: Sandbox) -> str:
    """Return why jobs cannot have FUSE mounts here, and what to do about it; empty if they can."""
    if sandbox.isolation is Isolation.PLAIN:
        return "isolation plain has no mounts of its own; set isolation to mount"
    fault = _device_fault()
    if fault:
        return fault
    if not fuse_library():
        return "libfuse3 is missing; run `apt install fuse3` as root"
    if importlib.util.find_spec("mfusepy") is None:
        return "the Python package mfusepy is missing; install it next to tidemill"
    fault = _trial_fault()
    return f"a FUSE file system cannot be mounted: {fault}; allow unprivileged user namespaces" if fault else ""


def _device_fault() -> str:
    try:
        os.close(os.open(FUSE_DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return f"{FUSE_DEVICE} is missing; run `modprobe fuse` as root, or pass the device to the container"
    except PermissionError as error:
        if error.errno == errno.EPERM:  # whatever the mode of the file is
            return (
                f"the container may not open {FUSE_DEVICE}; start it with the device (Docker: --device {FUSE_DEVICE})"
            )
        return f"this user may not open {FUSE_DEVICE}; run `chmod 666 {FUSE_DEVICE}` as root"
    except OSError as error:  # e.g. a file of a device whose module is not loaded
        return f"{FUSE_DEVICE} cannot be opened: {error.strerror}; run `modprobe fuse` as root"
    return ""


def _trial_fault() -> str:
    ours, theirs = socket.socketpair()
    with ours, tempfile.TemporaryDirectory() as target:
        mount = FuseMount(target=Path(target), socket=theirs.detach())
        return trial_fault(overlaid(Launch(argv=("/bin/true",), variables={"LANG": "C.UTF-8"}), (), [mount]))
