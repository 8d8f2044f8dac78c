"""Install the packages of the user's requirements once, inside the sandbox, into an overlay of the environment."""

import hashlib
import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.environments.builder import Environment
from tidemill.environments.overlays import Overlay, Overlays
from tidemill.environments.uv_command import installer_variables
from tidemill.sandbox import View
from tidemill.shim.beneath import read_beneath
from tidemill.shim.failures import InstanceFailure, InternalFailure, algorithm_reason, ended_reason
from tidemill.shim.session import Session
from tidemill.shim.stopping import Stopped
from tidemill.shim.supervision import Ended, Limits, Running, supervise

__all__ = ["NEEDS_OVERLAY", "NEEDS_OVERLAY_FILE", "Packages", "has_report", "reported_failure", "with_overlay"]

NEEDS_OVERLAY = 75
"""Exit status of a runtime or model server if the user's code needs packages that are not installed."""
NEEDS_OVERLAY_FILE = "needs-overlay.json"
"""File in the private directory of the instance that names the requirements."""
_REPORT_MAX_BYTES = 64 * 1024
_REQUIREMENTS_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Packages:
    """Installs the packages that the code of an instance asks for.

    Attributes:
        session: The instance.
        environment: The environment below the overlay; it is not changed.
        code_sha256: Digest of the archive with the code.
        deadline_s: Time on the session's monotonic clock at which to give up. Default: never.
    """

    session: Session
    environment: Environment
    code_sha256: str
    deadline_s: float | None = None

    def overlay(self) -> Overlay:
        """Return the overlay that the code asks for; build it if it does not exist.

        Raises:
            InstanceFailure: The packages cannot be installed.
            Stopped: A stop was requested.
        """
        session = self.session
        request = read_beneath(session.directory.private, NEEDS_OVERLAY_FILE, max_bytes=_REPORT_MAX_BYTES)
        try:
            wanted = json.loads(request or b"")
            requirements, digest = str(wanted["requirements"]), str(wanted["sha256"])
        except (ValueError, KeyError, TypeError) as error:
            raise InternalFailure(f"the user's code asked for packages without saying which: {error}") from error
        relative = requirements.removeprefix(f"{session.base_dir}/")
        text = read_beneath(session.directory.ml, relative, max_bytes=_REQUIREMENTS_MAX_BYTES)
        # Requirements that refer to local files depend on the code, so only jobs with the same code share the overlay.
        shared = text is not None and hashlib.sha256(text).hexdigest() == digest
        session.log.note(f"tidemill: installing packages of {requirements}")
        started_s = time.monotonic()
        overlay = Overlays(session.task.site.environments_dir / "overlays").ensure(
            self.environment.key,
            (
                digest,
                hashlib.sha256(text or b"").hexdigest(),
                "" if shared else self.code_sha256,
                f"{session.isolation}, closed" if session.spec.closed else session.sandbox.isolation,
            ),
            install=lambda prefix: self._install(prefix, requirements),
            log=session.log.note,
            poll=session.stop.check,
        )
        session.log.note(f"tidemill: packages are ready after {time.monotonic() - started_s:.1f} s")
        return overlay

    def _install(self, prefix: Path, requirements: str) -> None:
        session = self.session
        fetching = installer_variables(os.environ)
        view = _with_installer_files(session.view(self.environment), fetching, writable=prefix)
        variables = {**session.variables(self.environment, view), **fetching}
        argv = [str(self.environment.python), "-m", "tidemill_runtime", "install", str(prefix), requirements]
        ended = supervise(
            # The installer uses the machine's network and settings, unless the job must not have any network.
            session.wrap(argv, view=view, variables=variables, machine_network=not session.spec.closed),
            log=session.log,
            stop=session.stop,
            clock=session.clock,
            limits=Limits(grace_s=0, deadline_s=self.deadline_s),
            ask=Running.kill,
        )
        if ended.stop:
            raise Stopped(ended.stop)
        if ended.exit_code:
            raise reported_failure(session, ended, command=" ".join(argv[:4]))


def with_overlay(view: View, overlay: Overlay | None) -> View:
    """Return ``view`` with the overlay readable; ``view`` itself without an overlay."""
    return replace(view, read_only=(*view.read_only, overlay.prefix)) if overlay else view


def has_report(session: Session) -> bool:
    """Return whether the runtime or the script reported a failure in ``output/failure``."""
    text = read_beneath(session.directory.ml, "output/failure", max_bytes=_REPORT_MAX_BYTES)
    return bool(text and text.strip())


def reported_failure(session: Session, ended: Ended, *, command: str) -> InstanceFailure:
    """Return the failure that the runtime or the script reported, else one derived from the exit status.

    Args:
        session: The instance, whose ``output/failure`` may have a report.
        ended: The ended command.
        command: The command, for the message.
    """
    text = read_beneath(session.directory.ml, "output/failure", max_bytes=_REPORT_MAX_BYTES)
    if text:
        return algorithm_reason(text.decode(errors="replace"), peak_rss_bytes=ended.peak_rss_bytes)
    return ended_reason(
        ended.exit_code, stderr_tail=ended.stderr_tail, command=command, peak_rss_bytes=ended.peak_rss_bytes
    )


def _with_installer_files(view: View, fetching: dict[str, str], *, writable: Path) -> View:
    """Return the view with the files that the installer's variables name, e.g. certificates and local indexes."""
    named = tuple(Path(value) for value in fetching.values() if value.startswith("/") and Path(value).exists())
    return replace(view, read_only=(*view.read_only, *named), writable=(writable,))
