"""Commands, the service and its jobs connect to this machine only, unless somebody names another one."""

import ipaddress
import os
import subprocess
import sys
from pathlib import Path

from tidemill.testing import Service

# Imported by each Python process at its start, also by those of AWS's library and of the shim.
RECORDER = """
import os, sys
_file = os.open(os.environ["RECORD_CONNECTIONS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def _note(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        where = address[0] if isinstance(address, tuple) else "unix"
    elif event == "socket.getaddrinfo":
        where = arguments[0] or "localhost"
    else:
        return
    os.write(_file, f"{event} {where.decode() if isinstance(where, bytes) else where}\\n".encode())
sys.addaudithook(_note)
"""


def test_nothing_leaves_the_machine(tmp_path: Path) -> None:
    (tmp_path / "recorder").mkdir()
    (tmp_path / "recorder/sitecustomize.py").write_text(RECORDER)
    record = tmp_path / "connections"
    recorded = {"PYTHONPATH": str(tmp_path / "recorder"), "RECORD_CONNECTIONS": str(record)}
    (tmp_path / "train.py").write_text("print('done')")
    with Service(variables=recorded) as service:
        own = {"TIDEMILL_STATE_DIR": str(service.state_dir), "TIDEMILL_CONFIG": os.devnull}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_"))}
        for command in (["train", "train.py", "--name", "quiet"], ["ps", "--all"], ["doctor"], ["logs", "quiet"]):
            ended = subprocess.run(
                [sys.executable, "-m", "tidemill.cli", *command],
                cwd=tmp_path,
                env=kept | own | recorded,
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0 or command == ["doctor"], ended.stderr
    connections = [line.split(" ", 1) for line in record.read_text().splitlines()]
    assert any(event == "socket.connect" and where == "127.0.0.1" for event, where in connections)
    assert {where for _, where in connections if not is_here(where)} == set()


def is_here(where: str) -> bool:
    if where in ("unix", "localhost"):
        return True
    try:
        return ipaddress.ip_address(where.partition("%")[0]).is_loopback
    except ValueError:
        return False
