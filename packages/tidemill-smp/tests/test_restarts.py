"""A job ends when one of its ranks is killed. After a restart, it continues exactly like an undisturbed job."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.smp_saved

SCRIPT = Path(__file__).parent / "scripts" / "train_and_resume.py"
NUM_STEPS = 6
MANY_STEPS = 60
LAUNCHER = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2", "--prefix"]
KILLED = 128 + 9


def train(
    directory: Path, kill: str = "-1:0:step", num_steps: int = NUM_STEPS, **environment: str
) -> tuple[int, str, float]:
    """Run a job; return its exit code, its output, and the seconds from the killed rank's end to the job's end."""
    environment = {**os.environ, "KILL": kill, "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    directory.mkdir(exist_ok=True)
    command = [*LAUNCHER, str(SCRIPT), str(directory), str(num_steps)]
    lines, died = [], time.monotonic()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.endswith(" dies\n"):
                died = time.monotonic()
        return process.wait(timeout=600), "".join(lines), time.monotonic() - died


def killed_at(directory: Path, rank: int, after: str, delay_s: float) -> tuple[int, str, float]:
    """Start a long job, and kill a rank `delay_s` seconds after a line with `after` is printed, or after the start.

    Returns the exit code, the output, and the seconds from the kill to the end.
    """
    command = [*LAUNCHER, str(SCRIPT), str(directory), str(MANY_STEPS)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines = []
        while after and not (lines and after in lines[-1]):
            lines.append(process.stdout.readline())
            assert lines[-1], "".join(lines)
        time.sleep(delay_s)  # the time of the kill is random, so there is no event to wait for
        victim = rank_of(process.pid, rank)
        killed_s = time.monotonic()
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        rest = process.stdout.read()
        code = process.wait(timeout=600)
        return code, "".join(lines) + rest, time.monotonic() - killed_s


def rank_of(launcher: int, rank: int) -> int | None:
    """Return the process of a rank; None if it has ended or not started."""
    for task in Path(f"/proc/{launcher}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            with contextlib.suppress(OSError):  # the process has just ended
                if f"SMP_RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                    return child
    return None


def losses(output: str) -> dict[str, str]:
    """Return (step, rank) -> exact loss."""
    return dict(re.findall(r"(step \d+ on \d): (\S+)", output))


def held(directory: Path) -> dict[str, np.ndarray]:
    return {
        f"{rank}:{name}": value for rank in (0, 1) for name, value in np.load(directory / f"held-{rank}.npz").items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Return losses and final values of an undisturbed run."""
    directory = tmp_path_factory.mktemp("whole")
    code, output, _ = train(directory)
    assert code == 0, output
    return losses(output), held(directory)


@dataclass
class LongRun:
    """An undisturbed run of many steps."""

    whole: tuple[dict[str, str], dict[str, np.ndarray]]
    """Results like those of the fixture `whole`."""
    first_s: float
    """Seconds until the end of the first step."""
    rest_s: float
    """Seconds from then to the end."""


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> LongRun:
    directory = tmp_path_factory.mktemp("long")
    begun_s = time.monotonic()
    train(directory, num_steps=1)
    first_s = time.monotonic() - begun_s
    shutil.rmtree(directory)
    begun_s = time.monotonic()
    code, output, _ = train(directory, num_steps=MANY_STEPS)
    assert code == 0, output
    return LongRun((losses(output), held(directory)), first_s, max(1.0, time.monotonic() - begun_s - first_s))


@pytest.mark.parametrize(
    "kill",
    [
        "1:3:step",
        pytest.param("0:3:save2", marks=pytest.mark.smp_first),
        pytest.param("0:5:step", marks=pytest.mark.matrix),
        *(
            pytest.param(f"{rank}:3:save{number}", marks=pytest.mark.matrix)
            for rank in (0, 1)
            for number in (0, 1, 3, 4, 6, 8, 10)
        ),
    ],
)
def test_a_job_with_a_killed_rank_ends_and_resumes_bit_identically(
    tmp_path: Path, whole: tuple[dict[str, str], dict[str, np.ndarray]], kill: str
) -> None:
    code, before, end_s = train(tmp_path, kill)
    assert code == KILLED, before
    print(f"the job ended {end_s:.1f} s after the death")
    assert f"rank {kill[0]} was killed by signal 9" in before
    assert "restores None" in before

    code, after, _ = train(tmp_path)
    assert code == 0, after
    # It resumed from the checkpoint, not from the start.
    assert re.search(r"rank 0 restores \S+/mp_rank_0/ckpt-[12]\n", after)
    assert min(losses(after)) in ("step 2 on 0", "step 4 on 0")
    assert_resumed(before, after, tmp_path, whole)


@pytest.mark.matrix
@pytest.mark.parametrize("optimizer", ["legacy.Adam", "Adam"])
def test_a_job_with_tf_keras_ends_and_resumes_bit_identically(tmp_path: Path, optimizer: str) -> None:
    environment = {"TF_USE_LEGACY_KERAS": "1", "OPTIMIZER": optimizer}
    code, output, _ = train(tmp_path / "whole", **environment)
    assert code == 0, output
    code, before, _ = train(tmp_path / "killed", "1:5:step", **environment)
    assert code == KILLED, before
    code, after, _ = train(tmp_path / "killed", **environment)
    assert code == 0, after
    assert min(losses(after)) == "step 4 on 0"
    assert_resumed(before, after, tmp_path / "killed", (losses(output), held(tmp_path / "whole")))


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(12))
def test_a_job_with_a_rank_killed_at_any_moment_resumes_bit_identically(
    tmp_path: Path, long_run: LongRun, seed: int
) -> None:
    draw = random.Random(seed)
    victim, other = draw.sample((0, 1), 2)
    # Starting takes longest, but the kills should hit steps and saves.
    after, span_s = ("", long_run.first_s) if seed % 4 == 0 else (f"step 0 on {victim}", long_run.rest_s)
    delay_s = draw.uniform(0.0, span_s)
    print(f"seed {seed}: kill rank {victim} {delay_s:.2f} s (of {span_s:.2f}) after {after or 'the start'}")
    code, before, end_s = killed_at(tmp_path, victim, after, delay_s)
    commits = [json.loads(path.read_text()) for path in (tmp_path / "checkpoints").glob("ckpt-*.json")]
    latest = max(commits, key=lambda commit: commit["order"])["name"] if commits else None
    print(f"exit code {code} {end_s:.1f} s after the kill; the latest checkpoint is {latest}")
    if "steps are over" not in before:
        assert code == KILLED, before
        assert f"rank {victim} was killed by signal 9" in before
        if f"step 0 on {other}" in before:
            assert re.search(rf"\[{other}\].*SMPPeerLostError: rank {victim} ", before), before

    code, after_it, _ = train(tmp_path, num_steps=MANY_STEPS)
    assert code == 0, after_it
    place = None if latest is None else f"{tmp_path}/checkpoints/mp_rank_0/{latest}"
    assert f"rank 0 restores {place}\n" in after_it
    assert_resumed(before, after_it, tmp_path, long_run.whole)


def assert_resumed(
    before: str, after: str, directory: Path, whole: tuple[dict[str, str], dict[str, np.ndarray]]
) -> None:
    """Assert that every loss, and the values at the end, equal those of the undisturbed run."""
    for printed in (losses(before), losses(after)):
        assert printed.items() <= whole[0].items()
    assert losses(before).keys() | losses(after).keys() == whole[0].keys()
    at_end = held(directory)
    assert at_end.keys() == whole[1].keys()
    for name, value in whole[1].items():
        np.testing.assert_array_equal(at_end[name], value, err_msg=name)
