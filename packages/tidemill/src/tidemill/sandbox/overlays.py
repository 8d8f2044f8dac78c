"""Overlay mounts around a sandbox: directories that a command may change without changing the underlying files."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidemill.sandbox.base import Launch, Overlay, secret_file

__all__ = ["overlaid", "overlay_fault"]

_TRIAL_TIMEOUT_S = 30


def overlaid(launch: Launch, overlays: Sequence[Overlay]) -> Launch:
    """Return ``launch`` with ``overlays`` mounted around it; the sandbox that it starts inherits the mounts."""
    if not overlays:
        return launch
    plan = [
        {
            "directory": str(overlay.directory),
            "files": Overlay.FILES,
            "writes": Overlay.WRITES,
            "work": Overlay.WORK,
            "target": str(overlay.target),
        }
        for overlay in overlays
    ]
    fd = secret_file(json.dumps(plan).encode())
    script = str(Path(__file__).with_name("lay_over.py"))
    return replace(
        launch,
        argv=(sys.executable, "-I", "-S", script, str(fd), *launch.argv),
        descriptors=(*launch.descriptors, fd),
    )


def overlay_fault(overlay: Overlay) -> str:
    """Return why ``overlay`` cannot be mounted here, found out by mounting it; empty if it can be."""
    launch = overlaid(Launch(argv=("/bin/true",), variables={}), [overlay])
    try:
        tried = subprocess.run(
            launch.argv,
            env={"LANG": "C.UTF-8"},
            pass_fds=launch.descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
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
