"""The unit of systemd that `tidemill service install` writes."""

import ctypes
import json
import os
import shlex
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.server import systemd
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory
from tidemill.server.systemd import unit_of_settings
from tidemill.settings import Settings

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ODD = 'a b%c$d"e\\f'
"""A name of a directory with everything that systemd's syntax knows."""
_PR_SET_NO_NEW_PRIVS = 38


def installed(variables: dict[str, str]) -> Path:
    return Path(variables["HOME"]) / ".config/systemd/user/tidemill.service"


@pytest.fixture
def variables(variables: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user without systemd, whose state directory has an odd name."""
    (tmp_path / "no programs").mkdir()
    kept = {name: value for name, value in variables.items() if not name.startswith("XDG_")}
    return kept | {
        "PATH": str(tmp_path / "no programs"),
        "TIDEMILL_CONFIG": str(tmp_path / "config.toml"),
        "TIDEMILL_STATE_DIR": str(tmp_path / ODD),
    }


@pytest.mark.matrix
def test_install_is_idempotent_and_keeps_what_others_wrote(tidemill: Run, variables: dict[str, str]) -> None:
    unit = installed(variables)
    printed = tidemill("service", "install", "--dry-run")
    assert (printed.returncode, unit.exists()) == (0, False), printed.stderr
    first, second = tidemill("service", "install"), tidemill("service", "install")
    assert f"{unit} is written" in first.stdout
    assert "systemctl --user enable tidemill.service" in first.stdout
    assert "loginctl enable-linger" in first.stdout
    assert first.stderr.splitlines() == [
        "TIDEMILL_PORT is set in this shell, but the unit does not have it: use the settings file"
    ]
    assert f"{unit} is up to date" in second.stdout
    assert json.loads(tidemill("service", "install", "--json").stdout)["unit"] == str(unit)
    assert unit.read_text() == printed.stdout
    assert f"{unit} is installed" in tidemill("service", "status").stdout
    assert f"{unit} differs" in tidemill("service", "status", TIDEMILL_STATE_DIR="/elsewhere").stdout
    assert f"{unit} is renewed" in tidemill("service", "install", TIDEMILL_STATE_DIR="/elsewhere").stdout
    assert "--state-dir /elsewhere\n" in unit.read_text()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    for verb in ("install", "uninstall"):
        refused = tidemill("service", verb)
        assert refused.returncode == 1
        assert "was not written by `tidemill service install`" in refused.stderr
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"
    assert tidemill("service", "install", "--name", "../evil").returncode == 1
    assert f"{unit.with_name('other.service')} is written" in tidemill("service", "install", "--name", "other").stdout
    assert "is removed" in tidemill("service", "uninstall", "--name", "other").stdout
    assert "does not exist" in tidemill("service", "uninstall", "--name", "other").stdout


@pytest.mark.parametrize("version", [252, 254])
def test_systemd_accepts_every_line_of_the_unit(
    need: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    need("systemd")  # which has systemd-analyze
    monkeypatch.setattr(systemd, "_systemd_version", lambda: version)
    state_dir = tmp_path / ODD
    state_dir.mkdir()
    unit = unit_of_settings(Settings(state_dir=state_dir, environments_dir=tmp_path / ODD), name="tidemill")
    file = tmp_path / "tidemill.service"
    file.write_text(unit.text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--user", str(file)],
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    # A release that lacks a directive says so, and ignores it.
    said = [line for line in verified.stderr.splitlines() if "DelegateSubgroup" not in line]
    assert (verified.returncode, said) == (0, [])
    assert ("Delegate=yes" in unit.text) == (version == 254)


def test_the_command_of_the_unit_serves_reports_it_and_isolates_jobs_as_without_its_hardening(
    tidemill: Run, variables: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("port = 0\n")
    whole = variables | {"PATH": os.environ["PATH"], "PYTHONPATH": ""}
    del whole["TIDEMILL_PORT"]
    assert (
        tidemill("up", **{name: whole.get(name, "0") for name in ("PATH", "PYTHONPATH", "TIDEMILL_PORT")}).returncode
        == 0
    )
    expected = isolation(variables)
    assert tidemill("down").returncode == 0
    logged = tidemill("service", "logs").stdout
    assert logged.index("service.started") < logged.index("service.ended")
    unit = unit_of_settings(Settings(state_dir=Path(variables["TIDEMILL_STATE_DIR"])), name="tidemill")
    line = next(each for each in unit.text.splitlines() if each.startswith("ExecStart="))
    command = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.removeprefix("ExecStart="))]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notify"))
        notices.settimeout(60)
        process = subprocess.Popen(
            command,
            env=whole | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),  # NoNewPrivileges=yes
        )
        try:
            assert notices.recv(100) == b"READY=1"
            assert isolation(variables) == expected
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0  # Restart=on-failure leaves it ended


def isolation(variables: dict[str, str]) -> str:
    running = find_service(StateDirectory(Path(variables["TIDEMILL_STATE_DIR"])))
    assert running is not None
    with urllib.request.urlopen(f"{running.url}/healthz", timeout=60) as answer:
        return json.loads(answer.read())["isolation"]
