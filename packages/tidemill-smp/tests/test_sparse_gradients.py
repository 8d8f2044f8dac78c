"""Models with embeddings train as in plain Keras on the whole batch, with any microbatches, ranks and replicas.

The reference is Keras in one process. Keras 3 squares each row of a sparse gradient separately: rows that the plain
model has once must not occur once per microbatch or replica, and rows that it has several times must not be summed.
"""

import itertools
from pathlib import Path
from typing import Any

import pytest

import ranks
from embeddings import BATCH, EVERYTHING, KINDS, compare

pytestmark = pytest.mark.smp_first

MANUAL = {"auto_partition": False, "default_partition": 0, "bind_cores": False}
TF_KERAS = {"TF_USE_LEGACY_KERAS": "1"}
OTHER_HOROVOD = {"PYTHONPATH": str(Path(__file__).resolve().parent / "other_horovod")}
LOSSES, WEIGHTS = 2e-6, 4e-6
"""Rounding only: with rows once per microbatch, losses would be 1e-3 to 1e-2 off, and weights 1e-2 to 1e-1."""

SIZES = ("known", "batch unknown", "unknown")
AVERAGED = ("ddp", "sharded", "horovod", "horovod grouped")


def check(size: int, partitions: int, cases: Any, environment: dict[str, str] | None = None) -> None:
    """Train on `size` ranks, and compare with Keras."""
    config = {**MANUAL, "partitions": partitions, "horovod": size > partitions}
    results = ranks.run(size, compare, list(cases), config=config, environment=environment, timeout_s=900)
    for rank, result in enumerate(results):
        for case, (loss, weight, moved, held) in result.items():
            assert moved > 100 * WEIGHTS, f"{case}: all variables are trained"
            assert loss < LOSSES, f"{case} on rank {rank}: losses are off by {loss:.1e}"
            assert weight < WEIGHTS, f"{case} on rank {rank}: weights are off by {weight:.1e}"
            assert held == results[rank % partitions][case][3], f"{case}: replicas differ in some bit"


def test_one_rank_trains_as_keras() -> None:
    check(1, 1, [(EVERYTHING, 4, "adam", "none", "known"), ("one table", 2, "clipped", "none", "unknown")])


def test_tables_may_be_on_other_ranks() -> None:
    check(2, 2, [(EVERYTHING, 2, "clipped", "none", "batch unknown"), ("tied", 2, "adam", "none", "known")])


def test_replicas_train_as_keras_on_the_batch_of_all() -> None:
    ways = [("clipped by hand", "ddp", "known"), ("clipped", "sharded", "unknown"), ("adam", "horovod", "known")]
    check(2, 1, [("positions by shape", 1, "adam", "ddp", "known"), *(("one table", 2, *way) for way in ways)])


def test_another_horovod_adds_shared_rows_too() -> None:
    check(2, 1, [("one table", 2, "adam", "horovod grouped", "known")], OTHER_HOROVOD)


def test_tf_keras_clips_by_the_norm_of_the_rows_of_the_unpartitioned_model() -> None:
    check(1, 1, [("one table", 4, "clipped", "none", "known")], TF_KERAS)


# --- every combination ------------------------------------------------------------------------------------------------

PLACES = [(1, 1), (2, 2), (4, 4), (2, 1), (4, 2), (4, 1)]
"""(ranks, partitions)"""
KERAS = pytest.mark.parametrize("environment", [{}, TF_KERAS], ids=["keras", "tf_keras"])


@pytest.mark.matrix
@KERAS
@pytest.mark.parametrize(("size", "partitions"), PLACES)
def test_every_way_of_looking_up_in_every_place(size: int, partitions: int, environment: dict[str, str]) -> None:
    averaged = AVERAGED[:2] if size > partitions else ("none",)
    pieces = [count for count in (1, 2, 8) if BATCH // (size // partitions) % count == 0]
    combined = itertools.product((*KINDS, EVERYTHING), pieces, averaged)
    sizes = itertools.islice(itertools.cycle(SIZES), PLACES.index((size, partitions)), None)  # one each
    check(size, partitions, [(kind, count, "adam", way, next(sizes)) for kind, count, way in combined], environment)


@pytest.mark.matrix
@KERAS
@pytest.mark.parametrize("kind", KINDS)
def test_every_optimizer(kind: str, environment: dict[str, str]) -> None:
    names = ["adamw", "rmsprop", "adagrad", "sgd", "clipped", "clipped each", "clipped by hand"]
    names += ["legacy"] if environment else []
    check(2, 2, [(kind, 4, name, "none", "known") for name in names], environment)
    names.remove("clipped each")  # after averaging, a table that two ranks use is clipped alike on both
    check(2, 1, [(kind, 2, name, "ddp", "known") for name in names], environment)


@pytest.mark.matrix
@pytest.mark.parametrize("environment", [{}, OTHER_HOROVOD], ids=["tidemill", "other"])
@pytest.mark.parametrize(("size", "partitions"), [(2, 1), (4, 2)])
def test_every_way_of_looking_up_with_horovod(size: int, partitions: int, environment: dict[str, str]) -> None:
    combined = itertools.product((*KINDS, EVERYTHING), (1, 4), AVERAGED[2:])
    sizes = itertools.cycle(SIZES)
    check(size, partitions, [(kind, count, "adam", way, next(sizes)) for kind, count, way in combined], environment)
