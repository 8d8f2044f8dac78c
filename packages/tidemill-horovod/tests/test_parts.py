"""Parts that need no other rank: sums of several calls, compression, sets of ranks, keys of arguments."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from groups import joined
from horovod.tensorflow import process_sets
from horovod.tensorflow.aggregation import Aggregation
from horovod.tensorflow.collectives import scaled
from horovod.tensorflow.gradients import GradientReduction
from horovod.tensorflow.tensors import rank_op, size_op


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("traced", [False, True])
def test_gradients_of_several_calls_are_used_after_the_last_one(average: bool, traced: bool) -> None:
    aggregation = Aggregation(2, average=average)
    total, table, skipped = tf.Variable([0.0]), tf.Variable([[0.0], [0.0]]), tf.Variable(0)

    def use(sums: list[Any]) -> None:
        assert sums[1] is None, "no call had a gradient for it"
        total.assign(sums[0])
        table.assign(sums[2])

    def add(value: Any) -> None:
        rows = tf.IndexedSlices(value[tf.newaxis], tf.constant([1]), tf.constant([2, 1]))
        aggregation.add([value, None, rows], use, lambda: skipped.assign_add(1))

    call = tf.function(add) if traced else add
    seen = []
    for value in (1.0, 3.0, 5.0, 9.0):
        call(tf.constant([value]))
        seen.append((float(total[0]), table.numpy().ravel().tolist(), int(skipped)))
    factor = 0.5 if average else 1.0
    first, second = 4.0 * factor, 14.0 * factor
    assert seen == [
        (0.0, [0.0, 0.0], 1),
        (first, [0.0, first], 1),
        (first, [0.0, first], 2),
        (second, [0.0, second], 2),
    ]


@pytest.mark.parametrize(
    ("value", "factor", "wanted"),
    [
        (tf.constant([3, -3]), 0.5, [1, -1]),
        (tf.constant([2**53 + 1], tf.int64), 1.0, [2**53 + 1]),
        (tf.constant([True, False]), 0.5, [True, False]),
        (tf.constant([1.0], tf.float16), 1 / 3, [np.float16(1 / 3)]),
        (tf.constant([1.0], tf.float64), 0.1, [0.1]),
    ],
)
def test_factors_are_applied_in_the_precision_of_horovod(value: Any, factor: float, wanted: list[Any]) -> None:
    result = scaled(value, factor)
    assert result.dtype == value.dtype
    assert result.numpy().tolist() == wanted


def test_half_precision_is_for_floats_and_taken_back() -> None:
    for value in (tf.constant([1.5]), tf.constant([1.5], tf.float64), tf.constant([3])):
        packed, context = hvd.Compression.fp16.compress(value)
        assert packed.dtype == (tf.float16 if value.dtype.is_floating else value.dtype)
        back = hvd.Compression.fp16.decompress(packed, context)
        assert (back.dtype, back.numpy().tolist()) == (value.dtype, value.numpy().tolist())
    assert hvd.Compression.none.compress(value) == (value, None)
    assert hvd.Compression.none.decompress(value, None) is value
    from horovod.tensorflow.compression import Compressor

    for method, words in ((Compressor.compress, (value,)), (Compressor.decompress, (value, None))):
        with pytest.raises(NotImplementedError):
            method(*words)


def test_sets_are_equal_by_their_ranks_whatever_their_order_and_kind() -> None:
    one, other = hvd.ProcessSet([2, 0, 2]), hvd.ProcessSet(np.array([0, 2]))
    assert one == other and hash(one) == hash(other) and one.ranks == [0, 2]
    assert one != hvd.ProcessSet([0]) and one != [0, 2]
    assert repr(one) == "ProcessSet(process_set_id=None, ranks=[0, 2], mpi_comm=None)"
    assert (one.size(), one.rank(), one.included()) == (None, None, None)
    for wrong in (1, [0.5], "01"):
        with pytest.raises(ValueError, match="allowed are numbers of ranks"):
            hvd.ProcessSet(wrong)


def test_a_set_of_one_process_is_found_until_it_is_removed() -> None:
    hvd.init([])
    try:
        added = hvd.add_process_set([0])
        assert process_sets.find_process_set(added.process_set_id) is added
        assert process_sets.registered(hvd.ProcessSet([0])) is added
        assert process_sets.get_process_set_ids_and_ranks() == {0: [0], added.process_set_id: [0]}
        assert (added.rank(), added.size(), added.included()) == (0, 1, True)
        with pytest.raises(ValueError, match="was added before: remove that one, or use it"):
            hvd.add_process_set([0])
        with pytest.raises(ValueError, match=r"ranks of a process set are \[0, 3\]"):
            hvd.add_process_set([3, 0])
        assert hvd.remove_process_set(added) and not hvd.remove_process_set(added)
        assert process_sets.find_process_set(1) is None
        again = hvd.ProcessSet([0])
        assert process_sets.registered(again) is again, "nothing is registered"
    finally:
        hvd.shutdown()
    assert hvd.global_process_set.ranks == [], "there are no ranks before init"


def test_ranks_as_tensors_know_the_sets() -> None:
    with joined():
        assert (int(rank_op()), int(size_op())) == (1, 2)
        with pytest.raises(ValueError, match="9"):
            size_op(process_set_id=9)


def test_batch_normalization_refuses_what_it_cannot_honor_and_keeps_its_set() -> None:
    for name, value in (("renorm", True), ("virtual_batch_size", 4), ("synchronized", True), ("fused", True)):
        with pytest.raises(ValueError, match=f"hvd.SyncBatchNormalization: {name} is {value}; leave it out"):
            hvd.SyncBatchNormalization(**{name: value})
    with pytest.raises(ValueError, match="ranks is 1; allowed are numbers of ranks"):
        hvd.SyncBatchNormalization(process_set=1)
    plain, everyone = hvd.SyncBatchNormalization(), hvd.SyncBatchNormalization(process_set=hvd.global_process_set)
    assert "process_set" not in plain.get_config() and "process_set" not in everyone.get_config()
    layer = hvd.SyncBatchNormalization(process_set=hvd.ProcessSet([1, 0]), momentum=0.5)
    twin = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert layer.get_config()["process_set"] == [0, 1]
    assert (twin.process_set, twin.momentum) == (layer.process_set, 0.5)


def test_moments_are_sent_in_training_alone_and_only_if_there_are_others() -> None:
    batch = tf.constant([[1.0], [3.0]])
    with joined() as pair:
        layer = hvd.SyncBatchNormalization(momentum=0.0)
        layer(batch, training=False)
        assert not pair.sent
        layer(batch, training=True)
        (packed,) = pair.sent
        assert packed.ravel().tolist() == [4.0, 10.0, 2.0], "sum, sum of squares, count"
        half = hvd.SyncBatchNormalization(dtype="float16")
        half(tf.cast(batch, tf.float16), training=True)
        assert pair.sent[1].dtype == np.float32
        with pytest.raises(ValueError, match=r"call hvd\.add_process_set first"):
            hvd.SyncBatchNormalization(process_set=hvd.ProcessSet([1]))(batch, training=True)
    alone = hvd.SyncBatchNormalization(momentum=0.0)
    alone(batch, training=True)  # without init
    np.testing.assert_allclose(np.asarray(alone.moving_mean), [2.0])


def test_gradients_that_stay_on_their_rank_are_divided_unless_it_is_switched_off() -> None:
    rows = tf.IndexedSlices(tf.constant([[2.0]]), tf.constant([1]), tf.constant([3, 1]))
    for scales, wanted in ((True, 1.0), (False, 2.0)):
        reduction = GradientReduction("test", hvd.Compression.none, False, hvd.Average, 1.0, None, scales)
        with joined() as pair:
            dense, sparse, none = reduction.reduce([tf.constant(2.0), rows, None], local=frozenset({0, 1, 2}))
            assert not pair.sent
        assert (float(dense), sparse.values.numpy().tolist(), none) == (wanted, [[wanted]], None)
        assert sparse.indices.numpy().tolist() == [1]
