"""Several devices or processes: all replicas decide alike, communication is never compiled, and losses stay."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = str(Path(__file__).with_name("ranks.py"))
LAUNCHER = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2"]
SEVERAL = "the job has several processes, which would have to decide alike: that is not compiled yet"


def test_ranks_of_horovod_all_run_plain_and_say_so() -> None:
    plain, compiled = (
        [json.loads(line) for line in _run([*LAUNCHER, SCRIPT, switch, "horovod"])[0].splitlines()]
        for switch in ("off", "on")
    )
    assert len(plain) == len(compiled) == 2
    assert compiled[0]["weights"] == compiled[1]["weights"] == plain[0]["weights"]
    assert sorted(rank["losses"] for rank in compiled) == sorted(rank["losses"] for rank in plain)
    assert [each["fallback"] for rank in compiled for each in rank["functions"]] == [SEVERAL] * 2


def test_workers_without_a_tf_config_all_run_plain_and_say_so() -> None:
    plain, compiled = ([json.loads(text) for text in _run(*_workers(switch))] for switch in ("off", "on"))
    for one, other in zip(plain, compiled, strict=True):
        assert (one["losses"], one["weights"]) == (other["losses"], other["weights"])
        assert [each["fallback"] for each in other["functions"]] == [SEVERAL]


def test_a_step_over_two_devices_runs_plain_and_says_so() -> None:
    plain, compiled = (json.loads(_run([sys.executable, SCRIPT, switch, "mirrored"])[0]) for switch in ("off", "on"))
    assert (compiled["losses"], compiled["weights"]) == (plain["losses"], plain["weights"])
    (function,) = compiled["functions"]
    assert "the step runs on several devices" in function["fallback"]


def test_replicas_on_two_devices_share_one_decision() -> None:
    (plain, _), (compiled, log) = (_replicas(switch) for switch in ("off", "on"))
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-11)
    first, second = (function["shapes"][0] for function in compiled["functions"])
    assert first["key"] == second["key"]
    assert first["decision"] == second["decision"] in ("plain", "xla")
    assert first["steps_by_variant"]["xla"] >= 6 and second["steps_by_variant"]["xla"] >= 6
    assert log.count("training compiler: gradient_of [64, 9]: ") == 1, "one replica decides, the other one follows"


def _replicas(switch: str) -> tuple[dict[str, Any], str]:
    """Return what the script with two replicas printed, and its log."""
    ((output, log),) = _ended([sys.executable, SCRIPT, switch, "replicas"])
    return json.loads(output), log


def _workers(switch: str) -> list[list[str]]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [str(holder.getsockname()[1]) for holder in holders]
    for holder in holders:
        holder.close()
    return [[sys.executable, SCRIPT, switch, "workers", str(index), *ports] for index in range(2)]


def _run(*commands: list[str]) -> list[str]:
    """Run commands side by side, and return what each printed."""
    return [output for output, _ in _ended(*commands)]


def _ended(*commands: list[str]) -> list[tuple[str, str]]:
    """Run commands side by side, and return the output and the log of each."""
    environment: dict[str, Any] = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    processes = [
        subprocess.Popen(each, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in commands
    ]
    try:
        ended = [process.communicate(timeout=300) for process in processes]
        assert not any(process.returncode for process in processes), ended
    finally:
        for process in processes:
            process.kill()
    return ended
