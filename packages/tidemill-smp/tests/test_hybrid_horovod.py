"""Two replicas of two partitions, averaged by Horovod in the script, train as one process on the whole batch.

Horovod is tidemill-horovod, or an imitation of the original Horovod, which does not know partitions (`other_horovod`).
"""

import inspect
from pathlib import Path
from typing import Any

import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {"partitions": 2, "auto_partition": False, "default_partition": 0, "microbatches": 2, "horovod": True}


KINDS: dict[str, dict[str, str]] = {
    "tidemill": {},
    "other": {"PYTHONPATH": str(Path(__file__).resolve().parent / "other_horovod")},
}


@pytest.fixture(params=KINDS)
def horovod(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Environment of ranks for each kind of Horovod."""
    return {"config": CONFIG, "environment": KINDS[request.param]}


def test_horovod_counts_the_replicas(horovod: dict[str, Any]) -> None:
    assert ranks.run(4, places, **horovod) == [(0, 2, 0, 2), (0, 2, 0, 2), (1, 2, 1, 2), (1, 2, 1, 2)]


@pytest.mark.parametrize("form", ["allreduce", "grouped", "tape"])
def test_training_equals_one_process_on_the_whole_batch(horovod: dict[str, Any], form: str) -> None:
    results = ranks.run(4, train_both, form, **horovod)
    for rank, (losses, plain_losses, gaps, weights) in enumerate(results):
        assert losses == pytest.approx(plain_losses, rel=1e-5)
        assert max(gaps.values()) < 2e-6
        assert set(gaps) == ({0, 1, 2} if rank % 2 == 0 else {3, 4})
        assert weights == results[rank % 2][3], "replicas differ in some bit"


def test_ranks_of_a_partition_may_be_neighbors() -> None:
    config = {**CONFIG, "placement_strategy": "spread", "contiguous": False, "xla": False, "fork": False}
    results = ranks.run(4, train_both, "allreduce", config=config)
    assert ranks.run(4, places, config=config) == [(0, 2, 0, 2), (1, 2, 1, 2), (0, 2, 0, 2), (1, 2, 1, 2)]
    for rank, (losses, plain_losses, gaps, weights) in enumerate(results):
        assert losses == pytest.approx(plain_losses, rel=1e-5)
        assert max(gaps.values()) < 2e-6
        assert set(gaps) == ({0, 1, 2} if rank < 2 else {3, 4})
        assert weights == results[rank // 2 * 2][3], "replicas differ in some bit"


def test_broadcasting_on_the_first_batch_makes_replicas_equal(horovod: dict[str, Any]) -> None:
    results = ranks.run(4, train_from_other_seeds, **horovod)
    for rank, (model, optimizer, before) in enumerate(results):
        assert (model, optimizer) == results[rank % 2][:2]
        assert (before == results[rank % 2][2]) == (rank < 2), "without it they are not"


def test_a_horovod_without_support_for_partitions_gets_only_local_values() -> None:
    results = ranks.run(4, call_the_other, config=CONFIG, environment=KINDS["other"])
    for rank, (none, several, refused, handed_in) in enumerate(results):
        assert none is None
        assert several == [None, 1.0 + 3.0, None]
        assert refused == ["None values not supported."] * 2, "it is as strict as Horovod"
        assert handed_in == {"broadcast": [("in place", 1, 3 if rank % 2 == 0 else 2)], "reduced": ["a", "b", None]}


@pytest.mark.parametrize(("kind", "counts"), [("tidemill", (2, 1)), ("other", (1, 2))])
def test_a_horovod_that_the_script_has_started_is_refused(kind: str, counts: tuple[int, int]) -> None:
    processes, replicas = counts  # tidemill-horovod by itself joins all ranks of the launcher
    with ranks.Job(2, None, KINDS[kind]) as job:
        for text in job.call(start_by_itself, replicas):
            wanted = f"started before smp.init() and counts {processes} processes, where there are {replicas} replicas"
            assert f"Horovod was {wanted}" in text
            assert "Leave hvd.init() out" in text


def test_replicas_without_horovod_are_refused_and_replicas_without_averaging_get_a_warning() -> None:
    with ranks.Job(2, None) as job:
        for text in job.call(init_without_horovod_and_again):
            assert "'horovod' is True and there are 2 replicas, but Horovod is not installed" in text
            assert "set 'ddp'" in text
        assert "there are 2 replicas (2 ranks, 1 partitions), but neither 'horovod' nor 'ddp' is set" in job.output()


def test_impossible_jobs_are_refused_before_a_process_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    import smdistributed.modelparallel.tensorflow as smp

    monkeypatch.setenv("SMP_RANK", "0")
    monkeypatch.setenv("SMP_SIZE", "3")
    with pytest.raises(ValueError, match="there are 3 ranks and 'partitions' is 2"):
        smp.init({"partitions": 2, "horovod": True})
    monkeypatch.setenv("SMP_SIZE", "2")
    with pytest.raises(ValueError, match="'shard_optimizer_state' is True but 'ddp' is not True"):
        smp.init({"partitions": 2, "shard_optimizer_state": True})
    assert not smp.core.initialized


# --- on the ranks -----------------------------------------------------------------------------------------------------


def places() -> Any:
    import horovod.tensorflow as hvd
    import smdistributed.modelparallel.tensorflow as smp

    return hvd.rank(), hvd.size(), smp.dp_rank(), smp.dp_size()


def _reduced(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    import horovod.tensorflow as hvd

    _applied(model, optimizer, [hvd.allreduce(grad) for grad in grads], first_batch)


def _reduced_at_once(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    import horovod.tensorflow as hvd

    _applied(model, optimizer, hvd.grouped_allreduce(grads), first_batch)


def _applied(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

    def broadcast() -> Any:
        return tf.group(
            hvd.broadcast_variables(model.variables, root_rank=0),
            hvd.broadcast_variables(optimizer.variables(), root_rank=0),
        )

    tf.cond(first_batch, broadcast, tf.no_op)


def train_both(form: str) -> Any:
    import keras

    import horovod.tensorflow as hvd
    import hybrid

    apply = {"allreduce": _reduced, "grouped": _reduced_at_once, "tape": _applied}[form]
    wrapping = {"wrap_tape": hvd.DistributedGradientTape} if form == "tape" else {}
    net, losses = hybrid.train(keras.optimizers.Adam(0.01), apply, **wrapping)
    weights, plain_losses = hybrid.train_plain(keras.optimizers.Adam(0.01))
    return losses, plain_losses, hybrid.differences(net, weights), _bytes(net)


def train_from_other_seeds() -> Any:
    import keras
    import tensorflow as tf

    import hybrid
    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    optimizer = keras.optimizers.Adam(0.01)
    net, _ = hybrid.train(optimizer, _reduced, seed=smp.dp_rank())
    slots = [slot.numpy().tobytes() for slot in optimizer.variables if not is_remote(slot)]
    tf.keras.utils.set_random_seed(smp.dp_rank())
    other = models.distributed(hybrid.Net)()
    smp.step(lambda x: other(x))(tf.zeros([4, models.FEATURES]))
    return _bytes(net), slots, _bytes(other)


def _bytes(net: Any) -> list[bytes]:
    import hybrid

    return [value.tobytes() for value in hybrid.held(net).values()]


def init_without_horovod_and_again() -> str:
    import importlib.util

    import smdistributed.modelparallel.tensorflow as smp

    find, message = importlib.util.find_spec, ""
    importlib.util.find_spec = lambda name, package=None: None if name == "horovod" else find(name, package)
    try:
        smp.init({"partitions": 1, "horovod": True})
    except ValueError as error:
        message = str(error)
    assert not smp.core.initialized, "so that it can be called again"
    smp.init({"partitions": 1})
    return message


def call_the_other() -> Any:
    """Call the wrapped functions with None, with variables of other partitions, and with keyword arguments."""
    import tensorflow as tf

    import horovod.tensorflow as hvd
    import hybrid
    import models
    import smdistributed.modelparallel.tensorflow as smp

    net = models.distributed(hybrid.Net)()
    smp.step(lambda x: net(x))(tf.zeros([4, models.FEATURES]))
    hvd.handed_in.update(broadcast=[], reduced=[])
    none = hvd.allreduce(None, op=hvd.Average)
    mine = tf.constant(float(smp.rank()))
    reduced = [hvd.allreduce(mine, name="a"), hvd.allreduce(mine, True, name="b")]
    assert reduced[0] == reduced[1]
    several = hvd.grouped_allreduce([None, tf.constant(1.0 + 2.0 * smp.dp_rank()), None], op=hvd.Sum)
    hvd.broadcast_variables(net.variables, root_rank=1, inplace=True)
    refused = []
    for function, given in ((hvd.allreduce, None), (hvd.grouped_allreduce, [None])):
        with pytest.raises(ValueError, match="None") as error:
            inspect.unwrap(function)(given)
        refused.append(str(error.value))
    return none, [None if one is None else float(one) for one in several], refused, dict(hvd.handed_in)


def start_by_itself(replicas: int) -> str:
    import os

    import horovod.tensorflow as hvd
    import smdistributed.modelparallel.tensorflow as smp

    rank = os.environ["SMP_RANK"]
    if hasattr(hvd, "Communicator"):
        hvd.init()
    else:
        hvd.init(comm=[int(rank)])
    try:
        smp.init({"partitions": 2 // replicas, "horovod": True})
    except ValueError as error:
        assert not smp.core.initialized
        return str(error)
    return ""
