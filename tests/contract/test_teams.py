"""What teams do around training, with AWS's SDK v2 as it is: the calls of whole notebooks in single scripts."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemill.server.discovery import find_service
from tidemill.server.exports import proxy_environment
from tidemill.server.state import StateDirectory
from tidemill.testing import Service

SCRIPTS = Path(__file__).parent / "teams"
Run = Callable[[str], list[str]]


IMAGES = {f"tensorflow-{kind}:2.19*": {"environment": "tf-2.21"} for kind in ("training", "inference")}
"""AWS's SDK knows no newer version than 2.19; the environment of 2.21 is there for other tests already."""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(settings={"images": IMAGES}) as service:
        yield service


@pytest.fixture
def run(service: Service, root: Path, tmp_path: Path) -> Run:
    """Return a function that runs a script in a shell of `tidemill env --sts`, and returns its marked lines."""

    def run(script: str) -> list[str]:
        state = StateDirectory(service.state_dir)
        record = find_service(state)
        assert record is not None
        variables = service.environment | proxy_environment(record, state=state, ambient={})
        done = subprocess.run(
            [root / ".venvs/peers/bin/python", script],
            cwd=SCRIPTS,
            env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line.lstrip("-!*") for line in done.stdout.splitlines()]  # the SDK shows that it waits
        return [line for line in lines if line.split(" ")[0].isupper()]

    return run


def test_a_workflow_prepares_trains_tunes_registers_deploys_and_transforms(run: Run) -> None:
    assert run("workflow.py") == [
        "ROLE arn:aws:iam::000000000000:role/SageMakerRole",
        "PREPARED ['x_test_0.npy', 'x_test_1.npy', 'x_train_0.npy', 'x_train_1.npy']",
        "TRAINED val_loss",
        "TUNED 3 True {'Completed'}",
        "REGISTERED [1]",
        "FOUND 3",
        "PREDICTED 2",
        "SCORED ['rows.json.out']",
    ]


def test_a_pipeline_registers_a_good_model_and_fails_for_a_bad_one_with_cached_steps(run: Run) -> None:
    assert run("pipeline.py") == [
        "EXECUTED Succeeded [('Evaluate', 'Succeeded'), ('GoodEnough', 'Succeeded'), ('Prepare', 'Succeeded'),"
        " ('Register-RegisterModel', 'Succeeded'), ('Register-RepackModel-0', 'Succeeded'), ('Train', 'Succeeded')]",
        "REGISTERED [(1, 'Approved')]",
        "WAITED WaiterError",
        "EXECUTED Failed [('Evaluate', 'Succeeded'), ('GoodEnough', 'Succeeded'), ('Prepare', 'Succeeded'),"
        " ('TooBad', 'Failed'), ('Train', 'Succeeded')]",
        "CACHED ['Prepare', 'Train']",
        "FAILED MSE is above 0.0",
    ]
