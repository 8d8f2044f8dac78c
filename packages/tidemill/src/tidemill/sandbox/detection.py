"""Detects which sandbox works here, by running ``/bin/true`` in it once when the service starts."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.sandbox.base import Sandbox, View
from tidemill.sandbox.bubblewrap import BubblewrapSandbox
from tidemill.sandbox.network import network_failure
from tidemill.sandbox.overlays import trial_fault
from tidemill.sandbox.plain import PlainSandbox
from tidemill.sandbox.unshare import UnshareSandbox

BACKENDS: tuple[Sandbox, ...] = (BubblewrapSandbox(), UnshareSandbox(), PlainSandbox())


@dataclass(frozen=True, slots=True)
class Detection:
    """The detected sandbox for jobs.

    Attributes:
        sandbox: The backend.
        reason: Why it was chosen, for the log and for ``tidemill doctor``.
        no_network: Why jobs cannot get a separate network (isolation mode ``full``); empty if they can.
        always: Whether every training job gets a network, not only the jobs that need one.
    """

    sandbox: Sandbox
    reason: str
    no_network: str = ""
    always: bool = False


def sandbox_named(name: str) -> Sandbox:
    """Return a backend.

    Raises:
        ConfigurationError: No sandbox has that name.
    """
    for sandbox in BACKENDS:
        if sandbox.name == name:
            return sandbox
    had = ", ".join(sandbox.name for sandbox in BACKENDS)
    raise ConfigurationError(f"there is no sandbox named {name!r}; available are {had}")


def detect(requested: str) -> Detection:
    """Choose a sandbox.

    Args:
        requested: ``auto``: the best backend that works, with networks for the jobs that need them. ``full``: a network
            for every training job. ``mount``: a sandbox without networks. ``plain``: no isolation. The name of a
            backend: that backend, otherwise like ``mount``; ``full:NAME``: that backend with networks.

    Returns:
        The sandbox, with the reason for the choice.

    Raises:
        ConfigurationError: The requested mode does not work here; the message says why.
    """
    if requested == "plain":
        why = "isolation is set to plain"
        return Detection(sandbox_named("plain"), f"{why}: jobs see everything that this user sees", no_network=why)
    full, _, backend = requested.partition(":")
    if full == "full":
        return _with_networks(detect(backend or "mount"), requested)
    candidates = BACKENDS[:-1] if requested in ("auto", "mount") else (sandbox_named(requested),)
    failures = []
    for sandbox in candidates:
        failure = _try(sandbox)
        if failure is None:
            if requested == "auto":
                return _with_networks_if_possible(sandbox)
            return Detection(sandbox, f"{sandbox.name} works here", no_network=f"isolation is set to {requested}")
        failures.append(f"{sandbox.name}: {failure}")
    why = "; ".join(failures)
    if requested == "auto":
        return Detection(
            sandbox_named("plain"),
            f"no sandbox works here ({why}); jobs see everything that this user sees."
            " Install bubblewrap or allow unprivileged user namespaces",
            no_network="no sandbox works here",
        )
    raise ConfigurationError(
        f"isolation {requested!r} does not work here ({why}); install bubblewrap or allow unprivileged user namespaces,"
        " or set isolation to auto or plain"
    )


def _with_networks_if_possible(sandbox: Sandbox) -> Detection:
    failure = network_failure()
    if failure:
        why = f"no network namespaces here ({failure})"
        return Detection(sandbox, f"{sandbox.name} works here; {why}", no_network=why)
    return Detection(
        sandbox,
        f"{sandbox.name} works here; jobs of several instances, and jobs with EnableNetworkIsolation, get a network of"
        " their own (full)",
    )


def _with_networks(found: Detection, requested: str) -> Detection:
    failure = network_failure()
    if failure:
        raise ConfigurationError(
            f"isolation {requested!r} does not work here: no network namespaces ({failure}); allow unprivileged user"
            " namespaces and the bridge and veth modules of the kernel, or set isolation to auto or mount"
        )
    reason = f"{found.sandbox.name} and network namespaces work here; every training job gets a network of its own"
    return Detection(found.sandbox, reason, always=True)


def _try(sandbox: Sandbox) -> str | None:
    """Run ``/bin/true`` in ``sandbox``. Return None if it works, else the reason why it does not."""
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
        return trial_fault(launch) or None
