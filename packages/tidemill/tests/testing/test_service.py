"""The service for tests, as a user of `tidemill.testing` sees it."""

import json
import os
import socket
import stat
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tidemill.errors import ConfigurationError
from tidemill.testing import Service, ServiceDied

TOY = {"PYTHONPATH": str(Path(__file__).parents[1] / "toy")}


def health(service: Service) -> dict[str, str]:
    with urllib.request.urlopen(f"{service.url}/healthz") as reply:
        return json.load(reply)


def test_a_service_lives_as_long_as_its_block_and_leaves_nothing() -> None:
    with Service(variables=TOY) as service:
        pid = service.pid
        assert pid is not None
        assert health(service)["status"] == "ok"
        assert stat.S_IMODE(service.state_dir.stat().st_mode) == 0o700
        assert "service.started" in service.log
    assert not service.state_dir.exists()
    assert service.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_two_services_at_the_same_time_are_apart() -> None:
    with Service(variables=TOY) as one, Service(variables=TOY) as two:
        assert one.url != two.url
        assert one.environment["AWS_ACCESS_KEY_ID"] != two.environment["AWS_ACCESS_KEY_ID"]


def test_a_restart_after_kill_nine_keeps_state_port_and_sessions(tmp_path: Path) -> None:
    with Service(state_dir=tmp_path / "state", variables=TOY) as service:
        (service.state_dir / "toy.json").write_text('{"jobs": {"digits": "InProgress"}, "endpoints": {}, "logs": {}}')
        client, url, environment = service.client("sagemaker"), service.url, service.environment
        service.kill()
        assert service.pid is None
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", int(url.rpartition(":")[2])))
        service.start()
        assert (service.url, service.environment) == (url, environment)
        assert client.list_training_jobs()["TrainingJobSummaries"][0]["TrainingJobName"] == "digits"
        before = service.pid
        service.restart()
        assert service.pid != before
        assert health(service)["status"] == "ok"
    assert (tmp_path / "state" / "keys.json").exists()


def test_a_service_that_does_not_start_shows_its_log() -> None:
    service = Service(variables=TOY | {"TOY_FAILS": "refuses"})
    with pytest.raises(ServiceDied, match="wind it up"), service:
        raise AssertionError("it started")
    assert not service.state_dir.exists()


def test_a_service_that_died_is_reported_at_the_end_of_the_block() -> None:
    service = Service(variables=TOY)
    with pytest.raises(ServiceDied, match=r"status -9.*\n.*service\.started"), service:
        assert service.pid is not None
        os.kill(service.pid, 9)
    assert not service.state_dir.exists()


def test_a_dead_service_has_no_environment() -> None:
    with Service(variables=TOY) as service:
        service.kill()
        with pytest.raises(ServiceDied, match="does not run"):
            _ = service.environment


def test_settings_of_the_developer_stay_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDEMILL_REGION", "eu-west-1")
    monkeypatch.setenv("TIDEMILL_STATE_DIR", str(tmp_path / "mine"))
    with Service(variables=TOY, settings={"log_level": "debug"}) as service:
        assert service.environment["AWS_REGION"] == "us-west-2"
    assert not (tmp_path / "mine").exists()


def test_a_path_reaches_the_service_as_a_path(tmp_path: Path) -> None:
    service = Service(settings={"environments_dir": tmp_path / "built"})
    assert service._process_environment()["TIDEMILL_ENVIRONMENTS_DIR"] == str(tmp_path / "built")
    service._clean_up()


def test_settings_reach_the_service() -> None:
    with Service(variables=TOY, settings={"region": "eu-west-1", "allowed_hosts": ("mill",)}) as service:
        assert service.environment["AWS_REGION"] == "eu-west-1"


def test_a_wrong_setting_is_shown() -> None:
    with (
        pytest.raises(ServiceDied, match="isolation='docker'"),
        Service(variables=TOY, settings={"isolation": "docker"}),
    ):
        raise AssertionError("it started")


def test_a_setting_that_does_not_exist_is_refused_by_name() -> None:
    service = Service(variables=TOY, settings={"stop_grace": 2})
    with pytest.raises(ConfigurationError, match=r"\['stop_grace'\].*stop_grace_s"), service:
        raise AssertionError("it started")
    assert not service.state_dir.exists()


def test_importing_the_package_loads_neither_boto3_nor_the_service() -> None:
    program = "import json, sys, tidemill.testing.plugin; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(subprocess.check_output([sys.executable, "-c", program], text=True)))
    assert not {"boto3", "botocore", "uvloop", "sqlalchemy", "pydantic", "tidemill.server"} & loaded
