"""A training job in a notebook: the card in a kernel of Jupyter, while `fit` waits and after it."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tidemill.testing import Service

CLIENT = """
import json, queue, sys
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3", extra_arguments=[])
try:
    for code in json.loads(sys.argv[1]):
        request = client.execute(code)
        while True:
            message = client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data", "execute_result"):
                place = content.get("transient", {}).get("display_id")
                print(json.dumps([kind, place, content["data"].get("text/html", "")]), flush=True)
            elif kind in ("error", "stream"):
                print(json.dumps([kind, None, content.get("evalue") or content.get("text")]), flush=True)
            elif kind == "status" and content["execution_state"] == "idle":
                break
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""
SCRIPT = """
import time
for step in range(3):
    print(f"loss={3 - step}", flush=True)
    time.sleep(1.1)
"""
FIT = """
from tidemill.sdk import TensorFlow
estimator = TensorFlow("train.py", hyperparameters={"<b>rate": 0.5},
    metric_definitions=[{"Name": "<i>loss", "Regex": r"loss=([0-9.]+)"}])
estimator.fit(job_name="in-a-notebook")
"""
FAILS = """
broken = TensorFlow("broken.py")
try:
    broken.fit(job_name="broken-in-a-notebook")
except Exception:
    pass
"""


def test_the_card_of_a_job_is_redrawn_while_fit_waits(tidemill_service: Service, root: Path, tmp_path: Path) -> None:
    python = root / ".venvs/notebook/bin/python"
    if not python.exists():
        pytest.skip("no kernel of Jupyter here: make .venvs/notebook/ready")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "broken.py").write_text("raise ValueError('<script>alert(1)</script>')")
    path = [*map(str, root.glob(".venv/lib/python*/site-packages")), str(root / "packages/tidemill/src")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_"))}
    variables = kept | {"PYTHONPATH": os.pathsep.join(path), "HOME": str(tmp_path), **tidemill_service.environment}
    cells = json.dumps([FIT, "estimator.latest_training_job", FAILS])
    done = subprocess.run(
        [python, "-c", CLIENT, cells], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [kind for kind, _, _ in shown]
    assert "error" not in kinds, shown
    assert any(kind == "stream" and "loss=3" in text for kind, _, text in shown), shown
    result = kinds.index("execute_result")
    cards = [(kind, place, text) for kind, place, text in shown[:result] if kind != "stream"]
    assert cards[0][0] == "display_data"
    assert {kind for kind, _, _ in cards[1:]} == {"update_display_data"}
    assert len({place for _, place, _ in cards}) == 1  # one card, redrawn
    assert "InProgress" in cards[0][2]
    running = [text for _, _, text in cards if "polyline" in text and "InProgress" in text]
    assert running, "the curve grows while the job runs"
    last = cards[-1][2]
    assert "Completed" in last
    assert "&lt;i&gt;loss 1 (min 1, max 3)" in last
    assert "&lt;b&gt;rate" in last and "<b>rate" not in last
    assert "polyline" in shown[result][2]  # what the notebook shows of the object
    failed = [text for kind, _, text in shown[result + 1 :] if kind == "update_display_data"][-1]
    assert "ValueError: &lt;script&gt;alert(1)&lt;/script&gt;" in failed
    assert not any("<script" in text for kind, _, text in shown if kind != "stream")
