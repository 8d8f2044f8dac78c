"""Sandboxes: how a command of a job is isolated from the machine.

There are three backends with one Protocol. ``bubblewrap`` and ``unshare`` provide the isolation mode ``mount``:
separate user, mount, pid, uts and ipc namespaces, and the machine's network. ``plain`` isolates nothing. `detect` finds
out by trials which backend works, since a kernel, a container or AppArmor may forbid an installed one.
"""

from tidemill.sandbox.base import FuseMount, Launch, Overlay, Sandbox, View, secret_file
from tidemill.sandbox.detection import BACKENDS, Detection, detect, sandbox_named
from tidemill.sandbox.fuse import fuse_fault, fuse_library
from tidemill.sandbox.overlays import overlay_fault

__all__ = [
    "BACKENDS",
    "Detection",
    "FuseMount",
    "Launch",
    "Overlay",
    "Sandbox",
    "View",
    "detect",
    "fuse_fault",
    "fuse_library",
    "overlay_fault",
    "sandbox_named",
    "secret_file",
]
