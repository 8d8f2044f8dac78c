"""Mounts around a sandbox, which the sandbox inherits: overlays and FUSE file systems.

An overlay is a directory that a command may change without changing the underlying files. The mounts exist only in the
namespaces of the command, so the kernel removes them when the command has ended, however it ends.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidemill.sandbox.base import FuseMount, Launch, Overlay, secret_file

_TRIAL_TIMEOUT_S = 30


def overlaid(launch: Launch, overlays: Sequence[Overlay], fuse: Sequence[FuseMount] = ()) -> Launch:
    """Return ``launch`` with ``overlays`` and ``fuse`` mounted around it; the sandbox inherits the mounts.

    Args:
        overlays: Directories to show above read-only files.
        fuse: File systems to mount. Default: none.

    Returns:
        The same launch without anything to mount.
    """
    if not overlays and not fuse:
        return launch
    plan = {
        "overlays": [
            {
                "directory": str(overlay.directory),
                "files": ":".join(f"{Overlay.FILES}/{part}" for part in overlay.parts) or Overlay.FILES,
                "writes": Overlay.WRITES,
                "work": Overlay.WORK,
                "target": str(overlay.target),
            }
            for overlay in overlays
        ],
        "fuse": [{"target": str(mount.target), "socket": mount.socket} for mount in fuse],
    }
    fd = secret_file(json.dumps(plan).encode())
    script = str(Path(__file__).with_name("lay_over.py"))
    return replace(
        launch,
        argv=(sys.executable, "-I", "-S", script, str(fd), *launch.argv),
        descriptors=(*launch.descriptors, fd, *(mount.socket for mount in fuse)),
    )


def overlay_fault(overlay: Overlay) -> str:
    """Return why ``overlay`` cannot be mounted here, found out by mounting it; empty if it can be.

    Args:
        overlay: The overlay; its directories exist.
    """
    return trial_fault(overlaid(Launch(argv=("/bin/true",), variables={"LANG": "C.UTF-8"}), [overlay]))


def trial_fault(launch: Launch) -> str:
    """Run a launch to its end; return its error, or an empty text. Closes its descriptors."""
    try:
        tried = subprocess.run(
            launch.argv,
            env=dict(launch.variables),
            pass_fds=launch.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            timeout=_TRIAL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        for fd in launch.descriptors:
            os.close(fd)
    if tried.returncode == 0:
        return ""
    lines = tried.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {tried.returncode}"]
    return lines[-1].removeprefix("tidemill-sandbox: ")
