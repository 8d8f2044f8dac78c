"""A job one of whose ranks is killed ends, and one that is started again goes on as if nothing had happened."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "scripts" / "train_and_resume.py"
NUM_STEPS = 6
LAUNCHER = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2", "--prefix"]
END_S = 50.0
"""Five times of what is wanted: tests run on busy machines."""
KILLED = 128 + 9


def train(directory: Path, kill: str = "-1:0:step", **environment: str) -> tuple[int, str, float]:
    """Start a job; its exit code, its output, and the seconds from the death of a rank to the end of all."""
    environment = {**os.environ, "KILL": kill, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    directory.mkdir(exist_ok=True)
    command = [*LAUNCHER, str(SCRIPT), str(directory), str(NUM_STEPS)]
    lines, died = [], time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.endswith(" dies\n"):
                died = time.monotonic()
        return process.wait(timeout=120), "".join(lines), time.monotonic() - died


def losses(output: str) -> dict[str, str]:
    """Step and rank -> loss, exact to the bit."""
    return dict(re.findall(r"(step \d+ on \d): (\S+)", output))


def held(directory: Path) -> dict[str, np.ndarray]:
    return {
        f"{rank}:{name}": value for rank in (0, 1) for name, value in np.load(directory / f"held-{rank}.npz").items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Losses, and what is held at the end, of a run that nobody disturbs."""
    directory = tmp_path_factory.mktemp("whole")
    code, output, _ = train(directory)
    assert code == 0, output
    return losses(output), held(directory)


@pytest.mark.parametrize(
    "kill",
    [
        "1:3:step",
        "0:3:save2",
        pytest.param("0:5:step", marks=pytest.mark.matrix),
        *(
            pytest.param(f"{rank}:3:save{number}", marks=pytest.mark.matrix)
            for rank in (0, 1)
            for number in (0, 1, 3, 4, 6, 8, 10)
        ),
    ],
)
def test_a_job_with_a_killed_rank_ends_and_goes_on_to_the_bit(
    tmp_path: Path, whole: tuple[dict[str, str], dict[str, np.ndarray]], kill: str
) -> None:
    code, before, end_s = train(tmp_path, kill)
    assert code == KILLED, before
    print(f"the job ended {end_s:.1f} s after the death")
    assert end_s < END_S
    assert f"rank {kill[0]} was killed by signal 9" in before
    assert "restores None" in before

    code, after, _ = train(tmp_path)
    assert code == 0, after
    # It went on where it had saved, not from the start.
    assert re.search(r"rank 0 restores \S+/mp_rank_0/ckpt-[12]\n", after)
    assert min(losses(after)) in ("step 2 on 0", "step 4 on 0")
    assert_went_on(before, after, tmp_path, whole)


@pytest.mark.parametrize("optimizer", ["legacy.Adam", pytest.param("Adam", marks=pytest.mark.matrix)])
def test_with_tf_keras_too(tmp_path: Path, optimizer: str) -> None:
    environment = {"TF_USE_LEGACY_KERAS": "1", "OPTIMIZER": optimizer}
    code, output, _ = train(tmp_path / "whole", **environment)
    assert code == 0, output
    code, before, _ = train(tmp_path / "killed", "1:5:step", **environment)
    assert code == KILLED, before
    code, after, _ = train(tmp_path / "killed", **environment)
    assert code == 0, after
    assert min(losses(after)) == "step 4 on 0"
    assert_went_on(before, after, tmp_path / "killed", (losses(output), held(tmp_path / "whole")))


def assert_went_on(
    before: str, after: str, directory: Path, whole: tuple[dict[str, str], dict[str, np.ndarray]]
) -> None:
    """Every loss on the way, and what is held at the end, is that of the undisturbed run."""
    for printed in (losses(before), losses(after)):
        assert printed.items() <= whole[0].items()
    assert losses(before).keys() | losses(after).keys() == whole[0].keys()
    at_end = held(directory)
    assert at_end.keys() == whole[1].keys()
    for name, value in whole[1].items():
        np.testing.assert_array_equal(at_end[name], value, err_msg=name)
