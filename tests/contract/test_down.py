"""`tidemill down` while agents of other machines wait for news: each gets its answer, and the service ends at once."""

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.server.background import end_service
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory
from tidemill.testing import Service

DOUBLES = Path(__file__).parents[2] / "packages/tidemill/tests/doubles"
# Machines of this cluster are directories, and Ray is not needed.
SITE = """
    import pathlib
    import sys
    import types

    def placement(address, *, shares):
        sys.path.insert(0, {doubles!r})
        from process_placement import ProcessPlacement
        return ProcessPlacement(pathlib.Path({root!r}))

    module = types.ModuleType("tidemill.executors.ray.placement")
    module.RayPlacement = placement
    sys.modules[module.__name__] = module
"""
WAITING = """
    import time
    from pathlib import Path
    print("READY", flush=True)
    while not Path({go!r}).exists():
        time.sleep(0.05)
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    code = SITE.format(doubles=str(DOUBLES), root=str(tmp_path / "machines"))
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(code))
    variables = {"PYTHONPATH": str(tmp_path)}
    with Service(settings={"executor": "ray", "isolation": "plain"}, variables=variables) as service:
        yield service


def test_the_service_ends_while_an_agent_waits_and_its_job_goes_on(
    service: Service, jobs_of: Any, tmp_path: Path
) -> None:
    jobs = jobs_of(service)
    name = jobs.create(WAITING.format(go=str(tmp_path / "go")))
    jobs.wait(name, until=("Training",))
    found = find_service(StateDirectory(service.state_dir))
    assert found is not None
    # The agent sends a request in every sixth of its lease, and each request waits that long: one waits now, or soon.
    end_service(found)
    assert "http.requests_cut" not in service.log
    assert "service.ended" in service.log
    (tmp_path / "go").touch()
    service.kill()
    service.start()
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job
