"""What a job stores about a whole function."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemill_tensorflow.compiler.variants.decisions import DecisionStore
from tidemill_tensorflow.compiler.variants.earlier_jobs import MAX_WAIT_S, record
from tidemill_tensorflow.compiler.variants.shapes import Shape
from tidemill_tensorflow.compiler.variants.trials import Trial


def step(decision: str | None, step_s: float = 0.01, **different: Any) -> Any:
    """Return what `record` reads of a step: a loop whose graph determines all shapes, unless something is different."""
    trial = Trial(("plain", "xla"), decision=decision)
    shape = Shape((), "shape", trial=trial, first_s=different.pop("first_s", {"xla": 1.0, "fused": 1.0}))
    shape.reason = different.pop("failure", None)
    shape.last_s.extend([step_s] * 5)
    fields = {"reason": None, "key": "function", "is_of_fit": False, "at_once": None, "static": True, **different}
    return SimpleNamespace(main_shape=lambda: shape, has_static_shapes=lambda: fields["static"], **fields)


AT_ONCE, ONE = (Trial(("plain", "at_once"), decision=decision) for decision in ("at_once", "plain"))


@pytest.mark.parametrize(
    ("found", "stored"),
    [
        (step("xla"), "xla"),
        (step("fused", is_of_fit=True), "fused"),
        (step("xla", is_of_fit=True, at_once=AT_ONCE), "xla"),
        (step("xla", first_s={"xla": MAX_WAIT_S + 1}), "by shape"),
        (step("fused", first_s={"xla": MAX_WAIT_S + 1, "fused": 1.0}), "fused"),
        (step("xla", reason="it failed"), None),
        (step("xla", key=None), None),
        (step(None), None),
        (step("plain"), "plain"),
        (step("plain", static=False), None),
        (step("plain", failure="XLA does not compile it"), None),
        (step("plain", is_of_fit=True), None),
        (step("plain", 0.1, is_of_fit=True), "plain"),
        (step("plain", is_of_fit=True, at_once=ONE), "plain"),
        (step("plain", is_of_fit=True, at_once=ONE, static=False), None),
        (step("plain", is_of_fit=True, at_once=AT_ONCE, static=False), "at_once"),
        (step("plain", is_of_fit=True, at_once=Trial(("plain", "at_once"))), None),
    ],
)
def test_only_what_is_certain_is_stored(tmp_path: Path, found: Any, stored: str | None) -> None:
    store = DecisionStore(tmp_path)
    record(store, [found])
    assert store.read("function") == stored


def test_a_newer_decision_replaces_an_older_one(tmp_path: Path) -> None:
    store = DecisionStore(tmp_path)
    for decision in ("xla", "plain"):
        record(store, [step(decision)])
    assert store.read("function") == "plain"
