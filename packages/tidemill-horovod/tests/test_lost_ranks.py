"""A rank that dies or hangs causes an error on the other ranks, which names it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LOSE = str(Path(__file__).parent / "jobs/lose.py")
CASES = [
    ("dies", "before", 1, 3, False),
    ("dies", "during", 1, 2, False),
    ("dies", "during", 0, 2, True),
    ("hangs", "before", 0, 2, False),
    ("hangs", "during", 1, 2, True),
]


@pytest.mark.parametrize(("how", "when", "victim", "ranks", "tcp"), CASES)
def test_the_other_ranks_get_an_error_that_names_the_lost_rank(
    how: str, when: str, victim: int, ranks: int, tcp: bool, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "10",
        "SMP_SIZE": str(ranks),
        "SMP_STORE": str(tmp_path),
        "SMP_SECRET": "5" * 64,
    }
    words = [sys.executable, LOSE, how, when, str(victim), *(["--tcp"] if tcp else [])]
    started = [
        subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**environment, "SMP_RANK": str(rank)})
        for rank in range(ranks)
    ]
    try:
        for rank, process in enumerate(started):
            if rank == victim:
                continue
            output, _ = process.communicate(timeout=200)
            found = re.search(r"lost on \d after [\d.]+ s: (.*)", output)
            assert found, output
            assert f"rank {victim} (" in found[1], found[1]
            assert f"process {started[victim].pid})" in found[1], found[1]
            assert process.returncode == 3
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
            process.communicate()
