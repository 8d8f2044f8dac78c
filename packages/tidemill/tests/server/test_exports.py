"""The environment that clients get."""

from pathlib import Path

import pytest

from tidemill.core.clock import SystemClock
from tidemill.server.discovery import ServiceConnection, ServiceRecord
from tidemill.server.exports import client_environment, write_client_files
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory


@pytest.fixture
def connection() -> ServiceConnection:
    record = ServiceRecord.of_this_process(url="http://127.0.0.1:8780", region="eu-west-1", clock=SystemClock())
    return ServiceConnection(record, Keys("AKIAEXAMPLE", "s3cr3t"))


def test_the_variables_cover_all_generations_of_clients(connection: ServiceConnection, tmp_path: Path) -> None:
    assert client_environment(connection, state=StateDirectory(tmp_path), ambient={}) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:8780",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_REGION": "eu-west-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(tmp_path / "client" / "sagemaker.yaml"),
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        "SAGEMAKER_VALIDATE_ROLE": "false",
    }


def test_behind_a_proxy_loopback_is_excepted(connection: ServiceConnection, tmp_path: Path) -> None:
    ambient = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "intranet,localhost"}
    variables = client_environment(connection, state=StateDirectory(tmp_path), ambient=ambient)
    assert variables["NO_PROXY"] == variables["no_proxy"] == "127.0.0.1,localhost,::1,intranet"


def test_the_sdk_file_opts_out_of_telemetry_and_names_the_bucket(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.create()
    write_client_files(state, region="eu-west-1")
    lines = (state.client / "sagemaker.yaml").read_text().splitlines()
    assert "SchemaVersion: '1.0'" in lines
    assert "      TelemetryOptOut: true" in lines
    assert "        DefaultS3Bucket: sagemaker-eu-west-1-000000000000" in lines
