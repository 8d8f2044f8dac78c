"""Sandboxes: how a command of a job is kept apart from the machine.

Three backends behind one Protocol. ``bubblewrap`` and ``unshare`` give the isolation mode ``mount``: user, mount, pid,
uts and ipc namespaces of their own, the network shared. ``plain`` separates nothing and says so. Which one works is
found out by trying it (`detect`), since a kernel, a container or AppArmor may forbid what is installed.
"""

from tidemill.executors.sandbox.base import Launch, Sandbox, View
from tidemill.executors.sandbox.detection import BACKENDS, Detection, detect, sandbox_named

__all__ = ["BACKENDS", "Detection", "Launch", "Sandbox", "View", "detect", "sandbox_named"]
