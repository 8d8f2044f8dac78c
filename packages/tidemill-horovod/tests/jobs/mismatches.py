"""Calls of two ranks that do not match: both ranks raise, and later calls work. Run by features.py."""

import threading

import tensorflow as tf

import horovod.tensorflow as hvd

rank = hvd.rank()


def uneven(call):
    """Return calls whose tensors differ in shape or dtype."""
    return {
        "shape": lambda: call(tf.zeros([2, 2 + rank])),
        "axes": lambda: call(tf.zeros([2, 2] if rank else [2, 2, 1])),
        "dtype": lambda: call(tf.zeros([2, 2], [tf.float32, tf.float64][rank])),
    }


def slices(values):
    return tf.IndexedSlices(values, tf.constant([0, 1]), tf.constant([3, *values.shape[1:]]))


CALLS = {
    "allreduce": lambda x, **given: hvd.allreduce(x, name="uneven", **given),
    "allgather": lambda x: hvd.allgather(x, name="uneven"),
    "alltoall": lambda x: hvd.alltoall(x, name="uneven"),
    "broadcast": lambda x, root=0: hvd.broadcast(x, root, name="uneven"),
    "reducescatter": lambda x, **given: hvd.reducescatter(x, name="uneven", **given),
}
OTHERS = {
    "grouped_allreduce": lambda x: hvd.grouped_allreduce([tf.ones([3]), x, tf.ones([5])]),
    "grouped_allgather": lambda x: hvd.grouped_allgather([tf.ones([3]), x, tf.ones([5])]),
    "grouped_reducescatter": lambda x: hvd.grouped_reducescatter([tf.ones([3]), x, tf.ones([5])]),
    "Adasum": lambda x: hvd.allreduce(x, op=hvd.Adasum),
    "slices": lambda x: hvd.allreduce(slices(x)),
}
X = tf.ones([2, 2])
REDUCTIONS = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
MISMATCHES = {
    **{f"{kind}, {what}": call for kind, base in (CALLS | OTHERS).items() for what, call in uneven(base).items()},
    **{
        f"{kinds}": lambda kinds=kinds: CALLS[kinds[rank]](X)
        for kinds in [(one, other) for one in CALLS for other in CALLS if one < other]
    },
    **{f"Sum and {op.name}": lambda op=op: CALLS["allreduce"](X, op=[hvd.Sum, op][rank]) for op in REDUCTIONS[1:]},
    "factors": lambda: CALLS["allreduce"](X, postscale_factor=1.0 + rank),
    "Sum and Average of rows": lambda: CALLS["reducescatter"](X, op=[hvd.Sum, hvd.Average][rank]),
    "root": lambda: CALLS["broadcast"](X, root=rank),
}
INVALID = {
    f"splits {splits} on one rank": lambda splits=splits: hvd.alltoall(tf.range(4), splits if rank else [2, 2])
    for splits in ([1, 4], [5, -1], [4], [4, 0, 0])
} | {
    "rows that do not divide": lambda: hvd.alltoall(tf.range(3)),
    "a string": lambda: hvd.broadcast(tf.constant(["text"]), 0),
}


def check(calls, error):
    for name, call in calls.items():
        for way in (call, tf.function(call)):
            try:
                way()
            except error as raised:
                assert "rank 0 (" in str(raised) or "rank 1 (" in str(raised), raised
            else:
                raise AssertionError(f"{name}: no error")
            total = hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="uneven")
            assert float(total) == 2, name


check(MISMATCHES, tf.errors.FailedPreconditionError)
check(INVALID, tf.errors.InvalidArgumentError)

# --- in a step whose other tensors are at different points on the ranks ---
# On rank 0, most tensors of the step are not ready before rank 1's step has failed.
release = threading.Event()
release.set()


def wait_on_rank_0(value):
    if rank == 0:
        assert release.wait(300), "rank 1 waits for a tensor of a step that has failed on rank 0"
    return value


@tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([])])
def step(given, value):
    first = hvd.allreduce(given, op=hvd.Sum)
    late = tf.ensure_shape(tf.numpy_function(wait_on_rank_0, [value], tf.float32, stateful=False), [])
    sums = [hvd.allreduce(late + place, op=hvd.Sum) for place in range(20)]
    return first, tf.stack(sums), hvd.allgather(late[tf.newaxis]), hvd.broadcast(late, 1)


def release_after_rank_1():
    hvd.allreduce(tf.zeros([]), name="rank 1 has failed")
    release.set()


for value in range(3):
    release.clear()
    if rank == 0:
        releasing = threading.Thread(target=release_after_rank_1)
        releasing.start()
    try:
        step(tf.zeros([2 + rank]), tf.constant(0.0))
    except tf.errors.FailedPreconditionError as error:
        assert "make the same call on all ranks" in str(error), error
    else:
        raise AssertionError("shapes that differ in a step are no error")
    if rank == 1:
        release_after_rank_1()
    else:
        releasing.join()
    first, sums, gathered, sent = step(tf.ones([3]), tf.constant(float(rank + value)))
    assert first.numpy().tolist() == [2, 2, 2]
    assert sums.numpy().tolist() == [1 + 2 * (value + place) for place in range(20)]
    assert gathered.numpy().tolist() == [value, value + 1]
    assert float(sent) == value + 1
