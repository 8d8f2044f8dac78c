"""The pytest fixtures, in a separate test run."""

import os
import subprocess
import sys
from pathlib import Path

TOY = Path(__file__).parents[1] / "toy"

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def tidemill_settings():
    return {"region": "eu-west-1"}
"""

TESTS = """
import json, os, sys
import pytest

def test_before_a_fixture_is_asked_for_nothing_is_loaded():
    assert not {"boto3", "uvloop", "pydantic"} & set(sys.modules)

def test_the_session_talks_to_the_service(tidemill_session, tidemill_service):
    (tidemill_service.state_dir / "toy.json").write_text(
        json.dumps({"jobs": {"digits": "InProgress"}, "endpoints": {}, "logs": {}})
    )
    jobs = tidemill_session.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in jobs] == ["digits"]
    assert tidemill_session.region_name == "eu-west-1"

def test_the_service_is_shared(tidemill_service):
    assert (tidemill_service.state_dir / "toy.json").exists()
    with open("where", "w") as file:
        file.write(str(tidemill_service.state_dir))
"""


def run_pytest(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=directory,
        env=variables | {"PYTHONPATH": str(TOY)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_fixtures_start_one_service_on_demand_and_remove_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_mine.py").write_text(TESTS)
    ended = run_pytest(tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout
    assert not Path((tmp_path / "where").read_text()).exists()


def test_the_fixtures_are_listed_with_their_purpose(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, "--fixtures")
    for name in ("tidemill_service", "tidemill_session", "tidemill_settings"):
        assert name in ended.stdout
