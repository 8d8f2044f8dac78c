"""Calls on one rank of many against NumPy and Keras on the arrays of all ranks, for many sizes, shapes and dtypes."""

import pickle
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import horovod.tensorflow as hvd
from horovod.tensorflow.collectives import scaled
from horovod.tensorflow.keras import callbacks
from others import among

DTYPES = ("int32", "int64", "float16", "float32", "float64")
EXAMPLES = settings(max_examples=25)


@st.composite
def groups(draw: Any, *, most: int = 6) -> tuple[int, int, int]:
    """Return a rank, the number of ranks, and a seed for their values."""
    size = draw(st.integers(2, most))
    return draw(st.integers(0, size - 1)), size, draw(st.integers(0, 2**31))


def arrays(size: int, seed: int, shape: list[int], dtype: str = "float32") -> list[np.ndarray]:
    """Return one array per rank."""
    random = np.random.default_rng(seed)
    wide = 4 if dtype == "float16" else 40  # products of six stay finite
    return [np.asarray(random.uniform(-wide, wide, shape)).astype(dtype) for _ in range(size)]


def as_sent(all_: list[np.ndarray]) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Return the answers of a group whose ranks send these arrays."""

    def answers(array: np.ndarray) -> list[np.ndarray]:
        assert any(np.array_equal(array, one) for one in all_), "this rank sends its own array"
        return all_

    return answers


def in_both_ways(call: Callable[[], Any]) -> list[Any]:
    return [call(), tf.function(call)()]


def truncated(wide: np.ndarray, dtype: Any) -> np.ndarray:
    return np.trunc(wide).astype(dtype) if np.dtype(dtype).kind == "i" else wide.astype(dtype)


def tolerance(dtype: str) -> dict[str, float]:
    error = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-9}.get(dtype, 0.0)
    return {"rtol": error, "atol": error}


shapes = st.lists(st.integers(0, 4), max_size=3)


REDUCTIONS: dict[Any, Callable[[list[np.ndarray]], Any]] = {
    hvd.Sum: lambda all_: reduce(np.add, all_),
    hvd.Average: lambda all_: truncated(
        np.asarray(reduce(np.add, all_), wide_of(all_[0].dtype)) * (1 / len(all_)), all_[0].dtype
    ),
    hvd.Min: lambda all_: reduce(np.minimum, all_),
    hvd.Max: lambda all_: reduce(np.maximum, all_),
    hvd.Product: lambda all_: reduce(np.multiply, all_),
}


def wide_of(dtype: Any) -> str:
    return "float64" if np.dtype(dtype).kind == "i" else "float32" if dtype == "float16" else str(dtype)


@EXAMPLES
@given(groups(), shapes, st.sampled_from(DTYPES), st.sampled_from(list(REDUCTIONS)))
def test_every_reduction_is_that_of_numpy_over_the_arrays_of_all_ranks(
    group: tuple[int, int, int], shape: list[int], dtype: str, op: Any
) -> None:
    rank, size, seed = group
    all_ = arrays(size, seed, shape, dtype)
    with among(rank, size, as_sent(all_)):
        wanted = REDUCTIONS[op](all_)
        for got in in_both_ways(lambda: hvd.allreduce(tf.constant(all_[rank]), op=op)):
            assert (got.dtype, got.shape) == (dtype, tuple(shape))
            np.testing.assert_allclose(got, wanted, err_msg=op.name, **tolerance(dtype))


@EXAMPLES
@given(groups(), st.integers(0, 9), st.sampled_from(DTYPES))
def test_the_rows_of_a_reducescatter_put_together_are_the_allreduce(
    group: tuple[int, int, int], rows: int, dtype: str
) -> None:
    _, size, seed = group
    all_ = arrays(size, seed, [rows, 2], dtype)
    for op in (hvd.Sum, hvd.Average):
        parts, whole = [], None
        for rank in range(size):
            with among(rank, size, as_sent(all_)):
                parts.append(hvd.reducescatter(tf.constant(all_[rank]), op=op).numpy())
                whole = hvd.allreduce(tf.constant(all_[rank]), op=op)
        np.testing.assert_array_equal(np.concatenate(parts), whole)
        assert [len(part) for part in parts] == [len(part) for part in np.array_split(np.arange(rows), size)]


@EXAMPLES
@given(groups(), st.data())
def test_an_allgather_has_the_rows_of_all_ranks_and_the_mean_of_their_gradients(
    group: tuple[int, int, int], data: st.DataObject
) -> None:
    rank, size, seed = group
    counts = data.draw(st.lists(st.integers(0, 4), min_size=size, max_size=size))
    all_ = [one[: counts[place]] for place, one in enumerate(arrays(size, seed, [4, 2]))]
    upstream = np.random.default_rng(seed).normal(size=[size, sum(counts), 2]).astype("float32")

    def answers(array: np.ndarray) -> list[np.ndarray]:
        if array.dtype == np.int64:
            return [np.array([count]) for count in counts]
        return list(upstream) if np.array_equal(array, upstream[rank]) and array.shape != all_[rank].shape else all_

    with among(rank, size, answers):
        own = tf.constant(all_[rank])
        with tf.GradientTape() as tape:
            tape.watch(own)
            gathered = hvd.allgather(own)
            loss = tf.reduce_sum(gathered * upstream[rank])
        np.testing.assert_array_equal(gathered, np.concatenate(all_))
        if sum(counts) != counts[rank]:  # else the test cannot tell rows from gradients
            begin = sum(counts[:rank])
            wanted = upstream.mean(0)[begin : begin + counts[rank]]
            np.testing.assert_allclose(tape.gradient(loss, own), wanted, rtol=1e-5, atol=1e-6)


def adasum(all_: list[np.ndarray]) -> np.ndarray:
    """Combine neighbors, then pairs of them, as the paper defines it."""
    wide = [one.astype("float64") for one in all_]
    while len(wide) > 1:
        pairs = zip(wide[::2], wide[1::2], strict=True)
        wide = [
            (1 - (a * b).sum() / (2 * (a * a).sum() or 1)) * a + (1 - (a * b).sum() / (2 * (b * b).sum() or 1)) * b
            for a, b in pairs
        ]
    return wide[0]


@EXAMPLES
@given(st.sampled_from((2, 4, 8)), st.integers(0, 2**31), shapes, st.booleans())
def test_adasum_is_that_of_the_paper_also_of_zeros(size: int, seed: int, shape: list[int], has_zeros: bool) -> None:
    all_ = arrays(size, seed, shape)
    if has_zeros:
        all_[seed % size] = np.zeros_like(all_[0])
    rank = seed % size

    def answers(array: np.ndarray) -> list[np.ndarray]:
        return [one[np.newaxis] for one in all_]

    with among(rank, size, answers):
        for got in in_both_ways(lambda: hvd.allreduce(tf.constant(all_[rank]), op=hvd.Adasum)):
            np.testing.assert_allclose(got, adasum(all_), rtol=1e-4, atol=1e-4)


@EXAMPLES
@given(groups(), st.data(), st.sampled_from((hvd.Sum, hvd.Average)))
def test_sparse_rows_reduce_to_what_their_dense_tensors_reduce_to(
    group: tuple[int, int, int], data: st.DataObject, op: Any
) -> None:
    rank, size, seed = group
    places = data.draw(st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=size, max_size=size))
    values = [one[: len(places[at])] for at, one in enumerate(arrays(size, seed, [4, 2]))]
    dense = np.zeros([size, 4, 2], "float64")
    for one, (rows, where) in enumerate(zip(values, places, strict=True)):
        np.add.at(dense[one], np.asarray(where, int), rows)

    def answers(array: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(one, array.dtype) for one in places] if array.dtype.kind == "i" else values

    with among(rank, size, answers):
        slices = tf.IndexedSlices(values[rank], tf.constant(places[rank], tf.int64), tf.constant([4, 2]))
        got = hvd.allreduce(slices, op=op)
        assert isinstance(got, tf.IndexedSlices)
        wanted = dense.sum(0) / (size if op is hvd.Average else 1)
        np.testing.assert_allclose(tf.convert_to_tensor(got), wanted, rtol=1e-4, atol=1e-4)


@EXAMPLES
@given(groups(), st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_objects_of_any_length_arrive_whole_and_by_rank(group: tuple[int, int, int], value: Any) -> None:
    rank, size, _ = group
    objects = [(one, value) for one in range(size)]
    packed = [np.frombuffer(pickle.dumps(one), np.uint8) for one in objects]
    with among(rank, size, lambda array: packed):
        assert hvd.allgather_object(objects[rank]) == objects
        for root in range(size):
            assert hvd.broadcast_object(objects[rank], root) == objects[root]
            assert hvd.broadcast_object_fn(root)(objects[rank]) == objects[root]


@EXAMPLES
@given(groups(), st.dictionaries(st.text(max_size=4), st.floats(-1e6, 1e6), max_size=5))
def test_metrics_of_an_epoch_are_the_means_over_the_ranks_and_what_is_no_number_stays(
    group: tuple[int, int, int], logs: dict[str, Any]
) -> None:
    rank, size, seed = group
    others = np.random.default_rng(seed).normal(size=[size, len(logs)])
    others[rank] = [logs[name] for name in sorted(logs)]
    stays = {" a note": "no number", " nothing": None, " curve": [1.0, 2.0]}
    with among(rank, size, as_sent(list(others))):
        average = callbacks.MetricAverageCallback()
        found = {**logs, **stays}
        average.on_epoch_end(0, found)
    assert {name: found[name] for name in stays} == stays
    np.testing.assert_allclose([found[name] for name in sorted(logs)], others.mean(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mean", [0.0, 300.0, -3000.0])
@settings(max_examples=12)
@given(groups(most=4), st.data())
def test_moments_over_the_ranks_are_those_of_keras_on_the_whole_batch(
    mean: float, group: tuple[int, int, int], data: st.DataObject
) -> None:
    rank, size, seed = group
    counts = data.draw(st.lists(st.integers(1, 5), min_size=size, max_size=size))
    random = np.random.default_rng(seed)
    batches = [random.normal(mean, 1.0, [count + 1, 3, 2]).astype("float32") for count in counts]
    sent: list[np.ndarray] = []
    for batch in batches:  # what each rank sends, from its own layer
        with among(0, 2, lambda array: sent.append(np.array(array)) or [array, array]):
            hvd.SyncBatchNormalization()(tf.constant(batch), training=True)
    with among(rank, size, lambda array: sent):
        ours = hvd.SyncBatchNormalization(momentum=0.5)
        result = ours(tf.constant(batches[rank]), training=True)
    plain = tf.keras.layers.BatchNormalization(momentum=0.5)
    wanted = plain(tf.constant(np.concatenate(batches)), training=True)
    begin = sum(map(len, batches[:rank]))
    np.testing.assert_allclose(result, wanted[begin : begin + len(batches[rank])], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(ours.moving_mean, plain.moving_mean, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(ours.moving_variance, plain.moving_variance, rtol=2e-3)


@EXAMPLES
@given(st.lists(st.integers(0, 3), min_size=1, max_size=7))
def test_ranks_on_machines_are_numbered_without_gaps_and_each_place_once(machines: list[int]) -> None:
    size = len(machines)
    places, sizes = {}, {}
    for rank in range(size):
        hvd.shutdown()
        hvd.init(OnMachines(rank, machines))
        places[rank] = (hvd.local_rank(), hvd.cross_rank())
        sizes[rank] = (hvd.local_size(), hvd.cross_size())
        assert hvd.is_homogeneous() == (len({machines.count(one) for one in machines}) == 1)
        hvd.shutdown()
    for rank, machine in enumerate(machines):
        same = [one for one in range(size) if machines[one] == machine]
        alike = [one for one in range(size) if places[one][0] == places[rank][0]]
        assert sizes[rank] == (len(same), len(alike))
        assert sorted(places[one][0] for one in same) == list(range(len(same)))
        assert sorted(places[one][1] for one in alike) == list(range(len(alike)))


class OnMachines:
    """A rank of a group whose ranks run on these machines."""

    def __init__(self, rank: int, machines: list[int]) -> None:
        self.rank, self.size, self._machines = rank, len(machines), machines

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        return [np.full_like(array, machine) for machine in self._machines]

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        raise AssertionError("nothing is reduced")

    broadcast = barrier = allreduce


@given(st.integers(-(2**62), 2**62), st.floats(0.01, 100.0), st.sampled_from(("int32", "int64", "float32")))
def test_a_factor_is_applied_in_the_wide_type_and_rounded_once(value: int, factor: float, dtype: str) -> None:
    given_ = np.asarray([value % 2**20 - 2**19 if dtype != "int64" else value // 2**10], dtype)
    wanted = truncated(given_.astype("float64") * factor, dtype)
    np.testing.assert_allclose(scaled(tf.constant(given_), factor), wanted, rtol=1e-6 if dtype == "float32" else 0)


@settings(max_examples=15)
@given(
    st.integers(1, 3),
    st.booleans(),
    st.lists(st.lists(st.none() | st.integers(-9, 9), min_size=2, max_size=2), min_size=3, max_size=9),
)
def test_sums_of_several_calls_are_those_of_numpy_whichever_calls_have_a_gradient(
    passes: int, average: bool, calls: list[list[int | None]]
) -> None:
    from horovod.tensorflow.aggregation import Aggregation

    aggregation, used = Aggregation(passes, average=average), []
    skipped: list[int] = []
    for number, gradients in enumerate(calls):
        tensors = [None if one is None else tf.constant([float(one)]) for one in gradients]
        aggregation.add(tensors, lambda sums: used.append(sums), lambda number=number: skipped.append(number))
    whole = [calls[begin : begin + passes] for begin in range(0, len(calls) - passes + 1, passes)]
    assert len(used) == len(whole)
    seen = [False, False]
    for sums, chunk in zip(used, whole, strict=True):
        for place in range(2):
            values = [call[place] for call in chunk if call[place] is not None]
            seen[place] = seen[place] or bool(values)
            wanted = sum(values) / (passes if average else 1)
            assert (sums[place] is None) == (not seen[place])
            if seen[place]:
                np.testing.assert_allclose(sums[place], [wanted], rtol=1e-6)
    assert skipped == [number for number in range(len(calls)) if (number + 1) % passes]


@EXAMPLES
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 5), st.floats(0.01, 10.0))
def test_a_warm_up_rises_evenly_to_the_rate_of_all_ranks(size: int, epochs: int, steps: int, rate: float) -> None:
    from types import SimpleNamespace

    with among(0, size, lambda array: [array] * size):
        warmup = callbacks.LearningRateWarmupCallback(rate, warmup_epochs=epochs, momentum_correction=False)
        optimizer = SimpleNamespace(learning_rate=0.0, momentum=0.0)
        warmup.set_model(SimpleNamespace(optimizer=optimizer))
        warmup.set_params({"steps": steps})
        warmup.on_train_begin()
        found = []
        for epoch in range(epochs + 1):
            warmup.on_epoch_begin(epoch)
            for batch in range(steps):
                warmup.on_batch_begin(batch)
                found.append(optimizer.learning_rate)
    done = np.minimum(1.0, (np.arange((epochs + 1) * steps) + 1) / (epochs * steps))
    np.testing.assert_allclose(found, rate / size * (1 + done * (size - 1)), rtol=1e-9)
