"""Examples run as their users run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.testing import Service


@pytest.mark.matrix
def test_the_example_of_pipe_mode_trains_alike_from_plain_and_packed_records(
    tidemill_service: Service, root: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, root / "examples/02_pipe_mode/client.py"],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "TIDEMILL_STATE_DIR": str(tidemill_service.state_dir),
            "TIDEMILL_ENVIRONMENTS_DIR": os.environ["TIDEMILL_ENVIRONMENTS_DIR"],
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # 20 epochs of 1,797 records in one continuous stream, in batches of 64.
    runs = re.findall(r"562 steps, accuracy over all of them (0\.\d+)", done.stdout)
    assert len(runs) == 2, done.stdout
    assert min(map(float, runs)) > 0.9
