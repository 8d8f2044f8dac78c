"""What the report and the log say about functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tidemill_tensorflow.compiler import report
from tidemill_tensorflow.compiler.variants.payback import Account, Ledger
from tidemill_tensorflow.compiler.variants.shapes import Shape
from tidemill_tensorflow.compiler.variants.traced import StepCall, TracedStep, first_lines
from tidemill_tensorflow.compiler.variants.trials import Times, Trial


class Step(TracedStep):
    """A function with the state that a report reads."""

    has_begun = True

    def __init__(self, name: str, *shapes: Shape, **state: Any) -> None:
        self.name, self.runs, self.key, self.reason = name, 7, "function 1", None
        self.shapes = {shape.shapes: shape for shape in shapes}
        self.argument_names: tuple[str, ...] = ()
        self.account = Account(Ledger())
        self.begins_with_xla = False
        self.at_once = None
        for key, value in state.items():
            setattr(self, key, value)

    def run(self, call: StepCall) -> object:
        return call.run_as_traced()

    def give_up(self, reason: str) -> None:
        self.reason = reason

    def release(self) -> None:
        self.shapes.clear()


def shape(*sizes: Any, **state: Any) -> Shape:
    return Shape(tuple(tf.TensorShape(each) for each in sizes), "key", **state)


def decided(variant: str, *, busy: bool = False) -> Trial:
    trial = Trial(("plain", "xla"), decision=variant, by_cpu_time=busy)
    trial.times = {"plain": [Times(0.002, 0.003)], "xla": [Times(0.001, 0.0005)]}
    return trial


def report_of(*steps: TracedStep, advice: tuple[str, ...] = ()) -> dict[str, Any]:
    return report.as_dict(steps, advice=advice, deterministic=False)


def test_the_summary_names_each_function_with_its_variant() -> None:
    steps = [
        Step("chosen", shape([4], trial=decided("xla")), shape([5], trial=decided("plain")), shape([6])),
        Step("failed", shape([4], trial=decided("xla")), reason="XLA failed"),
        Step("early", shape([4])),
        Step("short", has_begun=False),
        Step("by Keras", has_begun=False, begins_with_xla=True),
    ]
    chosen, failed, early, short, by_keras = report.summary(steps, advice=["ignored"]).split("; ")
    assert (chosen, failed) == ("chosen (7 steps): xla, plain", "failed (7 steps): plain")
    assert early == "early (7 steps): undecided, plain so far"
    assert short.startswith("short (7 steps): plain, not compiled: ")
    assert by_keras.startswith("by Keras (7 steps): xla, not compiled: ")
    assert report.summary([], advice=["use tf.function"]).endswith("is a training step; use tf.function")


def test_a_function_has_its_most_frequent_shapes_first_and_counts_the_others() -> None:
    shapes = [shape([size], calls=size) for size in range(1, 26)]
    (function,) = report_of(Step("many", *shapes))["functions"]
    assert function["number_of_shapes"] == 25
    assert [each["calls"] for each in function["shapes"]] == list(range(25, 5, -1))


@pytest.mark.parametrize(
    ("busy", "by", "shown"),
    [
        (False, "wall time", "  (4,): xla plain 2.00 ms, xla 1.00 ms\n"),
        (True, "CPU time", "  (4,): xla plain 3.00 ms, xla 0.50 ms (CPU times, because the machine was busy)\n"),
    ],
)
def test_the_times_that_decided_are_shown(tmp_path: Path, busy: bool, by: str, shown: str) -> None:
    found = report_of(Step("step", shape([4], trial=decided("xla", busy=busy), compile_s=1.23456)))
    (function,) = found["functions"]
    (only,) = function["shapes"]
    assert (only["decided_by"], only["rounds"], only["compile_s"]) == (by, 1, 1.235)
    assert (only["median_ms"], only["median_cpu_ms"]) == ({"plain": 2.0, "xla": 1.0}, {"plain": 3.0, "xla": 0.5})
    report.write(found, tmp_path / "new" / "directory")
    assert shown in (tmp_path / "new" / "directory" / "report.txt").read_text()
    assert json.loads((tmp_path / "new" / "directory" / "report.json").read_text()) == found
    assert len(list((tmp_path / "new" / "directory").iterdir())) == 2, "no part of a file stays"


def test_arguments_that_vary_are_named_as_in_the_script(tmp_path: Path) -> None:
    names = ("words", "IteratorGetNext:1")
    step = Step("step", shape([4, 2], [3]), shape([4, 5], [3]), shape([4, 7], [9]), argument_names=names)
    without_names = Step("other", shape([1]), shape([2]))
    found = report_of(step, without_names, advice=("an advice",))
    assert found["functions"][0]["varying_arguments"] == [
        "words: (4, 2), (4, 5), (4, 7)",
        "tensor 1 of the batch: (3,), (9,)",
    ]
    assert found["functions"][1]["varying_arguments"] == ["argument 0: (1,), (2,)"]
    report.write(found, tmp_path)
    lines = (tmp_path / "report.txt").read_text().splitlines()
    varies = (
        "shapes vary in words: (4, 2), (4, 5), (4, 7): pad to one length, sort into buckets, or drop_remainder=True"
    )
    assert f"  {varies}" in lines
    assert lines[-1] == "an advice"


def test_reasons_and_notes_stand_below_what_they_explain(tmp_path: Path) -> None:
    refused = shape([4], trial=Trial(("plain",), decision="plain"), reason="no kernel", notes=["a note"])
    half = shape([5], trial=Trial(("plain", "fused"), decision="fused"), reason="no constant")
    steps = [Step("step", refused, half), Step("whole", reason="noise"), Step("short", has_begun=False)]
    report.write(report_of(*steps), tmp_path)
    text = (tmp_path / "report.txt").read_text()
    assert "  (4,): plain\n    runs plain: no kernel\n    a note\n" in text
    assert "  (5,): fused\n    runs without XLA: no constant\n" in text
    assert "whole: 7 steps, 0 shapes\n  runs plain: noise\n" in text
    assert "short: 7 steps, 0 shapes\n  not compiled: " in text


def test_batches_in_one_call_have_a_row_of_their_own() -> None:
    trial = Trial(("plain", "at_once"), decision="at_once")
    trial.times = {"plain": [Times(0.008, 0.008)], "at_once": [Times(0.004, 0.004)]}
    (function,) = report_of(Step("step", at_once=trial))["functions"]
    assert function["batches_at_once"] == {"decision": "at_once", "median_ms_of_all": {"plain": 8.0, "at_once": 4.0}}
    (function,) = report_of(Step("step"))["functions"]
    assert function["batches_at_once"] is None


def test_shapes_and_errors_are_short_in_the_log() -> None:
    shapes = [tf.TensorShape(each) for each in ([2, 3], [], None, [4], [5], [6])]
    assert report.brief(shapes) == "[2, 3] ? [4] [5] ..."
    assert report.brief(shapes[:2]) == "[2, 3]"
    error = tf.errors.InvalidArgumentError(None, None, "no\n  constant " + "x" * 900)
    assert first_lines(error) == "no constant " + "x" * 388
    assert first_lines(ValueError("one\ttwo")) == "one two"
