"""The built wheel in a bare environment: nothing of the checkout is on its path, and a job runs all the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def bare(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it depends on, at the pinned versions."""
    directory = tmp_path_factory.mktemp("bare")
    uv = root / ".venv/bin/uv"
    build = [
        "build",
        "-q",
        "--wheel",
        "--no-build-isolation",
        "-p",
        sys.executable,
        "-o",
        directory,
        root / "packages/tidemill",
    ]
    subprocess.run([uv, *build], check=True)
    (wheel,) = directory.glob("*.whl")
    subprocess.run([uv, "venv", "-q", "-p", sys.executable, directory / "env"], check=True)
    # The pins without their hashes: a constraint with a hash would ask for one of the wheel, too.
    pins = directory / "pins.txt"
    lines = (root / "requirements/dev.txt").read_text().splitlines()
    pins.write_text("\n".join(line.removesuffix("\\").strip() for line in lines if line[:1].isalpha()))
    subprocess.run([uv, "pip", "install", "-q", "-p", directory / "env", "-c", pins, wheel], check=True, cwd=directory)
    return directory


def test_a_job_runs_from_the_wheel_alone(bare: Path) -> None:
    (bare / "train.py").write_text("import tensorflow, tidemill_runtime; print('ran', tidemill_runtime.__file__)")
    passed_on = ("PATH", "SSL_CERT_FILE", "UV_CACHE_DIR", "PIP_CERT")
    variables = {name: os.environ[name] for name in passed_on if name in os.environ} | {
        "HOME": str(bare),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
        "TIDEMILL_STATE_DIR": str(bare / "state"),
        "TIDEMILL_ENVIRONMENTS_DIR": str(bare / "environments"),
        "TIDEMILL_PORT": "0",
    }
    tidemill = bare / "env/bin/tidemill"
    try:
        done = subprocess.run(
            [tidemill, "train", "train.py"], cwd=bare, env=variables, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"ran {bare}/environments/tf-2.21-" in done.stdout
    finally:
        subprocess.run([tidemill, "down"], env=variables, cwd=bare, check=False, capture_output=True, timeout=60)
