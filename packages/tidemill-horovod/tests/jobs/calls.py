"""Make every call of the library on a group of any size, in a graph and eagerly, and compare with NumPy."""

import functools
import sys

import keras
import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd

if "--ranks" in sys.argv:
    from mpi4py.MPI import COMM_WORLD

    for wrong in ([0, 1, 0], [0, 1, 2], [1 - COMM_WORLD.rank]):
        try:
            hvd.init(wrong)
        except RuntimeError as error:
            assert "give ranks that exist, each once, its own among them" in str(error), error
        else:
            raise AssertionError(f"{wrong} is no group of this rank")
    hvd.init([1, 0])  # a group has the order of its list
    assert hvd.rank() == 1 - COMM_WORLD.rank
    assert hvd.allgather_object(COMM_WORLD.rank) == [1, 0]
    hvd.shutdown()
hvd.init([0, 1] if "--ranks" in sys.argv else None)
hvd.init()
rank, size = hvd.rank(), hvd.size()


def values(seed, shape, dtype="float32"):
    """Return the values of all ranks, by rank."""
    return [np.asarray(np.random.RandomState(seed + 10 * one).randn(*shape) * 9, dtype) for one in range(size)]


def both(function):
    """Call a function eagerly and in a graph."""
    return [function(), tf.function(lambda: function())()]


def check(got, wanted):
    np.testing.assert_allclose(np.asarray(got, "float64"), np.asarray(wanted, "float64"), rtol=1e-6, atol=1e-6)


assert hvd.is_initialized()
assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (rank, size, 0, 1)
assert hvd.is_homogeneous()
assert hvd.allreduce(None) is None

combined = {
    hvd.Average: lambda all_: sum(all_[1:], all_[0]) / size,
    hvd.Sum: lambda all_: sum(all_[1:], all_[0]),
    hvd.Min: functools.partial(functools.reduce, np.minimum),
    hvd.Max: functools.partial(functools.reduce, np.maximum),
    hvd.Product: functools.partial(functools.reduce, np.multiply),
}
for number, (op, combine) in enumerate(combined.items()):
    for shape in ((), (3, 2), (300, 400)):
        mine = values(number, shape)
        for got in both(lambda op=op, mine=mine: hvd.allreduce(tf.constant(mine[rank]), op=op)):
            assert got.dtype == tf.float32
            assert got.shape == shape
            check(got, combine(mine))
integers = values(1, (4,), "int64")
check(hvd.allreduce(tf.constant(integers[rank]), average=False), sum(integers))
assert np.array_equal(hvd.allreduce(tf.constant(integers[rank])), (sum(integers) / size).astype("int64"))
for half in (tf.float16, tf.bfloat16):
    reduced = hvd.allreduce(tf.cast([rank + 1.0, 0.5], half), op=hvd.Sum)
    assert reduced.dtype == half
    check(tf.cast(reduced, tf.float32), [size * (size + 1) / 2, size / 2])
packed = hvd.allreduce(tf.constant([1.0 + rank]), compression=hvd.Compression.fp16)
assert packed.dtype == tf.float32
check(packed, [(size + 1) / 2])
check(hvd.allreduce(tf.constant(2.0), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0), 3.0 * size)

x = tf.Variable([1.0, 2.0])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(hvd.allreduce(x * (rank + 1.0), op=hvd.Sum) * (rank + 1.0))
check(tape.gradient(loss, x), np.full(2, (rank + 1) * size * (size + 1) / 2))

slices = tf.IndexedSlices(tf.fill([rank + 1, 2], 1.0 + rank), tf.range(rank + 1), tf.constant([5, 2]))
dense = sum(np.vstack([np.full((one + 1, 2), 1.0 + one), np.zeros((4 - one, 2))]) for one in range(size))
for got in both(lambda: tf.convert_to_tensor(hvd.allreduce(slices))):
    check(got, dense / size)
check(tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum)), dense)

first, second, third = values(1, (2, 3)), values(2, ()), values(3, (5,), "float64")
for got in both(
    lambda: hvd.grouped_allreduce([tf.constant(first[rank]), None, tf.constant(third[rank]), tf.constant(second[rank])])
):
    assert got[1] is None
    for one, wanted in zip((got[0], got[3], got[2]), (first, second, third), strict=True):
        assert one.shape == wanted[0].shape
        check(one, sum(wanted) / size)

for got in both(lambda: hvd.allgather(tf.fill([rank + 1, 2], rank))):
    check(got, np.vstack([np.full((one + 1, 2), one) for one in range(size)]))
check(hvd.allgather(tf.constant(rank)), np.arange(size))
for root in range(size):
    for given in (root, np.int64(root)):
        for got in both(lambda given=given: hvd.broadcast(tf.constant([rank, 7]), given)):
            check(got, [root, 7])
    check(hvd.broadcast(tf.constant([rank, 7]), tf.constant(root)), [root, 7])
    assert hvd.broadcast_object({"from": rank} if rank == root else None, root) == {"from": root}
assert hvd.allgather_object(str(rank)) == [str(one) for one in range(size)]


def synchronize(first_batch, variables):
    tf.function(
        lambda first: tf.cond(first, lambda: hvd.broadcast_variables(variables, root_rank=0), lambda: tf.no_op())
    )(first_batch)


for kind in {tf.Variable, getattr(keras, "Variable", tf.Variable)}:
    variables = [kind([1.0 + rank]), kind(np.full((2, 2), rank, "float32"))]
    assert hvd.broadcast_variables(variables, root_rank=size - 1) is None
    check(variables[0], [size])
    variables[0].assign([5.0 + rank])
    synchronize(tf.constant(False), variables)
    check(variables[0], [5.0 + rank])
    synchronize(tf.constant(True), variables)
    check(variables[0], [5.0])
    check(variables[1], np.full((2, 2), size - 1))

weight, table = tf.Variable([[1.0], [2.0]]), tf.Variable(tf.ones([3, 2]))


@tf.function
def gradients(before):
    outer = hvd.DistributedGradientTape(tf.GradientTape()) if before else tf.GradientTape()
    with outer as tape:
        loss = tf.reduce_sum((tf.gather(table, [rank % 3, 0]) * (rank + 1.0)) @ weight)
    return (tape if before else hvd.DistributedGradientTape(tape)).gradient(loss, {"w": weight, "t": table})


mean = (size + 1) / 2
rows = np.zeros((3, 2))
for one in range(size):
    rows[one % 3] += (one + 1) * np.array([1.0, 2.0])
    rows[0] += (one + 1) * np.array([1.0, 2.0])
for before in (True, False):
    got = gradients(before)
    check(got["w"], [[2 * mean], [2 * mean]])
    assert isinstance(got["t"], tf.IndexedSlices)
    check(tf.convert_to_tensor(got["t"]), rows / size)

hvd.barrier()
hvd.shutdown()
assert not hvd.is_initialized()
print(f"all calls right on {rank} of {size}", flush=True)
