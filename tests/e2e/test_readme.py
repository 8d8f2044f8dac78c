"""The Python of the documentation's first page, run as printed. `test_wheel` runs that of the README."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

from tidemill.testing import Service


def test_the_first_page_trains_deploys_and_predicts(tidemill_service: Service, root: Path, tmp_path: Path) -> None:
    script, client = re.findall(r"```python\n(.*?)```", (root / "docs/index.md").read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "client.py").write_text(client)
    printed = run_client(tidemill_service, tmp_path)
    assert "Epoch 5/5" in printed
    (prediction,) = ast.literal_eval(printed.splitlines()[-1])["predictions"]
    assert 6 < prediction[0] < 10, "the model has learned that eight ones are eight"


def run_client(service: Service, directory: Path) -> str:
    """Run `client.py` of a directory, and return its output."""
    ended = subprocess.run(
        [sys.executable, "client.py"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "HOME": str(directory), **service.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
