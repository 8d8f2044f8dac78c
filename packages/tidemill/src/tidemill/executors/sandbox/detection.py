"""Which sandbox works here: found out by running ``/bin/true`` in it, once, when the service starts."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.executors.sandbox.base import Sandbox, View
from tidemill.executors.sandbox.bubblewrap import BubblewrapSandbox
from tidemill.executors.sandbox.plain import PlainSandbox
from tidemill.executors.sandbox.unshare import UnshareSandbox

__all__ = ["BACKENDS", "Detection", "detect", "sandbox_named"]

BACKENDS: tuple[Sandbox, ...] = (BubblewrapSandbox(), UnshareSandbox(), PlainSandbox())

_TRIAL_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Detection:
    """The sandbox in force.

    Attributes:
        sandbox: The backend.
        reason: Why it is this one, in words for the log and for ``tidemill doctor``.
    """

    sandbox: Sandbox
    reason: str


def sandbox_named(name: str) -> Sandbox:
    """The backend ``name``.

    Raises:
        ConfigurationError: There is none of that name.
    """
    for sandbox in BACKENDS:
        if sandbox.name == name:
            return sandbox
    had = ", ".join(sandbox.name for sandbox in BACKENDS)
    raise ConfigurationError(f"there is no sandbox named {name!r}; available are {had}")


def detect(requested: str) -> Detection:
    """Choose a sandbox.

    Args:
        requested: ``auto`` takes the best one that works; ``mount`` insists on one that separates; ``plain`` on none;
            the name of a backend takes that one.

    Raises:
        ConfigurationError: What was asked for does not work here; the text says why.
    """
    if requested == "plain":
        return Detection(sandbox_named("plain"), "isolation is set to plain: jobs see everything that this user sees")
    candidates = BACKENDS[:-1] if requested in ("auto", "mount") else (sandbox_named(requested),)
    failures = []
    for sandbox in candidates:
        failure = _try(sandbox)
        if failure is None:
            return Detection(sandbox, f"{sandbox.name} works here")
        failures.append(f"{sandbox.name}: {failure}")
    why = "; ".join(failures)
    if requested == "auto":
        return Detection(
            sandbox_named("plain"),
            f"no sandbox works here ({why}); jobs see everything that this user sees."
            " Install bubblewrap or allow unprivileged user namespaces",
        )
    raise ConfigurationError(
        f"isolation {requested!r} does not work here ({why}); install bubblewrap or allow unprivileged user namespaces,"
        " or set isolation to auto or plain"
    )


def _try(sandbox: Sandbox) -> str | None:
    """Run ``/bin/true`` in ``sandbox``: None where it works, else the reason why not."""
    with tempfile.TemporaryDirectory(prefix="tidemill-") as name:
        root = Path(name)
        for part in ("ml", "home", "tmp/tmp", "tmp/var"):
            (root / part).mkdir(parents=True)
        (root / "hosts").write_text("127.0.0.1 localhost\n")
        view = View(host_name="algo-1", hosts_file=root / "hosts", ml=root / "ml", home=root / "home", tmp=root / "tmp")
        try:
            launch = sandbox.wrap(["/bin/true"], view=view, variables={"PATH": "/usr/bin:/bin"})
        except OSError as error:
            return str(error)
        try:
            result = subprocess.run(
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
    if result.returncode == 0:
        return None
    lines = result.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {result.returncode}"]
    return lines[-1]
