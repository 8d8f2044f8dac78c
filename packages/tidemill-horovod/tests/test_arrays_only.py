"""Groups of the script's own communicator: machines of its ranks, gradients, and calls that it cannot make."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from horovod.tensorflow.keras import callbacks

WEIGHTS = [1.0, 2.0, 4.0]


class Mirror:
    """This process as one of several ranks; all others send what it sends.

    Args:
        rank: Rank of this process.
        machines: By rank, a number for its machine.
    """

    def __init__(self, rank: int, machines: list[int]) -> None:
        self.rank, self.size = rank, len(machines)
        self._machines = machines
        self._is_started = False

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        if not self._is_started:  # by `hvd.init`, which asks for the machines
            self._is_started = True
            return [np.full_like(array, machine) for machine in self._machines]
        return [np.array(array) for _ in self._machines]

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        assert op == "sum"
        return array * self.size

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        assert array is not None
        return np.array(array)

    def barrier(self) -> None:
        """Return at once."""


@pytest.fixture(autouse=True)
def _leaves() -> Iterator[None]:
    hvd.shutdown()
    yield
    hvd.shutdown()


@pytest.mark.parametrize(
    ("machines", "local", "cross", "is_even"),
    [
        ([1, 1, 2, 2, 2], [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)], [(0, 2), (0, 2), (1, 2), (1, 2), (0, 1)], False),
        ([1, 2, 1, 2], [(0, 2), (0, 2), (1, 2), (1, 2)], [(0, 2), (1, 2), (0, 2), (1, 2)], True),
        ([3, 2, 1], [(0, 1)] * 3, [(0, 3), (1, 3), (2, 3)], True),
    ],
    ids=["unequal machines", "ranks in turn", "one rank each"],
)
def test_ranks_are_counted_on_their_machine_and_across_machines(
    machines: list[int], local: list[tuple[int, int]], cross: list[tuple[int, int]], is_even: bool
) -> None:
    for rank in range(len(machines)):
        hvd.init(Mirror(rank, machines))
        assert (hvd.rank(), hvd.size()) == (rank, len(machines))
        assert (hvd.local_rank(), hvd.local_size()) == local[rank]
        assert (hvd.cross_rank(), hvd.cross_size()) == cross[rank]
        assert (int(hvd.local_rank_op()), int(hvd.local_size_op())) == local[rank]
        assert hvd.is_homogeneous() is is_even
        hvd.shutdown()


def gradient(call: Callable[[Any], Any], value: Any, weights: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(value)
        loss = tf.reduce_sum(call(value) * weights)
    return tape.gradient(loss, value)


# Gradients as Horovod documents them, for three ranks with equal tensors and equal gradients of the results.
ROWS = tf.constant([[1.0], [3.0]])
GRADIENTS: dict[str, tuple[Callable[[Any], Any], Any, Any, Any]] = {
    "allreduce, sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), tf.ones([3]), WEIGHTS, [3.0, 6.0, 12.0]),
    "allreduce, average": (hvd.allreduce, tf.ones([3]), WEIGHTS, WEIGHTS),
    "allreduce, factors": (
        lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0),
        tf.ones([3]),
        WEIGHTS,
        [6.0, 12.0, 24.0],
    ),
    "reducescatter, sum": (lambda x: hvd.reducescatter(x, op=hvd.Sum), tf.ones([3]), 2.0, [6.0, 6.0, 6.0]),
    "reducescatter, average": (hvd.reducescatter, tf.ones([3]), 2.0, [2.0, 2.0, 2.0]),
    "allgather": (hvd.allgather, ROWS, tf.reshape(tf.range(6.0), [6, 1]), [[2.0], [3.0]]),
    "broadcast from here": (lambda x: hvd.broadcast(x, 1), tf.ones([3]), WEIGHTS, WEIGHTS),
    "broadcast from another rank": (lambda x: hvd.broadcast(x, 0), tf.ones([3]), WEIGHTS, [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_every_call_has_the_gradient_of_horovod(name: str) -> None:
    call, value, weights, wanted = GRADIENTS[name]
    hvd.init(Mirror(1, [1, 1, 1]))
    for way in (gradient, tf.function(gradient)):
        np.testing.assert_allclose(way(call, value, weights), wanted, err_msg=str(way))


@pytest.mark.parametrize("op", [hvd.Min, hvd.Max, hvd.Product], ids=str)
def test_reductions_without_a_gradient_say_so_instead_of_giving_none(op: Any) -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    assert hvd.allreduce(tf.constant([2.0]), op=op).numpy() == [8.0 if op is hvd.Product else 2.0]
    for way in (gradient, tf.function(gradient, autograph=False)):
        with pytest.raises(LookupError, match="Min, Max and Product have no gradient: use Sum or Average"):
            way(lambda x: hvd.allreduce(x, op=op), tf.ones([3]), 1.0)


def test_calls_that_need_connections_are_refused_by_name() -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    pair = hvd.add_process_set([0, 1])
    calls: dict[str, Callable[[], Any]] = {
        "alltoall": lambda: hvd.alltoall(tf.ones([3])),
        "join": hvd.join,
        "allreduce": lambda: hvd.allreduce(tf.ones([3]), process_set=pair),
        "allgather": lambda: hvd.allgather(tf.ones([3]), process_set=pair),
    }
    for name, call in calls.items():
        for way in (call, tf.function(call)):
            with pytest.raises(ValueError, match=rf"exchanges arrays only: .*\({name} here\).*can_connect"):
                way()
    alone = hvd.add_process_set([1])
    assert hvd.allreduce(tf.constant([5.0]), op=hvd.Sum, process_set=alone).numpy() == [5.0], "nothing is sent"


@pytest.mark.parametrize("dtype", [tf.int32, tf.float16, tf.float64, tf.complex64], ids=lambda dtype: dtype.name)
def test_dtypes_and_shapes_stay_also_those_without_rows(dtype: Any) -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    for shape in ([], [3], [0, 2]):
        value = tf.cast(tf.fill(shape, 3), dtype)
        for call, factor in (
            (lambda x: hvd.allreduce(x, op=hvd.Sum), 3),
            (hvd.allreduce, 1),
            (lambda x: hvd.broadcast(x, 0), 1),
        ):
            result = call(value)
            assert (result.dtype, result.shape) == (dtype, value.shape)
            assert (result.numpy() == value.numpy() * factor).all()
        gathered = hvd.allgather(value)
        rows = value.numpy().reshape(shape if shape else [1])
        np.testing.assert_array_equal(gathered, np.concatenate([rows] * 3))
        assert gathered.dtype == dtype


# The mean of equal batches is that of one of them, so three equal ranks train as Keras does alone.
IMAGES = np.random.default_rng(1).normal(3.0, 2.0, [4, 5, 3]).astype("float32")
MASK = np.arange(20).reshape(4, 5) % 3 > 0


@pytest.mark.parametrize(
    ("options", "mask"),
    [({}, None), ({}, MASK), ({"axis": 1}, None), ({"center": False, "scale": False, "epsilon": 0.1}, None)],
    ids=["plain", "mask", "first axis", "without weights"],
)
def test_batch_normalization_over_equal_batches_is_that_of_keras(options: dict[str, Any], mask: Any) -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    ours, plain = hvd.SyncBatchNormalization(**options), tf.keras.layers.BatchNormalization(**options)
    for layer in (ours, plain):
        layer.build(IMAGES.shape)
    for training in (True, True, False):
        with tf.GradientTape(persistent=True) as tape:
            x = tf.constant(IMAGES)
            tape.watch(x)
            results = [layer(x, training=training, mask=mask) for layer in (ours, plain)]
            losses = [tf.reduce_sum(result**3) for result in results]
        np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(tape.gradient(losses[0], x), tape.gradient(losses[1], x), rtol=1e-3, atol=1e-3)
    for one, other in zip(ours.variables, plain.variables, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
def test_an_optimizer_of_equal_ranks_steps_as_that_of_keras(passes: int, is_sparse: bool) -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    ours, plain = (tf.keras.Variable(np.ones([3, 2], "float32")) for _ in range(2))
    distributed = hvd.DistributedOptimizer(
        tf.keras.optimizers.SGD(0.5, clipnorm=1.0), backward_passes_per_step=passes, average_aggregated_gradients=True
    )
    reference = tf.keras.optimizers.SGD(0.5, clipnorm=1.0)
    for step in range(4):
        dense = np.zeros([3, 2], "float32")
        dense[1] = [3.0 + step // passes, 4.0]  # the same in all calls of a sum
        given = tf.IndexedSlices(dense[1:2], [1], [3, 2]) if is_sparse else tf.constant(dense)
        # The gradient of a whole batch has the rows of all its examples, and Keras clips these.
        gathered = tf.IndexedSlices(tf.repeat(dense[1:2] / 3, 3, 0), tf.constant([1, 1, 1]), tf.constant([3, 2]))
        distributed.apply_gradients([(given, ours)])
        if step % passes == passes - 1:
            reference.apply_gradients([(gathered if is_sparse and passes == 1 else tf.constant(dense), plain)])
        np.testing.assert_allclose(ours, plain, rtol=1e-6)
    assert int(distributed.iterations) == 4


def test_a_metric_is_averaged_and_a_model_fits_as_alone() -> None:
    hvd.init(Mirror(1, [1, 1, 1]))
    x, y = IMAGES.reshape(20, 3), IMAGES.reshape(20, 3).sum(1, keepdims=True)
    losses = []
    for wrap in (hvd.DistributedOptimizer, lambda optimizer: optimizer):
        model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(wrap(tf.keras.optimizers.Adam(0.1)), "mse")
        averages = [callbacks.MetricAverageCallback()]
        history = model.fit(x, y + 1, epochs=3, shuffle=False, verbose=0, callbacks=averages)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    assert losses[0][-1] < losses[0][0]
