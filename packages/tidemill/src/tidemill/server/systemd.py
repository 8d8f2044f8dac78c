"""The service as a unit of the user's systemd: the text of the unit, and its file."""

import getpass
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.files import write_durably
from tidemill.errors import ConfigurationError
from tidemill.settings import Settings

_MARK = "# Written by `tidemill service install`, which replaces it."
_LINGER = Path("/var/lib/systemd/linger")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_IN_UNIT = ("TIDEMILL_CONFIG", "TIDEMILL_STATE_DIR", "TIDEMILL_ENVIRONMENTS_DIR")
_OF_CLIENTS = ("TIDEMILL_ENDPOINT_URL",)
_DELEGATES_SUBGROUP = 254

_UNIT = """\
{mark}
[Unit]
Description=tidemill, SageMaker TensorFlow on this machine
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
ExecStart={command}
WorkingDirectory={state_dir}
{environment}\
Restart=on-failure
RestartSec=2
# Another service uses the state directory.
RestartPreventExitStatus=3
TimeoutStartSec=90
TimeoutStopSec=60

# Jobs and endpoints belong to the unit and outlive the service: neither its end nor the end of one of them, e.g. for
# lack of memory, may end the others.
KillMode=process
OOMPolicy=continue
{delegation}\

# Jobs have a sandbox of their own, for which the service needs namespaces, mounts in them and FUSE: directives that
# restrict these (ProtectSystem=, PrivateTmp=, RestrictNamespaces=, ...) would turn the sandbox off.
{hardening}\
UMask=0077

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class UserUnit:
    """A unit of the user's systemd.

    Attributes:
        name: Name without ``.service``.
        text: Content of its file.
    """

    name: str
    text: str

    @property
    def file(self) -> Path:
        """Where it is installed."""
        return unit_file(self.name)

    @property
    def user(self) -> str:
        """Name of the user."""
        return getpass.getuser()

    @property
    def lingers(self) -> bool:
        """Whether the user's units run without a login."""
        return (_LINGER / self.user).exists()

    def state(self) -> str:
        """Return whether the file exists and is as it would be written."""
        if not self.file.exists():
            return "is not installed"
        if not written_by_tidemill(self.file):
            return "was not written by tidemill"
        return "is installed" if self.file.read_text() == self.text else "differs: `tidemill service install` renews it"

    def write(self) -> str:
        """Write the file unless it is there; return what was done.

        Raises:
            ConfigurationError: There is a file that tidemill has not written.
        """
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            done = "is written"
        elif not written_by_tidemill(self.file):
            raise ConfigurationError(
                f"{self.file} was not written by `tidemill service install`, so it stays; choose another --name, or"
                " remove it yourself"
            )
        elif self.file.read_text() == self.text:
            return "is up to date"
        else:
            done = "is renewed"
        write_durably(self.file, self.text.encode(), mode=0o644)
        return done

    def left_out(self, variables: Mapping[str, str]) -> list[str]:
        """Return the names of variables with settings that the unit does not have.

        Args:
            variables: Environment of the installing process.
        """
        names = (name for name in variables if name.startswith("TIDEMILL_"))
        return sorted(name for name in names if name not in (*_IN_UNIT, *_OF_CLIENTS))


def unit_of_settings(settings: Settings, *, name: str) -> UserUnit:
    """Return the unit that runs the service of a state directory.

    Args:
        settings: Name the directories.

    Raises:
        ConfigurationError: The name is none of a unit.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is no name of a unit: up to 64 letters, digits, '-', '_' and '.' are allowed, a letter or digit"
            " first"
        )
    state_dir = settings.state_dir.absolute()
    # -P: a file in the working directory must not shadow a module of the service.
    command = [sys.executable, "-P", "-m", "tidemill.cli", "up", "--foreground", "--state-dir", str(state_dir)]
    text = _UNIT.format(
        mark=_MARK,
        command=" ".join(_quoted(word).replace("$", "$$") for word in command),
        state_dir=f"-{_percented(str(state_dir))}",
        environment="".join(f"Environment={_quoted(f'{key}={value}')}\n" for key, value in _environment(settings)),
        delegation=_delegation(),
        hardening=_hardening(),
    )
    return UserUnit(name, text)


def unit_file(name: str) -> Path:
    """Return the path of a unit of the user.

    Args:
        name: Name without ``.service``.
    """
    config = os.environ.get("XDG_CONFIG_HOME")
    root = Path(config) if config and Path(config).is_absolute() else Path.home() / ".config"
    return root / "systemd/user" / f"{name}.service"


def written_by_tidemill(file: Path) -> bool:
    """Return whether a file is a unit that `UserUnit.write` wrote.

    Args:
        file: An existing file.
    """
    return file.read_bytes().startswith(_MARK.encode())


def _environment(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the variables that name files and programs, which a unit would not find otherwise."""
    yield "PATH", os.environ.get("PATH", os.defpath)
    config = os.environ.get("TIDEMILL_CONFIG")
    if config:
        yield "TIDEMILL_CONFIG", str(Path(config).absolute())
    if "environments_dir" in settings.model_fields_set:
        yield "TIDEMILL_ENVIRONMENTS_DIR", str(settings.environments_dir.absolute())


def _delegation() -> str:
    """Return the lines that hand the unit's control group over, by which the memory of jobs is limited.

    With older versions a restart could not enter the group again while jobs run, so that they keep it, and the memory
    of jobs is limited without the kernel's help.
    """
    if _systemd_version() < _DELEGATES_SUBGROUP:
        return ""
    return "Delegate=yes\nDelegateSubgroup=tidemill-service\n"


def _systemd_version() -> int:
    """Return the version of the installed systemd; 0 if there is none."""
    try:
        printed = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return 0
    found = re.match(r"systemd (\d+)", printed)
    return int(found[1]) if found else 0


def _hardening() -> str:
    """Return the directives that the sandbox of jobs allows."""
    bubblewrap = shutil.which("bwrap")
    if bubblewrap and Path(bubblewrap).stat().st_mode & stat.S_ISUID:
        return ""  # where users may have no namespaces, it needs its privileges
    return "NoNewPrivileges=yes\nLockPersonality=yes\nRestrictRealtime=yes\n"


def _percented(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Return one word of a command or an assignment in systemd's syntax."""
    if any(not character.isprintable() for character in text):
        raise ConfigurationError(f"{text!r} has control characters, which a unit of systemd cannot have")
    escaped = _percented(text).replace("\\", "\\\\").replace('"', '\\"')
    return escaped if re.fullmatch(r"[\w./:=@+,%$-]+", escaped, re.ASCII) else f'"{escaped}"'
