"""Compiled scripts have the losses of plain scripts over 200 steps, including random numbers."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).with_name("cases.py")
BEFORE = "*before_optimizations.txt"
"""Name of a file that XLA writes for each module it compiles."""

COMPILED = [
    "fit",
    "fit of tf_keras",
    "fit in float32",
    "fit of convolutions",
    "fit of recurrent layers",
    "fit of recurrent layers of tf_keras",
    "fit of recurrent layers with a smaller last batch",
    "fit of recurrent layers with a smaller last batch, of tf_keras",
    "fit of unknown length",
    "fit of unknown length of tf_keras",
    "fit in a strategy's scope",
    "fit of tf_keras in a strategy's scope",
    "train_on_batch",
    "train_on_batch of tf_keras",
    "loop",
    "loop of gradients",
    "loop of replicas",
    "new seed",
]
MATRIX = [
    "fit in float32",
    "fit of unknown length",
    "fit of recurrent layers",
    "fit of unknown length of tf_keras",
    "fit in a strategy's scope",
    "loop of gradients",
    "fit of recurrent layers of tf_keras",
    "fit of recurrent layers with a smaller last batch, of tf_keras",
    "fit of tf_keras in a strategy's scope",
    "train_on_batch of tf_keras",
    "fit of plain batches at once of tf_keras",
    "fit of batches at once, as in an earlier job",
    "later fit in xla of tf_keras",
    "later fit in plain of tf_keras",
]
"""Cases whose parts other cases have as well: their tests belong to the matrix."""


def cases(*names: str) -> list[Any]:
    """Return cases as parameters of a test."""
    return [pytest.param(each, marks=pytest.mark.matrix if each in MATRIX else ()) for each in names]


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the cases, in a plain and in a compiled process, and the log and the report of the compiled one."""
    report, dumps = tmp_path_factory.mktemp("report"), tmp_path_factory.mktemp("dumps")
    left_out = () if any(item.get_closest_marker("matrix") for item in request.session.items) else MATRIX
    compiled = _run(
        *("on", str(report), *left_out), XLA_FLAGS=f"--xla_dump_to={dumps} --xla_dump_hlo_module_re=tidemill_.*_xla"
    )
    plain = _run("off", str(report), *left_out)
    return {
        "plain": json.loads(plain.stdout),
        "compiled": json.loads(compiled.stdout),
        "log": compiled.stderr,
        "report": report,
        "dumps": dumps,
    }


@pytest.mark.parametrize("case", cases(*COMPILED))
def test_losses_are_those_of_the_plain_script(runs: dict[str, Any], case: str) -> None:
    plain, compiled = runs["plain"][case]["losses"], runs["compiled"][case]["losses"]
    assert len(plain) == len(compiled) == 200
    # XLA adds in another order, which changes some units in the last place per step.
    tolerance = 2e-5 if "float32" in case else 1e-11
    assert compiled == pytest.approx(plain, rel=tolerance)
    (function,) = runs["compiled"][case]["functions"]
    steps = function["shapes"][0]["steps_by_variant"]
    assert steps["xla"] >= 6 and steps["plain"] >= 6, function
    assert function["shapes"][0]["decision"] in ("plain", "xla", "fused")


def test_float32_steps_from_the_same_state_differ_by_rounding_alone(runs: dict[str, Any]) -> None:
    case = "same state"
    assert max(runs["plain"][case]["losses"]) == 0
    assert max(runs["compiled"][case]["losses"]) < 5e-5
    (function,) = runs["compiled"][case]["functions"]
    assert function["steps"] == 60
    assert function["shapes"][0]["steps_by_variant"]["xla"] >= 6


def test_checkpoints_and_models_load_without_the_compiler(runs: dict[str, Any]) -> None:
    case = "checkpoint"
    assert runs["plain"][case]["losses"] == runs["compiled"][case]["losses"]
    (function,) = runs["compiled"][case]["functions"]
    assert function["shapes"][0]["steps_by_variant"]["xla"] >= 6


def test_a_python_function_in_the_middle_of_a_step_is_named_and_the_step_runs_plain(runs: dict[str, Any]) -> None:
    case = "loop with a py_function"
    assert runs["compiled"][case]["losses"] == runs["plain"][case]["losses"]
    (function,) = runs["compiled"][case]["functions"]
    assert "XLA has no kernel for EagerPyFunc" in function["fallback"]
    assert "train_step runs plain: XLA has no kernel for EagerPyFunc" in runs["log"]


@pytest.mark.parametrize(
    "op",
    [
        "TruncatedNormal",
        "RandomUniformInt",
        "StatelessTruncatedNormalV2",
        "StatelessRandomUniformIntV2",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "Multinomial",
    ],
)
def test_noise_that_xla_would_draw_anew_is_named_and_the_step_runs_plain(runs: dict[str, Any], op: str) -> None:
    assert runs["compiled"][op]["losses"] == runs["plain"][op]["losses"]
    (function,) = runs["compiled"][op]["functions"]
    assert function["fallback"] == f"the random numbers of {op} would differ in XLA"


def test_steps_in_a_loop_over_the_iterator_run_plain_with_a_reason(runs: dict[str, Any]) -> None:
    case = "fit of steps at once"
    assert runs["compiled"][case]["losses"] == runs["plain"][case]["losses"]
    (function,) = runs["compiled"][case]["functions"]
    assert "steps_per_execution > 1" in function["fallback"]


def test_a_step_that_xla_cannot_compile_still_has_its_updates_in_one_kernel(runs: dict[str, Any]) -> None:
    case = "fit of sizes by values"
    assert runs["compiled"][case]["losses"] == pytest.approx(runs["plain"][case]["losses"], rel=1e-11)
    (function,) = runs["compiled"][case]["functions"]
    shape = function["shapes"][0]
    assert shape["fallback"].startswith("XLA does not compile it: ")
    assert shape["steps_by_variant"]["fused"] >= 6 and "xla" not in shape["steps_by_variant"]
    assert shape["decision"] in ("plain", "fused")
    how = {"plain": "plain", "fused": "without XLA"}[shape["decision"]]
    assert f"runs {how}: {shape['fallback']}" in (runs["report"] / "report.txt").read_text()


@pytest.mark.parametrize(
    "case",
    cases(
        "fit of batches at once",
        "fit of batches at once, with updates in one kernel",
        "fit of plain batches at once",
        "fit of plain batches at once of tf_keras",
        "fit of batches at once, as in an earlier job",
    ),
)
def test_batches_at_once_keep_epochs_remainders_metrics_and_order(runs: dict[str, Any], case: str) -> None:
    plain, compiled = runs["plain"][case]["losses"], runs["compiled"][case]["losses"]
    assert compiled == pytest.approx(plain, rel=1e-11)
    (function,) = runs["compiled"][case]["functions"]
    assert function["batches_at_once"]["decision"] == "at_once"
    # Keras 3 takes two epochs of 11 batches from one pass over the 20: as it warns, the second one ends after 9.
    short_epochs = 4 * 11 if "tf_keras" in case else 2 * (11 + 9)
    assert function["steps"] == 7 * 20 + short_epochs + 12  # the last fit gets 12 batches where it asked for 20
    assert function["shapes"][0]["steps_by_variant"]["at_once"] >= 40


@pytest.mark.parametrize("case", cases("later fit in xla", "later fit in xla of tf_keras", "later fit in fused"))
def test_what_an_earlier_job_chose_runs_from_the_first_step(runs: dict[str, Any], case: str) -> None:
    assert runs["compiled"][case]["losses"] == pytest.approx(runs["plain"][case]["losses"], rel=1e-11)
    (function,) = runs["compiled"][case]["functions"]
    assert function["shapes"][0]["steps_by_variant"] == {case.split()[3]: 200}


@pytest.mark.parametrize("case", cases("later fit in plain", "later fit in plain of tf_keras"))
def test_a_function_that_an_earlier_job_ran_plain_is_not_touched(runs: dict[str, Any], case: str) -> None:
    assert runs["compiled"][case]["losses"] == runs["plain"][case]["losses"]
    (function,) = runs["compiled"][case]["functions"]
    (shape,) = function["shapes"]
    assert (function["steps"], shape["decision"], shape["from_earlier_job"]) == (200, "plain", True)
    assert shape["notes"] == ["an earlier job chose plain, so the function was not split"]


def test_an_assertion_holds_for_each_of_the_batches_at_once(runs: dict[str, Any]) -> None:
    case = "fit of batches at once with checks"
    assert runs["compiled"][case]["losses"] == pytest.approx(runs["plain"][case]["losses"], rel=1e-11)
    assert runs["compiled"][case]["losses"][6:] == [1.0]
    (function,) = runs["compiled"][case]["functions"]
    assert function["shapes"][0]["steps_by_variant"]["at_once"] >= 32


def test_a_callback_that_looks_at_batches_sees_each_of_them(runs: dict[str, Any]) -> None:
    (function,) = runs["compiled"]["fit"]["functions"]
    assert function["batches_at_once"] is None


def test_noise_goes_on_if_the_compiler_fails_after_steps_in_parts(runs: dict[str, Any]) -> None:
    case = "fit with failing variants"
    assert runs["compiled"][case]["losses"] == pytest.approx(runs["plain"][case]["losses"], rel=1e-11)
    (function,) = runs["compiled"][case]["functions"]
    assert function["fallback"] == "RuntimeError: no variant today"
    assert function["shapes"][0]["steps_by_variant"]["plain"] >= 3


def test_a_smaller_last_batch_is_too_rare_to_be_compiled(runs: dict[str, Any]) -> None:
    (function,) = runs["compiled"]["fit of recurrent layers with a smaller last batch"]["functions"]
    often, rare = function["shapes"]
    assert rare["calls"] <= 10 and (rare["compile_s"], rare["steps_by_variant"]) == (None, {"plain": rare["calls"]})
    assert often["compile_s"] is not None


def test_only_shapes_that_come_often_are_compiled(runs: dict[str, Any]) -> None:
    case = "varying lengths"
    assert runs["compiled"][case]["losses"] == pytest.approx(runs["plain"][case]["losses"], rel=1e-11)
    (function,) = runs["compiled"][case]["functions"]
    compiled = [shape["calls"] for shape in function["shapes"] if shape["compile_s"] is not None]
    assert compiled == [100, 50]
    assert function["number_of_shapes"] == 52
    (varying,) = function["varying_arguments"]
    assert varying.startswith("sequences: (4, 10, 8), (4, 100, 8), ")
    report = (runs["report"] / "report.txt").read_text()
    assert "shapes vary in sequences: " in report and "drop_remainder=True" in report


def test_the_log_and_the_report_agree(runs: dict[str, Any]) -> None:
    report = json.loads((runs["report"] / "report.json").read_text())
    named = [function["name"] for function in report["functions"]]
    assert named == [each["name"] for case in runs["compiled"].values() for each in case["functions"]]
    assert "train_step: 200 steps" in (runs["report"] / "report.txt").read_text()
    assert "training compiler: multi_step_on_iterator (200 steps): " in runs["log"]


def test_gradients_outside_of_functions_get_advice(runs: dict[str, Any]) -> None:
    # tf.py_function computes its gradient eagerly, with its own tape.
    assert runs["log"].count("put @tf.function in front") == 1


def test_xla_compiles_a_step_once_for_single_batches_and_for_batches_at_once(runs: dict[str, Any]) -> None:
    compiled = Counter(re.sub(r"^module_\d+\.(.*_xla_\d+)_.*", r"\1", path.name) for path in runs["dumps"].glob(BEFORE))
    assert sum("multi_step_on_iterator" in name for name in compiled) >= 5
    assert set(compiled.values()) == {1}, compiled


def _run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [sys.executable, CASES, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done
