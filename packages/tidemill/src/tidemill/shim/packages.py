"""Install the packages that the user's code needs, before any of that code runs.

Packages that the code requires by name only are installed once for all jobs, in a sandbox that has nothing of the job:
only the list of names and the service's settings. Everything else (index options, files, URLs, a setup.py, variables of
the request for pip) is installed in the job's sandbox, for this instance only.
"""

import hashlib
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.core.instances import Isolation
from tidemill.environments.builder import JobEnvironment
from tidemill.environments.layers import site_packages
from tidemill.environments.overlays import Overlays, RequirementsOverlay
from tidemill.environments.python_2 import write_script_venv
from tidemill.environments.requirements import Requirements
from tidemill.environments.uv_command import configures_installers, installer_variables
from tidemill.environments.venv_files import write_venv
from tidemill.sandbox import Launch, View
from tidemill.shim.beneath import read_beneath
from tidemill.shim.failures import InstanceFailure, algorithm_reason, ended_reason, of_os_error
from tidemill.shim.session import InstanceSession
from tidemill.shim.stopping import Stopped
from tidemill.shim.supervision import CommandEnd, CommandLimits, Running, supervise

_REPORT_MAX_BYTES = 64 * 1024
_REQUIREMENTS_MAX_BYTES = 4 * 1024 * 1024
_SETTINGS_MAX_BYTES = 1 << 20
_SETUP = "setup.py"
_OWN = ".tidemill/environment"
_OF_BUILDS = frozenset({"CC", "CFLAGS", "CPPFLAGS", "CXX", "CXXFLAGS", "HOME", "LDFLAGS", "NETRC", "PATH"})
"""Variables, besides those of pip and uv, that change the result of an installation."""
_OF_INSTALLERS = {"XDG_CACHE_HOME": ("pip", "uv"), "XDG_CONFIG_HOME": ("pip/pip.conf", "uv/uv.toml")}
"""What installers need below directories that other programs use too, mostly for credentials."""


class Needs:
    """A pipe on which an in-job distribution reports which packages the code needs, before it starts that code.

    Only the first message counts, and it is written before any user code runs, so user code cannot forge it. The exit
    status does not count.

    Attributes:
        fd: Write end, for the command; `supervise` closes it.
    """

    VARIABLE = "TIDEMILL_NEEDS_FD"

    def __init__(self) -> None:
        self._read_fd, self.fd = os.pipe()
        os.set_blocking(self._read_fd, False)

    def read(self) -> str:
        """Return the path of the reported requirements.txt or setup.py, as the job sees it; empty if none is needed.

        To be called once, when the command has ended.
        """
        with os.fdopen(self._read_fd, "rb", buffering=0) as pipe:
            message = pipe.read(_REPORT_MAX_BYTES) or b"{}"
        with suppress(ValueError):
            first, _ = json.JSONDecoder().raw_decode(message.decode())
            return str(first.get("requirements", ""))
        return ""


@dataclass(frozen=True, slots=True)
class Installed:
    """The Python environment of an instance's code.

    Attributes:
        prefix: Its own layer, which it may change, as the job sees it. pip, uv and the packages that they install at
            run time are there. It ends with the instance.
        shared: The overlay below it, which all jobs with the same requirements share; None without one.
        has_packages: Whether the packages that the code needs are installed. Default: they are not, or it needs none.
    """

    prefix: Path
    shared: RequirementsOverlay | None = None
    has_packages: bool = False

    @property
    def commands(self) -> str:
        """The directories of its commands, for the front of PATH."""
        shared = [f"{self.shared.prefix}/bin"] if self.shared else []
        return os.pathsep.join([f"{self.prefix}/bin", *shared])

    @property
    def variables(self) -> dict[str, str]:
        """The variables by which an in-job distribution finds the environment."""
        packages = {"TIDEMILL_OVERLAY": str(self.shared.prefix if self.shared else self.prefix)}
        return {"TIDEMILL_ENVIRONMENT": str(self.prefix), **(packages if self.has_packages else {})}

    def added_to(self, view: View) -> View:
        """Return ``view`` with the shared overlay readable; the instance's own layer is below ``/opt/ml``.

        Args:
            view: What a command may see.
        """
        return replace(view, read_only=(*view.read_only, self.shared.prefix)) if self.shared else view


def record_of(installed: Installed) -> dict[str, str]:
    """Return members of an instance's record: key and content digest of the shared overlay, empty without one."""
    shared = installed.shared
    return {"overlay_key": shared.key if shared else "", "overlay_sha256": shared.sha256 if shared else ""}


@dataclass(frozen=True, slots=True)
class Packages:
    """Installs the packages that the code of an instance needs.

    Attributes:
        environment: The environment below; it is not changed.
        deadline_s: Time on the session's monotonic clock at which to give up. Default: never.
    """

    session: InstanceSession
    environment: JobEnvironment
    deadline_s: float | None = None

    def prepare(self) -> Installed:
        """Create the instance's own layer above the environment.

        Raises:
            InstanceFailure: The layer cannot be written.
        """
        return self._with_own_layer(Installed(Path(f"{self.session.base_dir}/{_OWN}")))

    def install(self, requirements: str) -> Installed:
        """Install the packages of a requirements.txt or setup.py. No code of the user has run in the instance.

        Args:
            requirements: The file, as the job sees it.

        Raises:
            InstanceFailure: The packages cannot be installed.
            Stopped: A stop was requested.
        """
        session = self.session
        found, own = self._read(requirements)
        started_s = time.monotonic()
        if own:
            session.log.note(f"tidemill: installing packages of {requirements} for this job only: {own}")
            installed = self._install_own(requirements)
        else:
            session.log.note(f"tidemill: installing packages of {requirements}")
            own_layer = Path(f"{session.base_dir}/{_OWN}")
            installed = self._with_own_layer(Installed(own_layer, self._shared(found), has_packages=True))
        session.log.note(f"tidemill: packages are ready after {time.monotonic() - started_s:.1f} s")
        return installed

    def _read(self, requirements: str) -> tuple[Requirements, str]:
        """Return the requirements, and why they are installed for this job only; empty if for all jobs."""
        if requirements.endswith(f"/{_SETUP}"):
            return Requirements((), ""), "the code is a package"
        if self.environment.script:
            return Requirements((), ""), f"they are for Python {self.environment.script.interpreter.minor}"
        root, relative = self._place(requirements)
        text = read_beneath(root, relative, max_bytes=_REQUIREMENTS_MAX_BYTES)
        if text is None or len(text) == _REQUIREMENTS_MAX_BYTES:
            return Requirements((), ""), f"it is a link, or longer than {_REQUIREMENTS_MAX_BYTES} bytes"
        found = Requirements.parse(text)
        variables = self.session.spec.variables
        named = sorted(name for name in variables if configures_installers(name) or name in _OF_BUILDS)
        return found, found.own or (f"the job sets {', '.join(named)}" if named else "")

    def _place(self, requirements: str) -> tuple[Path, str]:
        """Return where a file of the job is outside of the sandbox: a directory and the path below it."""
        relative = requirements.removeprefix(f"{self.session.base_dir}/")
        for source, below in self.session.covers:
            if relative.startswith(f"{below}/"):
                return source, relative.removeprefix(f"{below}/")
        return self.session.directory.ml, relative

    def _with_own_layer(self, installed: Installed) -> Installed:
        """Create the instance's own layer anew; no code of the user has run in the instance."""
        directory, interpreter = self.session.directory.ml / _OWN, self.environment.interpreter
        shared = installed.shared
        below = site_packages(shared.prefix, interpreter.minor) if shared else self.environment.site_packages
        try:
            remove_tree(directory)
            if self.environment.script:
                write_script_venv(directory, self.environment.script)
            else:
                write_venv(directory, interpreter, below=below)
        except OSError as error:
            raise of_os_error(error, place=str(installed.prefix)) from error
        return installed

    def _install_own(self, requirements: str) -> Installed:
        session = self.session
        prefix = f"{session.base_dir}/{_OWN}"
        settings = installer_variables(os.environ)
        view = with_installer_files(session.view(self.environment), settings)
        variables = {**settings, **session.variables(self.environment, view)}
        launch = session.wrap_module(
            "tidemill_runtime",
            ["install", prefix, requirements],
            environment=self.environment,
            view=view,
            variables=variables,
            # The installer uses the machine's network, unless the job must not have any network.
            machine_network=not session.spec.closed,
        )
        self._run(launch, ml=session.directory.ml)
        return Installed(Path(prefix), has_packages=True)

    def _shared(self, requirements: Requirements) -> RequirementsOverlay:
        session = self.session
        settings = installer_variables(os.environ)
        return Overlays(session.task.site.environments_dir / "overlays").ensure(
            self.environment.key,
            (
                requirements.text,
                _digest(settings),
                # A sandbox of less isolation may be writable for jobs, and a closed one has no index.
                f"{session.sandbox.isolation}{', closed' if session.spec.closed else ''}",
            ),
            install=lambda prefix: self._install_shared(prefix, requirements, settings),
            log=session.log.note,
            poll=session.stop.check,
            writable=session.isolation is Isolation.PLAIN,
        )

    def _install_shared(self, prefix: Path, requirements: Requirements, settings: dict[str, str]) -> None:
        """Install with the service's settings, in a sandbox without files and variables of the job."""
        session = self.session
        place = session.directory.path / "packages"
        remove_tree(place)
        for name in ("ml", "home", "tmp/tmp", "tmp/var"):
            (place / name).mkdir(parents=True, mode=0o700)
        (place / "ml/requirements.txt").write_text(requirements.text)
        view = replace(
            with_installer_files(session.view(self.environment), settings),
            ml=place / "ml",
            home=place / "home",
            tmp=place / "tmp",
            mounted=(),
            covers=(),
            writable=(prefix,),
        )
        write_venv(prefix, self.environment.interpreter, below=self.environment.site_packages)
        variables = {**session.own_variables(self.environment, view), **settings}
        launch = session.wrap_module(
            "tidemill_runtime",
            ["install", str(prefix), f"{session.sandbox.base_dir(view)}/requirements.txt"],
            environment=self.environment,
            view=view,
            variables=variables,
            machine_network=not session.spec.closed,
        )
        self._run(launch, ml=place / "ml")
        remove_tree(place)

    def _run(self, launch: Launch, *, ml: Path) -> None:
        session = self.session
        ended = supervise(
            launch,
            log=session.log,
            stop=session.stop,
            clock=session.clock,
            limits=CommandLimits(grace_s=0, deadline_s=self.deadline_s),
            ask=Running.kill,
        )
        if ended.stop:
            raise Stopped(ended.stop)
        if ended.exit_code:
            raise reported_failure(ml, ended, command="python -m tidemill_runtime install")


def has_report(ml: Path) -> bool:
    """Return whether the runtime or the script reported a failure in ``output/failure`` of the directory ``ml``.

    Args:
        ml: Directory of ``/opt/ml``.
    """
    text = read_beneath(ml, "output/failure", max_bytes=_REPORT_MAX_BYTES)
    return bool(text and text.strip())


def reported_failure(ml: Path, ended: CommandEnd, *, command: str, out_of_memory: bool = False) -> InstanceFailure:
    """Return the failure that the runtime or the script reported, else one derived from the exit status.

    Args:
        ml: The directory whose ``output/failure`` may have a report.
        command: The command, for the message.
        out_of_memory: Whether the kernel has killed a process of the instance for lack of memory. Default: false.
    """
    text = read_beneath(ml, "output/failure", max_bytes=_REPORT_MAX_BYTES)
    if text:
        return algorithm_reason(text.decode(errors="replace"), out_of_memory=out_of_memory)
    return ended_reason(
        ended.exit_code,
        stderr_tail=ended.stderr_tail,
        command=command,
        peak_rss_bytes=ended.peak_rss_bytes,
        out_of_memory=out_of_memory,
    )


def _named_files(settings: dict[str, str]) -> list[Path]:
    """Return the files that the service's settings name, e.g. certificates and local indexes."""
    paths = (
        Path(value.removeprefix("file://"), below)
        for name, value in settings.items()
        for below in _OF_INSTALLERS.get(name, ("",))
    )
    return [path for path in paths if path.is_absolute() and path.exists()]


def with_installer_files(view: View, settings: dict[str, str]) -> View:
    """Return ``view`` with the files that the service's settings for installers name.

    The commands of a job that installs packages of its own run in this view.

    Args:
        view: What a command may see.
    """
    return replace(view, read_only=(*view.read_only, *_named_files(settings)))


def _digest(settings: dict[str, str]) -> str:
    """Return a digest of the service's settings for installers, with the content of the files that they name."""
    digest = hashlib.sha256(json.dumps(sorted(settings.items())).encode())
    for path in _named_files(settings):
        if path.is_file() and path.stat().st_size <= _SETTINGS_MAX_BYTES:
            digest.update(path.read_bytes())
    return digest.hexdigest()
