"""Several devices or processes: replicas decide alike, communication is never compiled, losses do not change."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked_scripts import start_ranks, wait_for_all
from tidemill_tensorflow.compiler.variants.earlier_jobs import BY_SHAPE

SCRIPT = str(Path(__file__).with_name("ranks.py"))


@pytest.mark.parametrize("form", [pytest.param("tape", marks=pytest.mark.matrix), "horovod"])
def test_ranks_of_horovod_decide_alike_and_keep_equal_weights(tmp_path: Path, form: str) -> None:
    started = [start_ranks(2, Path(SCRIPT), switch, form, CACHE=str(tmp_path)) for switch in ("off", "on")]
    plain, compiled = ([json.loads(ended.stdout) for ended in wait_for_all(ranks)] for ranks in started)
    _compare(plain, compiled)
    for functions in zip(*(rank["functions"] for rank in compiled), strict=True):
        first, second = (function["shapes"][0] for function in functions)
        assert first["decision"] == second["decision"] in ("plain", "xla")
        if form == "tape":  # the ranks communicate in this function, so they switch together
            assert first["steps_by_variant"] == second["steps_by_variant"]
    # A note that a function is to be compiled by its shapes at once, which a chosen variant leaves, is no decision.
    variants = [json.loads(path.read_text())["variant"] for path in tmp_path.glob("*.json")]
    stored = [variant for variant in variants if variant != BY_SHAPE]
    assert sorted(stored) == sorted(function["shapes"][0]["decision"] for function in compiled[0]["functions"])


@pytest.mark.matrix
@pytest.mark.parametrize("form", ["fit", "workers"])
def test_workers_of_a_strategy_compile_their_gradients(form: str, reserve_port: Callable[[], int]) -> None:
    plain, compiled = (
        [json.loads(text) for text in _run(*_workers(switch, form, [reserve_port(), reserve_port()]))]
        for switch in ("off", "on")
    )
    _compare(plain, compiled)
    if form == "fit":
        first, second = (rank["functions"][0]["shapes"][0] for rank in compiled)
        assert first["decision"] == second["decision"] in ("plain", "xla")
        assert first["steps_by_variant"] == second["steps_by_variant"]


def _compare(plain: list[dict[str, Any]], compiled: list[dict[str, Any]]) -> None:
    """Compare two plain ranks with the same two ranks compiled."""
    assert len(plain) == len(compiled) == 2
    assert compiled[0]["weights"] == compiled[1]["weights"], "copies of a model must not drift apart"
    for one, other in zip(plain, compiled, strict=True):
        assert other["losses"] == pytest.approx(one["losses"], rel=1e-10)
        for function in other["functions"]:
            assert function["fallback"] is None
            assert function["shapes"][0]["steps_by_variant"]["xla"] >= 6, function


def test_a_step_over_two_devices_compiles_the_gradients_of_each_and_decides() -> None:
    plain, compiled = _on_devices("mirrored")
    _compare_devices(plain, compiled)
    (shape,) = compiled["functions"][0]["shapes"]
    assert shape["decision"] in ("plain", "xla")
    assert shape["steps_by_variant"]["plain"] >= 6 and shape["steps_by_variant"]["xla"] >= 6


@pytest.mark.parametrize(
    ("form", "variant"),
    [
        ("mirrored_fit", "xla"),
        pytest.param("mirrored_fit", "fused", marks=pytest.mark.matrix),
        pytest.param("mirrored_fit_of_tf_keras", "xla", marks=pytest.mark.matrix),
        pytest.param("mirrored_fit_of_tf_keras", "fused", marks=pytest.mark.matrix),
    ],
)
def test_fit_over_two_devices_has_the_losses_and_weights_of_plain_keras(form: str, variant: str) -> None:
    plain, compiled = _on_devices(form, variant)
    _compare_devices(plain, compiled)
    shape = compiled["functions"][0]["shapes"][0]
    assert shape["decision"] == variant
    assert shape["steps_by_variant"][variant] >= 30


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        pytest.param(
            *("synchronized", "it communicates before the gradients (CollectiveReduceV2, "), marks=pytest.mark.matrix
        ),
        ("common_value", "its replicas on several devices use a common value (Mul, "),
    ],
)
def test_replicas_that_depend_on_each_other_run_plain_with_a_reason(form: str, reason: str) -> None:
    plain, compiled = _on_devices(form, "xla")
    assert (compiled["losses"], compiled["weights"]) == (plain["losses"], plain["weights"])
    assert reason in compiled["functions"][0]["fallback"]


def _on_devices(form: str, *variant: str) -> list[dict[str, Any]]:
    """Run the script on two devices, without and with the compiler."""
    return [_plain_on_devices(form), json.loads(_run([sys.executable, SCRIPT, "on", form, *variant])[0])]


@functools.cache
def _plain_on_devices(form: str) -> dict[str, Any]:
    """Run the script once for all variants, which only the compiler knows."""
    return json.loads(_run([sys.executable, SCRIPT, "off", form])[0])


def _compare_devices(plain: dict[str, Any], compiled: dict[str, Any]) -> None:
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-11)
    for one, other in zip(plain["weights"], compiled["weights"], strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-12)
    (function,) = compiled["functions"]
    assert function["fallback"] is None


def test_replicas_on_two_devices_share_one_decision() -> None:
    (plain, _), (compiled, log) = (_replicas(switch) for switch in ("off", "on"))
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-11)
    first, second = (function["shapes"][0] for function in compiled["functions"])
    assert first["key"] == second["key"]
    assert first["decision"] == second["decision"] in ("plain", "xla")
    assert first["steps_by_variant"]["xla"] >= 6 and second["steps_by_variant"]["xla"] >= 6
    assert log.count("training compiler: gradient_of [64, 9]: ") == 1, "one replica decides, the other one follows"


def _replicas(switch: str) -> tuple[dict[str, Any], str]:
    """Run the script with two replicas; return its output and its log."""
    ((output, log),) = _ended([sys.executable, SCRIPT, switch, "replicas"])
    return json.loads(output), log


def _workers(switch: str, form: str, ports: Sequence[int]) -> list[list[str]]:
    return [[sys.executable, SCRIPT, switch, form, str(index), *map(str, ports)] for index in range(len(ports))]


def _run(*commands: list[str]) -> list[str]:
    """Run commands in parallel, and return the output of each."""
    return [output for output, _ in _ended(*commands)]


def _ended(*commands: list[str]) -> list[tuple[str, str]]:
    """Run commands in parallel, each in a new process, and return the output and the log of each."""
    environment = {key: value for key, value in os.environ.items() if key != "TF_CONFIG"}
    processes = [
        subprocess.Popen(each, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for each in commands
    ]
    try:
        ended = [process.communicate(timeout=900) for process in processes]
        assert not any(process.returncode for process in processes), ended
    finally:
        for process in processes:
            process.kill()
    return ended
