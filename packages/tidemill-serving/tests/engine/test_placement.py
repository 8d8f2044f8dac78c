"""Where signatures run, decided from their traits and from times of runs."""

import numpy as np
import pytest

from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.engine.placement import Placement, PlacementTrial, initial_placement
from tidemill_serving.engine.traits import Traits

ON_LOOP = Placement(on_loop=True, pooled=False)
ON_THREAD = Placement(on_loop=False, pooled=False)
POOLED = Placement(on_loop=False, pooled=True)
FAST_S, SLOW_S, LONG_S = 0.0001, 0.001, 0.01


def signature(*, rows: int = -1, **traits: bool) -> Signature:
    spec = TensorSpec("x:0", np.dtype("float32"), "float", (rows,))
    return Signature("s", "predict", {"x": spec}, {"y": spec}, Traits(**traits))


def decided(
    trial: PlacementTrial, inline_s: float, pooled_s: float, *, rows: int = 1, most: int = 100
) -> Placement | None:
    """Run feeds of one size until the trial decides; return its decision."""
    for _ in range(most):
        pooled = trial.pooled(4 * rows)
        elapsed_s = pooled_s if pooled else inline_s
        placement = trial.add(elapsed_s, pooled=pooled, rows=rows, size_bytes=4 * rows, fits_loop=rows <= 32)
        if placement is not None:
            return placement
    return None


@pytest.mark.parametrize(
    ("traits", "placement", "is_tried"),
    [
        ({"is_small": True}, ON_LOOP, False),
        ({"has_effects": True}, POOLED, False),
        ({"has_effects": True, "is_small": True}, POOLED, False),
        ({"has_loops": True}, ON_THREAD, True),
        ({}, ON_THREAD, True),
    ],
)
def test_the_graph_decides_where_a_signature_runs_first(
    traits: dict[str, bool], placement: Placement, is_tried: bool
) -> None:
    chosen, trial = initial_placement(signature(**traits))
    assert (chosen, trial is not None) == (placement, is_tried)


@pytest.mark.parametrize(
    ("inline_s", "pooled_s", "rows", "placement"),
    [
        (FAST_S, FAST_S, 1, ON_LOOP),
        (SLOW_S, SLOW_S, 16, ON_LOOP),
        (SLOW_S, SLOW_S, 1, None),  # more rows may take hardly more time
        (SLOW_S, SLOW_S, 2, None),
        (LONG_S, LONG_S, 1, ON_THREAD),
        (LONG_S, LONG_S * 0.9, 1, ON_THREAD),
        (LONG_S, LONG_S * 0.7, 1, POOLED),
        (FAST_S, FAST_S * 0.7, 1, POOLED),
        (FAST_S, FAST_S, 64, None),  # too many rows for the event loop, whatever their time
    ],
)
def test_the_times_of_runs_decide_where_it_stays(
    inline_s: float, pooled_s: float, rows: int, placement: Placement | None
) -> None:
    _, trial = initial_placement(signature())
    assert trial is not None
    assert decided(trial, inline_s, pooled_s, rows=rows) == placement


def test_runs_of_more_rows_may_decide_what_single_rows_left_open() -> None:
    trial = PlacementTrial(may_use_loop=True, batchable=True)
    assert decided(trial, SLOW_S, SLOW_S) is None
    assert decided(trial, SLOW_S, SLOW_S, rows=16) == ON_LOOP


def test_a_signature_whose_requests_share_no_runs_must_be_short_to_use_the_loop() -> None:
    assert decided(PlacementTrial(may_use_loop=True, batchable=False), SLOW_S, SLOW_S) == ON_THREAD


def test_a_graph_with_loops_never_uses_the_loop_of_events() -> None:
    _, trial = initial_placement(signature(has_loops=True))
    assert trial is not None
    assert decided(trial, FAST_S, FAST_S) == ON_THREAD


def test_single_slow_runs_do_not_count() -> None:
    trial = PlacementTrial(may_use_loop=True, batchable=True)
    assert trial.add(LONG_S, pooled=False, rows=1, size_bytes=4, fits_loop=True) is None
    assert trial.add(LONG_S, pooled=True, rows=1, size_bytes=4, fits_loop=True) is None
    assert decided(trial, FAST_S, FAST_S) == ON_LOOP


def test_runs_of_different_sizes_are_not_compared() -> None:
    trial = PlacementTrial(may_use_loop=True, batchable=True)
    for _ in range(20):
        assert trial.add(LONG_S, pooled=False, rows=32, size_bytes=128, fits_loop=True) is None
        assert trial.add(FAST_S, pooled=True, rows=1, size_bytes=4, fits_loop=True) is None
