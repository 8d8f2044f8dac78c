"""Show the effect of arguments that need real ranks, on two ranks; print the arguments that were shown."""

import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow as tf

import horovod.keras
import horovod.tensorflow as hvd
import horovod.tensorflow.keras
from horovod.common import process_sets

if "--transport" in sys.argv:
    transport = sys.argv[sys.argv.index("--transport") + 1]
    os.environ["HOROVOD_TIDEMILL_TRANSPORT"] = transport.removeprefix("encrypted-")
    os.environ["SMP_ENCRYPTION"] = str(int(transport.startswith("encrypted-")))
hvd.init(process_sets=[[0], hvd.ProcessSet([1])])
rank, size = hvd.rank(), hvd.size()
assert size == 2
shown = [("init", "process_sets")]
keras_variable = getattr(tf.keras, "Variable", tf.Variable)  # Keras 2 has no variables of its own
KERAS_3 = keras_variable is not tf.Variable


def mine(*values, dtype=tf.float32):
    """Return the values on rank 0, and their negatives on rank 1."""
    return tf.constant(values, dtype) * (1 if rank == 0 else -1)


def shows(function, *names):
    shown.extend((function, name) for name in names)


def same(got, wanted):
    np.testing.assert_allclose(np.asarray(got, "float64"), np.asarray(wanted, "float64"), rtol=1e-6)


def refused(call, words):
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")


# --- every dtype ---
for dtype in (
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.int8,
    tf.int16,
    tf.int32,
    tf.int64,
    tf.uint8,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.complex64,
    tf.complex128,
):
    values = tf.cast([rank + 1, 3], dtype)
    for op, wanted in ((hvd.Sum, [3, 6]), (hvd.Average, [1.5, 3] if not dtype.is_integer else [1, 3])):
        got = hvd.allreduce(values, op=op)
        assert got.dtype == dtype
        same(tf.cast(got, tf.complex128).numpy().real, wanted)
    if not dtype.is_complex:
        for op, wanted in ((hvd.Min, [1, 3]), (hvd.Max, [2, 3]), (hvd.Product, [2, 9])):
            same(tf.cast(hvd.allreduce(values, op=op), tf.float64), wanted)
    same(tf.math.real(tf.cast(hvd.allgather(values), tf.complex128)), [1, 3, 2, 3])
    same(tf.math.real(tf.cast(hvd.broadcast(values, 1), tf.complex128)), [2, 3])
assert hvd.allreduce(tf.constant([rank == 0, False]), op=hvd.Sum).numpy().tolist() == [True, False]
for seed in range(3):  # all float16 values except infinities and NaN, compared with NumPy in float32
    both = [
        np.random.RandomState(seed + one).randint(0, 65536, 70000).astype(np.uint16).view(np.float16) for one in (0, 9)
    ]
    both = [np.where(np.isfinite(one), one, np.float16(0)) for one in both]
    got = hvd.allreduce(tf.constant(both[rank]), op=hvd.Sum).numpy()
    with np.errstate(over="ignore"):
        wanted = (both[0].astype("float32") + both[1].astype("float32")).astype("float16")
    np.testing.assert_array_equal(got, wanted)

# --- large, odd and empty ---
for count in (0, 1, 3, 65535, 131073, 3_000_001):
    values = [np.random.RandomState(one).randn(count).astype("float32") for one in range(2)]
    same(hvd.allreduce(tf.constant(values[rank]), op=hvd.Sum), values[0] + values[1])
    same(
        hvd.allgather(tf.constant(values[rank][: count // (rank + 1)])),
        np.concatenate([values[0], values[1][: count // 2]]),
    )
    same(hvd.broadcast(tf.constant(values[rank]), 1), values[1])

# --- ops that run in different orders ---
names = [f"tensor {one}" for one in range(40)]
with tf.Graph().as_default() as graph:
    fed = {name: tf.compat.v1.placeholder(tf.float32, [5]) for name in names}
    sums = {name: hvd.allreduce(fed[name], op=hvd.Sum, name=name.replace(" ", "_")) for name in names}
    order = names if rank == 0 else names[::-1]
    with tf.compat.v1.Session() as session:
        results = session.run([sums[name] for name in order], {fed[name]: [float(rank + 1)] * 5 for name in names})
for result in results:
    same(result, [3.0] * 5)

# --- calls ---
got = hvd.reducescatter(mine(1, 2, 3), op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
assert got.shape == ([2] if rank == 0 else [1])
same(got, np.zeros(got.shape))
rows = tf.reshape(tf.range(6.0), [3, 2]) + rank
same(hvd.reducescatter(rows, name="rows"), [[0.5, 1.5], [2.5, 3.5]] if rank == 0 else [[4.5, 5.5]])
same(
    hvd.reducescatter(rows, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0, compression=hvd.Compression.fp16),
    np.array([[1, 3], [5, 7]] if rank == 0 else [[9, 11]]) * 2,
)
refused(lambda: hvd.reducescatter(rows, op=hvd.Max), "allowed is hvd.Sum or hvd.Average")
first, second = hvd.grouped_reducescatter(
    [rows, rows * 2], op=hvd.Sum, prescale_factor=0.5, postscale_factor=2.0, compression=hvd.Compression.fp16
)
same(second, 2 * first)
same(first, [[1, 3], [5, 7]] if rank == 0 else [[9, 11]])
for function, tensor in (("reducescatter", "tensor"), ("grouped_reducescatter", "tensors")):
    shows(function, tensor, "op", "prescale_factor", "postscale_factor", "compression")
shows("reducescatter", "name")

same(hvd.alltoall(tf.constant([[rank, 0], [rank, 1]]), name="pairs"), [[0, rank], [1, rank]])
for call in (
    lambda: hvd.alltoall(tf.range(4) + 10 * rank, splits=[1, 3]),
    tf.function(lambda: hvd.alltoall(tf.range(4) + 10 * rank, splits=[1, 3])),
):
    got, received = call()
    same(got, [0, 10] if rank == 0 else [1, 2, 3, 11, 12, 13])
    same(received, [1, 1] if rank == 0 else [3, 3])
same(hvd.alltoall(tf.range(2) + 10 * rank, ignore_name_scope=True), [rank, 10 + rank])
shows("alltoall", "tensor", "splits", "name", "ignore_name_scope")
variable = tf.Variable([1.0, 2.0, 3.0])
with tf.GradientTape() as tape:
    first, second = hvd.grouped_allgather([variable[: rank + 1] * 1.0, variable * 2.0])
    loss = (tf.reduce_sum(first) + tf.reduce_sum(second)) * (rank + 1.0)
same(tape.gradient(loss, variable), [4.5, 3 + 1.5 * rank, 3])

got = hvd.grouped_allgather([tf.fill([rank + 1], rank), tf.constant([[1.0 * rank]])], name="group")
same(got[0], [0, 1, 1])
same(got[1], [[0], [1]])
shows("grouped_allgather", "tensors", "name")
variables = [tf.Variable([float(rank)]), tf.Variable(10 * rank)]
got = hvd.broadcast_(variables, root_rank=1, name="both")
assert all(isinstance(one, tf.Tensor) for one in got)
for values in (got, variables):
    same(values[0], [1])
    same(values[1], 10)
shows("broadcast_", "variables", "root_rank", "name")
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    weight = tf.compat.v1.get_variable("weight", initializer=[float(rank)], use_resource=True)
    (got,) = hvd.broadcast_([weight], root_rank=1)
    session.run(tf.compat.v1.global_variables_initializer())
    same(session.run(got), [1])
    same(session.run(weight), [1])
    assert hvd.broadcast_object({"is": rank}, 1) == {"is": 1}
    assert hvd.allgather_object(rank) == [0, 1]

a, b = np.array([1.0, 0.0, 2.0]), np.array([1.0, 3.0, 0.0])
dot = a @ b
same(hvd.allreduce(tf.constant([a, b][rank]), op=hvd.Adasum), (1 - dot / (2 * a @ a)) * a + (1 - dot / (2 * b @ b)) * b)
same(hvd.allreduce(tf.constant(a), op=hvd.Adasum), a)  # equal on all ranks: the mean

assert hvd.broadcast_object({"is": rank}, 1, name="object") == {"is": 1}
assert hvd.allgather_object("x" * rank, name="objects") == ["", "x"]
assert hvd.broadcast_object_fn(1, name="object")([rank]) == [1]
shows("broadcast_object", "name")
shows("broadcast_object_fn", "root_rank", "name")
shows("allgather_object", "name")

# --- process sets ---
both = [hvd.ProcessSet([0]), hvd.ProcessSet(given for given in [1])]
alone = both[rank]
assert (alone.process_set_id, alone.included(), alone.size(), alone.rank()) == (None, None, None, None)
refused(lambda: hvd.allreduce(1.0, process_set=alone), "call hvd.add_process_set first")
hvd.init(process_sets=both)  # in a second call, and equal to sets of the first
assert (alone.process_set_id, alone.included(), alone.size(), alone.rank()) == (rank + 1, True, 1, 0)
assert (hvd.global_process_set.ranks, hvd.global_process_set.size(), hvd.global_process_set.rank()) == ([0, 1], 2, rank)
assert str(hvd.global_process_set) == "ProcessSet(process_set_id=0, ranks=[0, 1], mpi_comm=None)"
assert process_sets.get_process_set_ids_and_ranks() == {0: [0, 1], 1: [0], 2: [1]}
refused(lambda: hvd.init(process_sets=[[0, 2]]), "ranks of a process set are [0, 2]; allowed are some of 0 to 1")
refused(lambda: hvd.ProcessSet(object()), "allowed are numbers of ranks")
everyone = hvd.add_process_set([1, 0])
assert (everyone.process_set_id, everyone.size(), everyone.rank()) == (3, 2, rank)
own = [hvd.process_sets._sets[1], hvd.process_sets._sets[2]][rank]
other = [hvd.process_sets._sets[2], hvd.process_sets._sets[1]][rank]
assert own.included()
assert not other.included()
assert other.rank() == -1
x = mine(1, 2)
calls = {
    "DistributedGradientTape": lambda s: gradient(process_set=s)[0],
    "PartialDistributedGradientTape": lambda s: gradient(hvd.PartialDistributedGradientTape, process_set=s)[0],
    "DistributedOptimizer": lambda s: step(process_set=s),
    "allgather": lambda s: hvd.allgather(x, process_set=s),
    "allgather_object": lambda s: hvd.allgather_object(rank, process_set=s),
    "allreduce": lambda s: hvd.allreduce(x, process_set=s),
    "alltoall": lambda s: hvd.alltoall(x, process_set=s),
    "barrier": lambda s: hvd.barrier(process_set=s),
    "broadcast": lambda s: hvd.broadcast(x, rank, process_set=s) if s is own else hvd.broadcast(x, 0, process_set=s),
    "broadcast_": lambda s: hvd.broadcast_([tf.Variable(x)], rank if s is own else 0, process_set=s)[0],
    "broadcast_object": lambda s: hvd.broadcast_object(rank, rank if s is own else 0, process_set=s),
    "broadcast_object_fn": lambda s: hvd.broadcast_object_fn(rank if s is own else 0, process_set=s)(rank),
    "broadcast_variables": lambda s: hvd.broadcast_variables([tf.Variable(x)], rank if s is own else 0, process_set=s),
    "grouped_allgather": lambda s: hvd.grouped_allgather([x], process_set=s)[0],
    "grouped_allreduce": lambda s: hvd.grouped_allreduce([x], process_set=s)[0],
    "grouped_reducescatter": lambda s: hvd.grouped_reducescatter([x], process_set=s)[0],
    "reducescatter": lambda s: hvd.reducescatter(x, process_set=s),
}


def gradient(kind=hvd.DistributedGradientTape, **given):
    weight, table = tf.Variable([1.0]), tf.Variable(tf.ones([3, 1]))
    with tf.GradientTape() as tape:
        loss = (tf.reduce_sum(weight) + tf.reduce_sum(tf.gather(table, [1]))) * (4.0 if rank == 0 else -2.0)
    return kind(tape, **given).gradient(loss, [weight, table])


def step(kind=hvd.DistributedOptimizer, steps=1, variable=None, **given):
    optimizer = kind(tf.keras.optimizers.SGD(1.0), **given)
    variable = keras_variable([0.0]) if variable is None else variable
    for _ in range(steps):
        optimizer.apply_gradients([(tf.constant([4.0 if rank == 0 else -2.0]), variable)])
    return -tf.convert_to_tensor(variable).numpy()


for function, call in calls.items():
    alone, together = call(own), call(everyone)
    if function not in ("barrier", "broadcast_variables"):
        alone, together = np.asarray(alone), np.asarray(together)
        assert (
            alone.shape != together.shape
            or not np.array_equal(alone, together)
            or (function.startswith("broadcast") and rank == 0)
        ), function
    refused(lambda call=call: call(other), "call it on the ranks of the set only")
    shows(function, "process_set")
for function in ("size_op", "process_set_included_op"):
    shows(function, "process_set_id")


def mean_of_batch(process_set=None):
    layer = hvd.SyncBatchNormalization(momentum=0.0, process_set=process_set)
    for one in (layer, type(layer).from_config(layer.get_config())):
        one(tf.constant([[1.0 + 3.0 * rank], [2.0]]), training=True)
        means.append(float(np.asarray(one.moving_mean)[0]))


means = []
for process_set in (None, everyone, own):
    mean_of_batch(process_set)
same(tf.constant(means), [2.25] * 4 + [[1.5, 3.0][rank]] * 2)
refused(lambda: mean_of_batch(other), "call it on the ranks of the set only")
refused(lambda: mean_of_batch(hvd.ProcessSet([7])), "call hvd.add_process_set first")
refused(lambda: hvd.SyncBatchNormalization(process_set=1), "ranks is 1; allowed are numbers of ranks")
assert int(hvd.size_op(everyone.process_set_id)) == 2
assert int(hvd.size_op(own.process_set_id)) == 1
assert int(hvd.process_set_included_op(other.process_set_id)) == 0
assert int(hvd.process_set_included_op()) == 1
for function in ("rank_op", "local_rank_op", "local_size_op", "size_op", "process_set_included_op"):
    with tf.Graph().as_default():
        assert getattr(hvd, function)(name="label").op.name == "label"
    shows(function, "name")
assert (int(hvd.rank_op()), int(hvd.local_rank_op()), int(hvd.local_size_op())) == (rank, rank, 2)
refused(lambda: hvd.add_process_set([0, 1]), "was added before")
refused(lambda: hvd.add_process_set([0, 2]), "allowed are some of 0 to 1")
assert hvd.remove_process_set(everyone)
assert not hvd.remove_process_set(everyone)
assert not hvd.remove_process_set(hvd.global_process_set)
assert hvd.add_process_set(everyone).process_set_id == 4  # ids are not used again
assert hvd.remove_process_set(everyone)
refused(lambda: hvd.allreduce(x, process_set=everyone), "call hvd.add_process_set first")
shows("add_process_set", "process_set")
shows("remove_process_set", "process_set")

# --- tapes and optimizers ---
same(gradient()[0], [1])
same(gradient(op=hvd.Sum)[0], [2])
partial = hvd.PartialDistributedGradientTape
layer = tf.keras.layers.Dense(1, use_bias=False)
layer.build([None, 1])


def partial_gradient(**given):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[4.0 if rank == 0 else -2.0]])))
    return partial(tape, **given).gradient(loss, layer.trainable_variables)[0]


own_gradient = [[4.0 if rank == 0 else -2.0]]
same(partial_gradient(), [[1]])
same(partial_gradient(local_layers=layer), np.array(own_gradient) / 2)
same(partial_gradient(local_layers=[layer], scale_local_gradients=False), own_gradient)
shows("PartialDistributedGradientTape", "gradtape", "local_layers", "scale_local_gradients")
for scale in (True, False):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(variable) * (rank + 1.0)
    tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale)
    tape.register_local_source(variable)
    same(tape.gradient(loss, variable), [(rank + 1.0) / (2 if scale else 1)] * 3)
shows("DistributedGradientTape", "scale_local_gradients")
table = tf.Variable(tf.ones([3, 1]))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.gather(table, [1])) * (rank + 1.0)
tape = hvd.DistributedGradientTape(tape)
tape.register_local_source(table)
kept = tape.gradient(loss, table)
assert isinstance(kept, tf.IndexedSlices)
same(kept.values, [[(rank + 1.0) / 2]])
same(step(), [1])
same(step(op=hvd.Sum), [2])
same(step(gradient_predivide_factor=4.0), [1])
same(step(compression=hvd.Compression.fp16), [1])
refused(lambda: step(compression=1), "compression is 1")
refused(lambda: step(op=hvd.Max), "allowed is hvd.Average")
refused(lambda: step(gradient_predivide_factor=0.0), "gradient_predivide_factor is 0.0")
same(step(steps=3, backward_passes_per_step=2), [2])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), backward_passes_per_step=2)
twin = type(optimizer).from_config(optimizer.get_config())  # with the same options, and sums of its own
assert twin.get_config() == optimizer.get_config()
for one in (optimizer, twin, optimizer.from_config(optimizer.get_config())):
    weight = keras_variable([0.0])
    for calls in (1, 2, 3):
        one.apply_gradients([(tf.constant([rank + 1.0]), weight)])
        assert int(one.iterations) == calls  # as in Horovod, also the calls without an update
        same(weight, [0 if calls < 2 else -3])
same(step(steps=4, backward_passes_per_step=2, average_aggregated_gradients=True), [2])
for scale in (True, False):
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0), scale_local_gradients=scale)
    local, contained, table, shared_one = (keras_variable(np.zeros((3, 1), "float32")) for _ in range(4))
    for one in (local, contained.value if KERAS_3 else contained, table):
        optimizer.register_local_var(one)
    given = tf.fill([3, 1], rank + 1.0)
    rows = tf.IndexedSlices(given[:1], tf.constant([1]), tf.constant([3, 1]))
    optimizer.apply_gradients([(given, local), (given, contained), (rows, table), (given, shared_one)])
    own_step = -(rank + 1.0) / (2 if scale else 1)
    for one in (local, contained):
        same(one, [[own_step]] * 3)
    same(table, [[0], [own_step], [0]])
    same(shared_one, [[-1.5]] * 3)
shows("DistributedOptimizer", "scale_local_gradients")
refused(lambda: step(backward_passes_per_step=0), "allowed is an int >= 1")
refused(lambda: hvd.DistributedOptimizer("sgd"), "allowed is an optimizer of Keras")
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD())
refused(lambda: hvd.DistributedOptimizer(optimizer), "distributed already")
kinds = []
plain = tf.IndexedSlices
optimizer = tf.keras.optimizers.SGD(1.0)
table = keras_variable(np.zeros((3, 1), "float32"))
apply = "apply" if KERAS_3 else "apply_gradients"
original = getattr(type(optimizer), apply)


def noted(self, grads, *arguments, **options):
    grads = list(grads)
    kinds.append(type(grads[0] if KERAS_3 else grads[0][0]))
    return original(self, grads, *arguments, **options)


setattr(type(optimizer), apply, noted)
slices = tf.IndexedSlices(tf.constant([[1.0 + rank]]), tf.constant([rank]), tf.constant([3, 1]))
hvd.DistributedOptimizer(optimizer).apply_gradients([(slices, table)])
same(table, [[-0.5], [-1.0], [0]])
dense = hvd.DistributedOptimizer(type(optimizer).__mro__[1](1.0), sparse_as_dense=True)
dense.apply_gradients([(slices, table)])
assert [issubclass(kind, tf.IndexedSlices) for kind in kinds] == [True, False]
setattr(type(optimizer)._horovod_base, apply, original)
same(table, [[-1.0], [-2.0], [0]])
shows(
    "DistributedOptimizer",
    "optimizer",
    "op",
    "gradient_predivide_factor",
    "compression",
    "sparse_as_dense",
    "backward_passes_per_step",
    "average_aggregated_gradients",
)
for given in ({"op": hvd.Sum}, {"gradient_predivide_factor": 2.0}, {"compression": hvd.Compression.fp16}):
    same(gradient(partial, **given)[0], gradient(**given)[0])
    shows("PartialDistributedGradientTape", *given)
assert isinstance(gradient(partial)[1], tf.IndexedSlices)
assert isinstance(gradient(partial, sparse_as_dense=True)[1], tf.Tensor)
shows("PartialDistributedGradientTape", "sparse_as_dense")

with tf.Graph().as_default():
    weights = [tf.compat.v1.get_variable(name, initializer=[0.0], use_resource=True) for name in ("own", "shared")]
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    optimizer.register_local_var(weights[0])
    train = optimizer.minimize(tf.add_n(weights) * (rank + 1.0))
    with tf.compat.v1.train.SingularMonitoredSession() as session:
        session.run(train)
        same(session.run(weights), [[-(rank + 1.0) / 2], [-1.5]])

# --- callbacks ---
model = tf.keras.Sequential([tf.keras.layers.Dense(1, use_bias=False) for _ in range(4)])
model.build([None, 1])
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.0)), "mse")
for variable in model.variables:
    variable.assign([[rank + 1.0]])
first, second, third, fourth = model.variables
callback = horovod.tensorflow.keras.callbacks.BroadcastGlobalVariablesCallback(
    0, local_variables=[second, third.value if KERAS_3 else third]
)
callback.register_local_var(fourth)
model.fit(np.ones([2, 1]), np.ones([2, 1]), verbose=0, callbacks=[callback])
same(tf.concat(model.variables, 1), [[1, rank + 1, rank + 1, rank + 1]])

# --- sessions of tf.compat.v1 ---
with tf.Graph().as_default():
    weight = tf.compat.v1.get_variable("weight", initializer=tf.constant([float(rank)]), use_resource=True)
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    train = optimizer.minimize(tf.reduce_sum(weight) * (4.0 if rank == 0 else -2.0))
    with tf.compat.v1.train.SingularMonitoredSession(hooks=[hvd.BroadcastGlobalVariablesHook(1)]) as session:
        same(session.run(weight), [1])
        session.run(train)
        same(session.run(weight), [0])
try:
    hvd.broadcast_global_variables(0)
except RuntimeError as error:
    assert "eager" in str(error)
shows("broadcast_global_variables", "root_rank")

# --- what does not match is an error, and the next call works; numbers ---
import mismatches  # noqa: E402, F401
import values  # noqa: E402

for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
    try:
        hvd.allreduce(slices, op=op)
    except NotImplementedError as error:
        assert op.name in str(error), error
    else:
        raise AssertionError(f"{op} of slices is no error")

# --- averages of integer slices are floats ---
for dtype, wanted in ((tf.int32, tf.float64), (tf.int64, tf.float64), (tf.int8, tf.float32), (tf.uint16, tf.float32)):
    given = tf.IndexedSlices(tf.constant([[1 + 2 * rank]], dtype), tf.constant([rank]), tf.constant([3, 1]))
    got = hvd.allreduce(given)
    assert got.values.dtype == wanted
    same(got.values, [[0.5], [1.5]])
    assert hvd.allreduce(given, op=hvd.Sum).values.dtype == dtype

# --- the functions of horovod.keras return tensors ---
for module in (horovod.keras, horovod.tensorflow.keras):
    same(module.reducescatter(tf.constant([1.0, 2.0]) + rank, op=hvd.Sum), [3 + 2 * rank])
    local, reduced = (tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros") for _ in range(2))
    for layer in (local, reduced):
        layer.build([None, 1])
    for scale in (True, False):
        optimizer = module.PartialDistributedOptimizer(
            tf.keras.optimizers.SGD(1.0), local_layers=[local], scale_local_gradients=scale
        )
        weights = [layer.kernel for layer in (local, reduced)]
        for weight in weights:
            weight.assign([[0.0]])
        optimizer.apply_gradients([(tf.constant([[rank + 1.0]]), weight) for weight in weights])
        same(tf.concat([tf.convert_to_tensor(one) for one in weights], 0), [[-(rank + 1) / (1 + scale)], [-1.5]])
    got = [
        module.allreduce(float(rank), average=False),
        module.allgather([rank]),
        module.broadcast(np.array([rank]), 1),
    ]
    assert all(isinstance(one, tf.Tensor) for one in got)
    assert [one.numpy().tolist() for one in got] == [1.0, [0, 1], [1]]

# --- the timeline ---
path = hvd.broadcast_object(str(pathlib.Path(tempfile.mkdtemp(), "timeline.json")) if rank == 0 else None, 0)
hvd.start_timeline(path, mark_cycles=True)
if rank == 0:
    refused(lambda: hvd.start_timeline(path), "call hvd.stop_timeline() first")
hvd.allreduce(tf.ones([3]), name='a "name"')
tf.function(lambda: hvd.allgather(tf.ones([3]), name="rows"))()
hvd.barrier()
hvd.stop_timeline()
hvd.allreduce(tf.ones([3]), name="after")
if rank == 0:
    events = json.loads(pathlib.Path(path).read_text())
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {(names[event["tid"]], event["name"]): event for event in events if event["ph"] == "X"}
    for tensor, kind in (
        ('a "name"', "ALLREDUCE"),
        (next(name for name in names.values() if "rows" in name), "ALLGATHER"),
    ):
        waited, sent = spans[tensor, f"NEGOTIATE_{kind}"], spans[tensor, kind]
        assert abs(waited["ts"] + waited["dur"] - sent["ts"]) < 0.01
    assert "after" not in names.values()
    refused(lambda: hvd.start_timeline("/nowhere/file"), "/nowhere/file: No such file")
shows("start_timeline", "file_path", "mark_cycles")

# --- join ---
for batch in range(2 + 3 * rank):
    same(hvd.allreduce(tf.constant(2.0), op=hvd.Sum, name=f"batch {batch}"), 4 if batch < 2 else 2)
assert hvd.join() == 1
same(hvd.allreduce(tf.constant(1.0), op=hvd.Sum), 2)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    assert session.run(hvd.join()) in (0, 1)
hvd.shutdown()
assert hvd.global_process_set.ranks == []
for function, name in sorted(shown):
    if rank == 0:
        print("shown", function, name, flush=True)
