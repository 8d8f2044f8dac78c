"""Sandboxes: how a command of a job is kept apart from the machine.

Three backends behind one Protocol. ``bubblewrap`` and ``unshare`` give the isolation mode ``mount``: separate user,
mount, pid, uts and ipc namespaces, and a shared network. ``plain`` separates nothing and says so. Which one works is
found out by trying it (`detect`), since a kernel, a container or AppArmor may forbid what is installed.
"""

from tidemill.sandbox.base import Launch, Overlay, Sandbox, View
from tidemill.sandbox.detection import BACKENDS, Detection, detect, sandbox_named
from tidemill.sandbox.overlays import overlay_fault

__all__ = ["BACKENDS", "Detection", "Launch", "Overlay", "Sandbox", "View", "detect", "overlay_fault", "sandbox_named"]
