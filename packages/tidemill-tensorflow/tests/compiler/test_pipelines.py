"""Model parallelism (smp): ranks compile their segments, switch together, and losses do not change."""

import json
from pathlib import Path
from typing import Any

import pytest

from forked_scripts import start_ranks, wait_for_all

SCRIPT = Path(__file__).with_name("pipelines.py")


@pytest.mark.parametrize("form", [pytest.param("loop", marks=pytest.mark.matrix), "fit"])
def test_partitions_are_compiled_and_switch_together(form: str) -> None:
    plain, compiled = _run("off", form, ranks=2), _run("on", form, ranks=2)
    first, second = (_shape(rank) for rank in compiled)
    assert first["notes"] == second["notes"] == ["XLA compiles 2 of 2 segments of this rank"]
    _compare(plain, compiled)


@pytest.fixture(scope="module")
def plain_replicas() -> list[dict[str, Any]]:
    return _run("off", "replicas", ranks=4)


@pytest.mark.parametrize(
    "form",
    [pytest.param("replicas", marks=pytest.mark.matrix), "sharded", pytest.param("horovod", marks=pytest.mark.matrix)],
)
def test_replicas_of_partitions_stay_bit_equal_and_a_rank_without_kernels_keeps_its_segments(
    plain_replicas: list[dict[str, Any]], form: str
) -> None:
    compiled = _run("on", form, ranks=4)
    for first, last in (compiled[:2], compiled[2:]):
        assert _shape(first)["notes"] == ["XLA compiles 2 of 2 segments of this rank"]
        kept, reason = _shape(last)["notes"]
        assert kept == "XLA compiles 1 of 2 segments of this rank"
        assert "not compiled: XLA has no kernel for PyFunc" in reason
    for one, other in zip(compiled[:2], compiled[2:], strict=True):
        assert one["variables"] == other["variables"], "replicas must not drift apart"
    _compare(plain_replicas, compiled)


def test_a_segment_for_which_xla_fails_keeps_its_kernels_and_the_others_are_compiled() -> None:
    plain, compiled = _run("off", "sizes", ranks=2), _run("on", "sizes", ranks=2)
    first, last = (_shape(rank)["notes"] for rank in compiled)
    assert first == ["XLA compiles 2 of 2 segments of this rank"]
    assert "not compiled: XLA does not compile it: " in last[1] and "compile-time constant" in last[1]
    _compare(plain, compiled)


def test_all_ranks_run_plain_if_one_draws_noise_by_a_state() -> None:
    reasons = [rank["functions"][0]["fallback"] for rank in _run("on", "noise", ranks=2)]
    assert "another process of the job cannot compile it" in reasons[0]
    assert "it draws noise by a state" in reasons[1]


def test_one_process_is_compiled_as_without_partitions() -> None:
    (plain,), (compiled,) = _run("off", "one", ranks=1), _run("on", "one", ranks=1)
    assert compiled["losses"] == pytest.approx(plain["losses"], rel=1e-10)
    assert _shape(compiled)["steps_by_variant"]["xla"] >= 6


def _compare(plain: list[dict[str, Any]], compiled: list[dict[str, Any]]) -> None:
    shapes = [_shape(rank) for rank in compiled]
    assert len({shape["decision"] for shape in shapes}) == 1 and shapes[0]["decision"] is not None
    assert shapes[0]["steps_by_variant"]["xla"] >= 6
    assert shapes[0]["steps_by_variant"]["fused"] >= 6
    assert all(shape["steps_by_variant"] == shapes[0]["steps_by_variant"] for shape in shapes)
    for one, other in zip(plain, compiled, strict=True):
        assert other["losses"] == pytest.approx(one["losses"], rel=1e-10)


def _shape(rank: dict[str, Any]) -> dict[str, Any]:
    (function,) = rank["functions"]
    assert function["fallback"] is None
    (shape,) = function["shapes"]
    return dict(shape)


def _run(switch: str, form: str, *, ranks: int) -> list[dict[str, Any]]:
    """Return what each rank found."""
    started = start_ranks(ranks, SCRIPT, switch, form)
    return [json.loads(rank.stdout) for rank in wait_for_all(started)]
