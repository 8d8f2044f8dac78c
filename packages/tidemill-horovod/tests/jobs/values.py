"""Values and gradients that Horovod documents or tests, on two ranks. Run by features.py."""

import itertools

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

rank, size = hvd.rank(), hvd.size()

# --- factors: integers in float64, half precision in float32, rounded once ---
WIDE = {tf.int32: "float64", tf.int64: "float64", tf.float16: "float32", tf.bfloat16: "float32", tf.float32: "float32"}
random = np.random.RandomState(1234)
for dtype, factor in itertools.product([*WIDE, tf.float64], (random.uniform(), 1.7)):
    given = tf.cast(random.uniform(-100, 100, 17**2), dtype)
    wide = given.numpy().astype(WIDE.get(dtype, "float64"))
    factor_ = wide.dtype.type(factor)
    before = (wide * factor_).astype(given.numpy().dtype)
    after = (wide * 2 * factor_).astype(given.numpy().dtype)
    np.testing.assert_array_equal(hvd.allreduce(given, op=hvd.Sum, prescale_factor=factor), before + before)
    np.testing.assert_array_equal(hvd.allreduce(given, op=hvd.Sum, postscale_factor=factor), after)
    mean = hvd.allreduce(given, postscale_factor=2.0 * factor)  # one factor for average and postscale: one truncation
    np.testing.assert_array_equal(mean, after)
    rows = slice(0, 145) if rank == 0 else slice(145, None)
    got = hvd.reducescatter(given, op=hvd.Sum, prescale_factor=factor)
    np.testing.assert_array_equal(got, (before + before)[rows])
    got = hvd.reducescatter(given, op=hvd.Sum, postscale_factor=factor)
    np.testing.assert_array_equal(got, after[rows])
mixed = [tf.constant([3 + rank]), tf.constant([3.0 + rank]), tf.constant([3 + rank], tf.float16)]
assert [one.numpy().tolist() for one in hvd.grouped_allreduce(mixed)] == [[3], [3.5], [3.5]]
assert [one.numpy().tolist() for one in hvd.grouped_allreduce(mixed, postscale_factor=2.0)] == [[7], [7], [7]]
gathered = hvd.grouped_allgather([tf.constant([rank], tf.int8), tf.constant([[0.5 * rank]], tf.float64)])
assert [one.numpy().tolist() for one in gathered] == [[0, 1], [[0], [0.5]]]
scattered = hvd.grouped_reducescatter([tf.range(3), tf.constant([1.0, 2.0])], op=hvd.Sum)
assert [one.numpy().tolist() for one in scattered] == [[[0, 2], [2]], [[4], [4]]][rank]

# --- rows that are sent to no rank ---
got, received = hvd.alltoall(tf.range(5) + 10 * rank, splits=[1 + rank, 0])
assert got.numpy().tolist() == ([0, 10, 11] if rank == 0 else [])
assert received.numpy().tolist() == ([1, 2] if rank == 0 else [0, 0])
assert received.dtype == tf.int32
for scalar in (hvd.reducescatter, hvd.alltoall):
    try:
        scalar(tf.constant(1.0))
    except tf.errors.InvalidArgumentError as error:
        assert "a tensor is a scalar" in str(error)
    else:
        raise AssertionError(f"{scalar} of a scalar is no error")

# --- gradients of the sum of all results times rank + 1: eagerly, in a tf.function, and in a session ---
GRADIENTS = {
    "sum": (lambda x: hvd.allreduce(x, op=hvd.Sum), [3, 3, 3]),
    "average": (hvd.allreduce, [1.5, 1.5, 1.5]),
    "factors": (lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), [4.5, 4.5, 4.5]),
    "group": (lambda x: tf.concat(hvd.grouped_allreduce([x, x * 2], op=hvd.Sum), 0), [9, 9, 9]),
    "allgather": (hvd.allgather, [1.5, 1.5, 1.5]),
    "allgathers": (lambda x: tf.concat(hvd.grouped_allgather([x, x * 2]), 0), [4.5, 4.5, 4.5]),
    "broadcast": (lambda x: hvd.broadcast(x, 1), [[0, 0, 0], [1.5, 1.5, 1.5]][rank]),
    "rows, sum": (lambda x: hvd.reducescatter(x, op=hvd.Sum), [2, 2, 4]),
    "rows, average": (hvd.reducescatter, [1, 1, 2]),
    "rows, factors": (lambda x: hvd.reducescatter(x, prescale_factor=2.0, postscale_factor=3.0), [6, 6, 12]),
    "rows of a group": (lambda x: tf.concat(hvd.grouped_reducescatter([x, x * 2], op=hvd.Sum), 0), [6, 6, 12]),
    "alltoall": (lambda x: hvd.alltoall(x, splits=[1, 1])[0], [1, 2, 0]),
    "alltoall, equal": (lambda x: hvd.alltoall(tf.concat([x, x], 0)), [3, 3, 3]),
    # The Adasum of [1, 1, 1] and [2, 2, 2].
    "Adasum": (lambda x: hvd.allreduce(x, op=hvd.Adasum), [1.5, 1.5, 1.5]),
}


def loss(call, x):
    return tf.reduce_sum(call(x)) * (rank + 1.0)


def eager(call):
    x = tf.constant([1.0, 2.0, 3.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = loss(call, x)
    return tape.gradient(value, x)


def in_session(call):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant([1.0, 2.0, 3.0])
        return session.run(tf.gradients(loss(call, x), x)[0])


for name, (call, wanted) in GRADIENTS.items():
    for way in (eager, tf.function(eager), in_session):
        np.testing.assert_allclose(np.asarray(way(call)), wanted, rtol=1e-6, err_msg=name)

for op in (hvd.Min, hvd.Max, hvd.Product):
    for way in (eager, tf.function(eager, autograph=False), in_session):
        try:
            way(lambda x, op=op: hvd.allreduce(x, op=op))
        except LookupError as error:
            assert "Min, Max and Product have no gradient" in str(error), error
        else:
            raise AssertionError(f"{op} has a gradient")

# --- what cannot be reduced ---
rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
for call in (
    lambda: hvd.allreduce(rows, prescale_factor=0.5),
    lambda: hvd.allreduce(rows, postscale_factor=0.5),
    lambda: hvd.grouped_allreduce([tf.ones([1]), rows], postscale_factor=0.5),
):
    try:
        call()
    except NotImplementedError as error:
        assert "of tf.IndexedSlices: prescale_factor is" in str(error), error
    else:
        raise AssertionError("factors of slices are no error")
with tf.GradientTape() as tape:
    table = tf.Variable(tf.ones([3, 1]))
    value = tf.reduce_sum(tf.gather(table, [1])) * (rank + 1.0)
divided = hvd.DistributedGradientTape(tape, gradient_predivide_factor=4.0).gradient(value, table)
np.testing.assert_allclose(tf.convert_to_tensor(divided), [[0], [1.5], [0]])
