"""The session of the compiler in one process: which functions are steps, what happens behind them, and the end."""

from __future__ import annotations

import gc
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tidemill_tensorflow.compiler.session import CompilerSession
from tidemill_tensorflow.compiler.variants.traced import NOT_STORED, StepCall
from tidemill_tensorflow.compiler.variants.trials import Trial

Sessions = Callable[..., CompilerSession]


@pytest.fixture
def sessions() -> Any:
    """Function that opens a session, which decides nothing by cost; it ends with the test."""
    opened: list[CompilerSession] = []

    def session(**options: Any) -> CompilerSession:
        chosen = {"deterministic": False, "report_dir": None, "cache_dir": None, "max_cost": math.inf, **options}
        opened.append(CompilerSession(**chosen))
        return opened[-1]

    yield session
    for each in opened:
        each.end()


class Descent:
    """A step of gradient descent on one number, with its reference in NumPy."""

    def __init__(self, *, name: str = "descent", jit_compile: bool | None = None) -> None:
        self.weight = tf.Variable(2.0)

        def step(value: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.square(self.weight * value - 1.0))
            self.weight.assign_sub(0.01 * tape.gradient(loss, self.weight))
            return loss

        step.__name__ = name
        traced = tf.function(step, autograph=False, jit_compile=jit_compile)
        self.concrete = traced.get_concrete_function(tf.TensorSpec([None]))
        self.expected = np.float64(2.0)

    def run(self, session: CompilerSession, size: int) -> None:
        """Run one step by the compiler, and compare its loss and the variable with NumPy's."""
        values = np.linspace(0.5, 1.5, size)
        step = session.step_of(self.concrete)
        assert step is not None
        inputs = [tf.constant(values, tf.float32)]
        found = step.run(StepCall(type(self.concrete)._call_flat, self.concrete, inputs, self.concrete.captured_inputs))
        rest = self.expected * values - 1.0
        np.testing.assert_allclose(found, np.sum(rest**2), rtol=1e-4)
        self.expected -= 0.01 * np.sum(2.0 * rest * values)
        np.testing.assert_allclose(self.weight.numpy(), self.expected, rtol=1e-4)


def test_a_training_function_has_one_step_and_others_have_none(sessions: Sessions) -> None:
    session, first, second = sessions(), Descent(), Descent()
    step = session.step_of(first.concrete)
    assert step is not None and session.step_of(first.concrete) is step
    assert session.step_of(second.concrete) not in (None, step)
    no_training = tf.function(lambda x: x * 2.0).get_concrete_function(tf.TensorSpec([2]))
    assert session.step_of(no_training) is None
    assert session.step_of(Descent(jit_compile=True).concrete) is None, "the script has chosen"
    assert len(session.steps) == 2
    session.end()
    assert session.step_of(Descent().concrete) is None, "after the end nothing is compiled"
    assert session.step_of(first.concrete) is step


def test_steps_of_any_sizes_train_as_numpy_computes_and_later_jobs_choose_the_same(
    sessions: Sessions, tmp_path: Path
) -> None:
    first, descent = sessions(cache_dir=tmp_path / "cache", report_dir=tmp_path / "report"), Descent()
    for size in [3] * 30 + [5, 3, 4] * 10:
        descent.run(first, size)
        first.wait_for_background()
    shape: Any = first.steps[0].main_shape()
    shape.trial.decision = "xla"  # whatever the times say on this machine
    first.note_decision(first.steps[0], shape)
    first.end()
    (function,) = json.loads((tmp_path / "report/report.json").read_text())["functions"]
    assert function["steps"] == 60
    later, again = sessions(cache_dir=tmp_path / "cache", deterministic=True), Descent()
    for size in [3] * 4:
        again.run(later, size)
    (adopted,) = later.steps[0].shapes.values()
    assert (adopted.key, adopted.decision, adopted.stored) == (shape.key, "xla", True)
    assert adopted.trial is not None and not adopted.trial.times, "no time is measured"
    assert adopted.steps == {"xla": 4}, "also the first one"


def test_a_deterministic_run_without_decisions_is_plain_and_says_why(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    session, descent = sessions(deterministic=True), Descent(name="repeated")
    for _ in range(4):
        descent.run(session, 3)
    assert session.steps[0].reason == NOT_STORED
    assert capsys.readouterr().err.count(f"training compiler: repeated runs plain: {NOT_STORED}") == 1


def test_several_processes_on_a_version_that_is_not_tested_with_them_run_plain_and_say_why(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": ["algo-1:2222", "algo-2:2222"]}}))
    monkeypatch.setattr(tf, "__version__", "2.12.1")
    session, descent = sessions(), Descent(name="shared")
    for _ in range(4):
        descent.run(session, 3)
        session.wait_for_background()
    reason = "several processes of tf.distribute are compiled on TensorFlow 2.21 and newer, and this is 2.12.1"
    assert session.steps[0].reason == reason and not session.steps[0].shapes
    assert capsys.readouterr().err.count(f"training compiler: shared runs plain: {reason}") == 1


def test_work_that_fails_behind_a_step_makes_it_plain_and_training_goes_on(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr("tidemill_tensorflow.compiler.steps.take_apart", fail)
    session, descent = sessions(), Descent()
    for _ in range(5):
        descent.run(session, 3)
        session.wait_for_background()
    assert session.steps[0].reason == "KeyError: 'a defect'"
    assert not session.is_compiling, "what failed is no longer awaited"
    assert "runs plain: KeyError: 'a defect'" in capsys.readouterr().err


def test_work_is_awaited_only_if_asked_or_if_the_run_is_deterministic(sessions: Sessions) -> None:
    for options, wait, awaited in (({}, False, False), ({}, True, True), ({"deterministic": True}, False, True)):
        session, goes_on, done = sessions(**options), threading.Event(), []
        step = session.step_of(Descent().concrete)
        assert step is not None
        if awaited:
            goes_on.set()

        def work(goes_on: threading.Event = goes_on, done: list[bool] = done) -> None:
            done.append(goes_on.wait(20))

        session.run_in_background(step, work, wait=wait)
        assert bool(done) is awaited
        assert session.is_compiling is not awaited
        goes_on.set()
        session.wait_for_background()
        assert done == [True] and not session.is_compiling


def test_the_end_writes_one_summary_and_drops_what_has_not_begun(
    sessions: Sessions, capsys: pytest.CaptureFixture[str]
) -> None:
    session, goes_on, begun, done = sessions(), threading.Event(), threading.Event(), []
    step = session.step_of(Descent(name="ended").concrete)
    assert step is not None

    def first() -> None:
        begun.set()
        goes_on.wait(20)
        session.note("a word of the thread")

    session.run_in_background(step, first)
    session.run_in_background(step, lambda: done.append("second"))
    assert begun.wait(20)
    session._background._is_working = False  # else the end would let `exit` end this process at once
    session.end()
    session.end()
    session.run_in_background(step, lambda: done.append("third"))
    goes_on.set()
    session.wait_for_background()
    log = capsys.readouterr().err
    assert done == [] and "a word of the thread" not in log
    assert log.count("ended (0 steps)") == 1


def test_a_report_that_cannot_be_written_is_said_and_fails_nothing(
    sessions: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    session = sessions(report_dir=tmp_path / "file" / "report")
    session.end()
    assert "the report cannot be written: " in capsys.readouterr().err


def test_a_decision_is_for_other_traces_and_for_later_jobs_and_none_for_others(
    sessions: Sessions, tmp_path: Path
) -> None:
    session = sessions(cache_dir=tmp_path)
    descent = Descent()
    for _ in range(4):
        descent.run(session, 3)
        session.wait_for_background()
    (shape,) = session.steps[0].shapes.values()
    shape.trial = Trial(("plain", "xla"), decision="xla")
    session.note_decision(session.steps[0], shape)
    assert session.decision_of_replica(shape.key) == session.stored_decision(shape.key) == "xla"
    assert session.decision_of_replica("another") is session.stored_decision("another") is None
    assert session.decision_of_first(shape.key) is None, "this process is the first"
    assert sessions(cache_dir=tmp_path).stored_decision(shape.key) == "xla"
    assert sessions().stored_decision(shape.key) is None


def test_code_of_functions_that_are_gone_is_freed_when_the_next_one_trains(sessions: Sessions) -> None:
    session, descent = sessions(), Descent()
    for _ in range(5):
        descent.run(session, 3)
        session.wait_for_background()
    (shape,) = session.steps[0].shapes.values()
    assert shape.functions
    del descent
    gc.collect()
    assert shape.functions, "a finalizer only notes it"
    Descent().run(session, 3)
    session.wait_for_background()
    assert not shape.functions and session.as_dict()["functions"][0]["steps"] == 5
