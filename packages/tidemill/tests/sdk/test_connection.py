"""The service that the SDK connects to."""

import io
import os
import sys
from pathlib import Path

import pytest

from tidemill.core.files import write_json
from tidemill.core.process import ProcessId
from tidemill.errors import ConfigurationError
from tidemill.sdk.connection import connect, find_local_service
from tidemill.sdk.console import Console
from tidemill.settings import Settings

FAKE_CLI = '''
"""Stands in for the command line: `up` publishes a service in the state directory."""
import json, os, sys
from pathlib import Path
from tidemill.core.process import ProcessId
assert sys.argv[1:] == ["up"], sys.argv
state = Path(os.environ["TIDEMILL_STATE_DIR"])
if (state / "refuse").exists():
    sys.exit("the disk is full")
own = ProcessId.of(os.getppid())
entry = {"version": 1, "pid": own.pid, "boot_id": own.boot_id, "start_ticks": own.start_ticks,
         "url": "http://127.0.0.1:9", "region": "eu-west-1"}
(state / "keys.json").write_text(json.dumps({"access_key_id": "AKIA1", "secret_access_key": "s"}))
(state / "service.json").write_text(json.dumps(entry))
'''


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "TIDEMILL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TIDEMILL_CONFIG", str(tmp_path / "none.toml"))


def publish(state: Path, *, process: ProcessId) -> None:
    entry = {"pid": process.pid, "boot_id": process.boot_id, "start_ticks": process.start_ticks}
    write_json(state / "service.json", {"version": 1, **entry, "url": "http://127.0.0.1:9", "region": "eu-west-1"})
    write_json(state / "keys.json", {"access_key_id": "AKIA1", "secret_access_key": "s"})


def fake_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the started interpreter find another `tidemill.cli` than the real one."""
    program = tmp_path / "python"
    (tmp_path / "fake_cli.py").write_text(FAKE_CLI)
    program.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} {tmp_path}/fake_cli.py "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))


def test_a_configured_endpoint_wins_and_uses_the_environments_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, process=ProcessId.own())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA9")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s9")
    session = connect(settings=Settings(state_dir=tmp_path, endpoint_url="http://127.0.0.1:7"))
    assert session.endpoint_url == "http://127.0.0.1:7"
    assert session.get_credentials().access_key == "AKIA9"


def test_the_environments_endpoint_comes_before_the_local_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, process=ProcessId.own())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:6")
    session = connect(settings=Settings(state_dir=tmp_path))
    client = session.client("sagemaker")
    assert client.meta.endpoint_url == "http://127.0.0.1:6"
    assert session.region_name == "us-west-2"
    client.close()


def test_a_running_local_service_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(tmp_path, process=ProcessId.own())
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    session = connect(settings=Settings(state_dir=tmp_path))
    client = session.client("s3")
    assert (client.meta.endpoint_url, session.region_name) == ("http://127.0.0.1:9", "eu-west-1")
    assert session.get_credentials().access_key == "AKIA1"
    assert client.meta.config.proxies == {}
    client.close()


def test_the_file_of_a_dead_service_is_ignored(tmp_path: Path) -> None:
    own = ProcessId.own()
    publish(tmp_path, process=ProcessId(own.boot_id, own.pid, own.start_ticks + 1))
    assert find_local_service(tmp_path) is None
    assert find_local_service(tmp_path / "absent") is None


def test_unusable_files_are_an_error_that_names_them(tmp_path: Path) -> None:
    publish(tmp_path, process=ProcessId.own())
    (tmp_path / "keys.json").unlink()
    with pytest.raises(ConfigurationError, match=r"keys.json is missing"):
        find_local_service(tmp_path)
    (tmp_path / "service.json").write_text("{")
    with pytest.raises(ConfigurationError, match="cannot be used: JSONDecodeError"):
        find_local_service(tmp_path)


def test_a_service_is_started_if_none_runs_and_one_line_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_cli(tmp_path, monkeypatch)
    printed = io.StringIO()
    session = connect(settings=Settings(state_dir=tmp_path), console=Console(printed))
    assert session.endpoint_url == "http://127.0.0.1:9"
    assert printed.getvalue() == (
        f"Started the tidemill service at http://127.0.0.1:9 (process {os.getpid()}); `tidemill down` ends it.\n"
    )


def test_a_service_that_does_not_start_shows_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cli(tmp_path, monkeypatch)
    (tmp_path / "refuse").touch()
    with pytest.raises(ConfigurationError, match=r"ended with status 1. It said:\nthe disk is full"):
        connect(settings=Settings(state_dir=tmp_path))
