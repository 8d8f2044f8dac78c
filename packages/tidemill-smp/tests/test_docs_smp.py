"""The code of docs/model-parallel.md runs, and the schedules match those on the page."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smdistributed.modelparallel.backend import exceptions
from smdistributed.modelparallel.tensorflow.config import Config

pytestmark = pytest.mark.smp_long

PAGE = Path(__file__).parents[3] / "docs" / "model-parallel.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
DEADLINE_S = 300


def test_the_blocks_are_one_script_for_two_ranks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("\n".join(block for block in BLOCKS if "make_schedule" not in block))
    done = subprocess.run(
        [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2", str(script)],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(text) for text in re.findall(r"step \d+: loss=(\d\.\d+)", done.stdout)]
    assert len(losses) == 3
    assert losses[2] < losses[0] / 2
    assert "\n0.0\n" in done.stdout
    assert "(3, 10)" in done.stdout
    assert re.findall(r"block_(\d)/kernel': (\d)", done.stdout)[:4] == [("0", "0"), ("1", "0"), ("2", "1"), ("3", "1")]
    assert "'ideal': 0.2, 'partitions': 2, 'microbatches': 4" in done.stdout


def test_the_schedules_are_those_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block for block in BLOCKS if "make_schedule" in block)
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.strip() == shown.strip()


def test_every_parameter_and_every_error_has_a_row() -> None:
    rows = "\n".join(line.split(" | ")[0] for line in TEXT.splitlines() if line.startswith("| `"))
    names = {field.name for field in dataclasses.fields(Config)} - {"extras"}
    missing = {name for name in names | set(exceptions.__all__) - {"SMPError"} if f"`{name}`" not in rows}
    assert not missing


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT))))
def test_links_lead_somewhere(link: str) -> None:
    name, _, anchor = link.partition("#")
    page = PAGE.parent / name if name else PAGE
    assert page.exists()
    if anchor:
        headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
