"""The walkthrough for a team, command by command, on loopback and with a stand-in for systemd."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tidemill.settings import Settings

PAGE = Path(__file__).parents[2] / "docs/how-to/run-a-service-for-a-team.md"
ANN = "On Ann's machine"

# Starts and stops the command of a unit as the user's systemd does, and says so in a file.
SYSTEMCTL = """
import os, pathlib, shlex, signal, socket, subprocess, sys
home = pathlib.Path(os.environ["HOME"])
with (home / "systemctl.log").open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
assert sys.argv[1] == "--user", sys.argv
verb, names = sys.argv[2], [each for each in sys.argv[3:] if not each.startswith("-")]
pid_file = home / "service.pid"

def stop():
    if pid_file.exists():
        pid = int(pid_file.read_text())
        fd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGTERM)
        import select
        select.select([fd], [], [], 60)
        pid_file.unlink()

def start():
    unit = (home / ".config/systemd/user/tidemill.service").read_text().splitlines()
    values = lambda name: [line.partition("=")[2] for line in unit if line.startswith(name + "=")]
    (command,) = values("ExecStart")
    environment = {"HOME": str(home)}
    for each in values("Environment"):
        (pair,) = shlex.split(each)
        name, _, value = pair.replace("%%", "%").partition("=")
        environment[name] = value
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    address = home / "notify"
    address.unlink(missing_ok=True)
    notices.bind(str(address))
    notices.settimeout(90)
    words = [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]
    with (home / "journal").open("ab") as journal:
        process = subprocess.Popen(
            words, env={**environment, "NOTIFY_SOCKET": str(address)}, stdin=subprocess.DEVNULL,
            stdout=journal, stderr=journal, start_new_session=True,
        )
    pid_file.write_text(str(process.pid))
    assert notices.recv(100) == b"READY=1"

if verb == "is-system-running":
    print("running")
elif verb == "is-active":
    print("active" if pid_file.exists() else "inactive")
elif verb == "start":
    start()
elif verb in ("stop", "disable"):
    stop()
elif verb == "restart":
    stop()
    start()
else:
    assert verb in ("daemon-reload", "enable", "--version"), sys.argv
"""


def sections() -> list[tuple[str, list[str]]]:
    """Return the commands of the page by section."""
    parts = re.split(r"^## (.+)\n", PAGE.read_text(), flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [(title, re.findall(r"```sh\n(.*?)```", text, re.DOTALL)) for title, text in pairs]


@pytest.fixture
def receiver() -> Iterator[list[bytes]]:
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    got.append(f"http://127.0.0.1:{server.server_port}/".encode())
    yield got
    server.shutdown()
    server.server_close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[[str, str], str]]:
    """Yield a function that runs commands in the home of a user, and ends the service of the page afterwards."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, source in (
        ("systemctl", SYSTEMCTL),
        ("loginctl", "import sys; assert sys.argv[1:] == ['enable-linger']"),
    ):
        (programs / name).write_text(f"#!{sys.executable}\n{source}")
        (programs / name).chmod(0o755)
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin"))

    def run(user: str, commands: str) -> str:
        home = tmp_path / user
        home.mkdir(exist_ok=True)
        variables = {"HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8", "USER": "nobody", "LOGNAME": "nobody"}
        variables["TIDEMILL_ENVIRONMENTS_DIR"] = str(Settings().environments_dir)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=home,
            env=variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    pid_file = tmp_path / "owner/service.pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def test_the_commands_of_the_page_lead_to_a_service_that_a_team_uses(
    need: Callable[[str], None], machine: Callable[[str, str], str], receiver: list[bytes], tmp_path: Path
) -> None:
    need("openssl")
    if shutil.which("curl") is None:
        pytest.skip("no curl here, which the page uses")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    on_loopback = {
        "DNS:tidemill.example": "DNS:localhost,IP:127.0.0.1",
        "tidemill.example": "localhost",
        "8780": str(port),
        'host = "0.0.0.0"': 'host = "127.0.0.1"',
        "https://hooks.example/tidemill": receiver[0].decode(),
    }
    printed: dict[str, str] = {}
    for title, blocks in sections():
        user = "ann" if title == ANN else "owner"
        if user == "ann":
            (tmp_path / "ann").mkdir()
            shutil.copy(tmp_path / "owner/ann.sh", tmp_path / "ann/ann.sh")
            shutil.copy(tmp_path / "owner/tidemill-tls/certificate.pem", tmp_path / "ann/certificate.pem")
        for block in blocks:
            commands = block
            for there, here in on_loopback.items():
                commands = commands.replace(there, here)
            printed[title] = printed.get(title, "") + machine(user, commands)
    assert f"https://127.0.0.1:{port}" in printed["The service"]
    assert "hello from Ann" in printed[ANN]
    assert re.search(rf"https://\S+:{port}/_tidemill/#token=\S+", printed[ANN])
    assert 'tidemill_jobs{kind="training-job",status="Completed"} 1' in (tmp_path / "owner/metrics.txt").read_text()
    assert (tmp_path / "owner/prometheus.token").read_text().startswith("tmm_")
    assert b"tidemill Webhook Test" in receiver[1]
    assert "ann-hello" in printed["Backups"]
    assert "ann" in printed["The end"]
    steps = (tmp_path / "owner/systemctl.log").read_text().splitlines()
    assert steps.count("--user start tidemill") == 3
    assert steps.count("--user restart tidemill") == 1
    assert not (tmp_path / "owner/.config/systemd/user/tidemill.service").exists()
    assert not (tmp_path / "owner/service.pid").exists()
