"""`tidemill run`: a client script in this process."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TELLS = """\
import json, os, sys
import neighbor
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "endpoint": os.environ.get("AWS_ENDPOINT_URL"),
    "compat": "tidemill.compat" in sys.modules,
    "neighbor": neighbor.VALUE,
}))
"""


@pytest.fixture
def client(tmp_path: Path) -> Path:
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "neighbor.py").write_text("VALUE = 7\n")
    script = tmp_path / "client" / "client.py"
    script.write_text(TELLS)
    return script


def test_a_client_runs_as_main_against_a_service_that_is_started_for_it(
    tidemill: Run, client: Path, variables: dict[str, str]
) -> None:
    ended = tidemill("run", str(client), "--epochs", "3", "-v", AWS_PROFILE="work")
    assert ended.returncode == 0, ended.stderr
    reported = json.loads(ended.stdout)
    assert reported["argv"] == [str(client), "--epochs", "3", "-v"]
    assert reported["name"] == "__main__"
    assert reported["compat"]
    assert reported["neighbor"] == 7
    record = json.loads((Path(variables["TIDEMILL_STATE_DIR"]) / "service.json").read_text())
    assert reported["endpoint"] == record["url"]
    assert f"tidemill runs at {record['url']}" in ended.stderr


def test_an_endpoint_that_is_named_already_is_kept_and_nothing_is_started(
    tidemill: Run, client: Path, variables: dict[str, str]
) -> None:
    ended = tidemill("run", str(client), AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert json.loads(ended.stdout)["endpoint"] == "http://127.0.0.1:9"
    assert not Path(variables["TIDEMILL_STATE_DIR"]).exists()


def test_the_exit_status_of_the_client_is_passed_on(tidemill: Run, client: Path) -> None:
    client.write_text("raise SystemExit(7)")
    assert tidemill("run", str(client), AWS_ENDPOINT_URL="http://127.0.0.1:9").returncode == 7


def test_an_error_of_the_client_shows_its_own_frames_only(tidemill: Run, client: Path) -> None:
    client.write_text("def train():\n    raise KeyError('lr')\n\ntrain()\n")
    ended = tidemill("run", str(client), AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert ended.stderr.splitlines()[-1] == "KeyError: 'lr'"
    assert "runpy" not in ended.stderr
    assert "tidemill/cli" not in ended.stderr


def test_a_missing_client_is_wrong_usage(tidemill: Run) -> None:
    assert tidemill("run", "nowhere.py").returncode == 2
