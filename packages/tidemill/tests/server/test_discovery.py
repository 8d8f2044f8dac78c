"""Finding the service."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tidemill.core.clock import SystemClock
from tidemill.errors import ConfigurationError
from tidemill.server.discovery import ServiceRecord, connect, find_service
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    directory = StateDirectory(tmp_path / "state")
    directory.create()
    return directory


@pytest.fixture
def record() -> ServiceRecord:
    return ServiceRecord.of_this_process(url="http://127.0.0.1:1", region="us-west-2", clock=SystemClock())


def test_a_live_service_is_found_with_its_keys(state: StateDirectory, record: ServiceRecord) -> None:
    record.publish(state)
    keys = Keys.load_or_create(state.keys_file)
    connection = connect(state)
    assert connection is not None
    assert (connection.service, connection.keys) == (record, keys)


def test_no_record_means_no_service(state: StateDirectory) -> None:
    assert find_service(state) is None
    assert connect(state) is None


@pytest.mark.parametrize("change", [{"boot_id": "another-boot"}, {"start_ticks": 1}, {"pid": 2**22 + 1}])
def test_the_record_of_a_dead_service_is_ignored(
    state: StateDirectory, record: ServiceRecord, change: dict[str, object]
) -> None:
    replace(record, **change).publish(state)
    assert find_service(state) is None


def test_members_that_a_newer_service_adds_are_left_out(state: StateDirectory, record: ServiceRecord) -> None:
    state.service_file.write_text(json.dumps(asdict(record) | {"tls": True}))
    assert find_service(state) == record


@pytest.mark.parametrize("content", ["{", "[]", '{"pid": 1}'])
def test_a_damaged_record_is_an_error_that_names_it(state: StateDirectory, content: str) -> None:
    state.service_file.write_text(content)
    with pytest.raises(ConfigurationError, match="not a service record"):
        find_service(state)
