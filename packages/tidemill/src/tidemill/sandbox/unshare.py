"""Isolation mode ``mount`` without bubblewrap: the small script `enter.py` creates the namespaces."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemill.core.instances import Isolation
from tidemill.sandbox.base import Launch, View, secret_file
from tidemill.sandbox.mounts import DEVICES, PROC_COVERED, job_home, mounts_of, new_in_root
from tidemill.sandbox.overlays import overlaid


class UnshareSandbox:
    """Runs the command under `enter.py`, which calls unshare(2) and mount(2) itself."""

    name = "unshare"
    isolation = Isolation.MOUNT

    def base_dir(self, view: View) -> str:
        return "/opt/ml"

    def variables(self, view: View) -> dict[str, str]:
        return {"HOME": str(job_home()), "TMPDIR": "/tmp"}  # noqa: S108

    def wrap(self, argv: Sequence[str], *, view: View, variables: Mapping[str, str]) -> Launch:
        devices = [str(device) for pattern in DEVICES for device in sorted(Path("/dev").glob(pattern))]
        plan = {
            "host_name": view.host_name,
            "new_in_root": new_in_root(view),
            "mounts": [[mount.kind.value, mount.target, mount.source] for mount in mounts_of(view)],
            "proc_covered": list(PROC_COVERED),
            "devices": devices,
            "variables": dict(variables),
            "directory": variables.get("HOME", "/"),
        }
        fd = secret_file(json.dumps(plan).encode())
        script = str(Path(__file__).with_name("enter.py"))
        launch = Launch(
            argv=(sys.executable, "-I", "-S", script, str(fd), *argv),
            variables={"LANG": "C.UTF-8"},
            descriptors=(fd,),
        )
        return overlaid(launch, view.overlays, view.fuse)
