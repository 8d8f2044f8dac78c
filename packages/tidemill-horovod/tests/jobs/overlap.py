"""Run by test_features.py on two ranks: a gradient is reduced while that of an earlier layer is still being computed.

The backward pass computes the last layer's gradient first. Here the gradient of the first layer waits until that of the
last layer has been reduced over the ranks, so a step ends only if reductions do not wait for each other.
"""

import threading

import tensorflow as tf

import horovod.tensorflow as hvd

LIMIT_S = 60

hvd.init()
tf.config.threading.set_inter_op_parallelism_threads(4)  # one of them waits
reduced = threading.Event()


def wait(value):
    if not reduced.wait(LIMIT_S):
        raise TimeoutError(f"the last layer's gradient was not reduced within {LIMIT_S} s")
    return value


def copy_in_python(value):
    reduced.set()
    return value


def in_python(function, tensor):
    """Call a function when the tensor is computed, without ordering it with other ops."""
    return tf.ensure_shape(tf.numpy_function(function, [tensor], tensor.dtype, stateful=False), tensor.shape)


@tf.custom_gradient
def backward_waits(weight):
    return tf.identity(weight), lambda upstream: in_python(wait, upstream)


first, last = tf.Variable([2.0]), tf.Variable([3.0])


@tf.function
def tape():
    with tf.GradientTape() as recorded:
        loss = tf.reduce_sum(backward_waits(first) * last) * (hvd.rank() + 1)
    gradients = hvd.DistributedGradientTape(recorded, op=hvd.Sum).gradient(loss, [first, last])
    return gradients[0], in_python(copy_in_python, gradients[1])


@tf.function
def by_hand():
    early = hvd.allreduce(in_python(wait, last * (hvd.rank() + 1)), op=hvd.Sum)
    late = hvd.allreduce(first * (hvd.rank() + 1), op=hvd.Sum)
    return early, in_python(copy_in_python, late)


@tf.function
def sparse():
    with tf.GradientTape() as recorded:
        rows = tf.gather(backward_waits(first), [0])
        loss = tf.reduce_sum(rows * tf.gather(last, [0])) * (hvd.rank() + 1)
    gradients = hvd.DistributedGradientTape(recorded, op=hvd.Sum).gradient(loss, [first, last])
    copied = in_python(copy_in_python, gradients[1].values)
    return gradients[0], tf.reduce_sum(copied, keepdims=True)


for step in (tape, by_hand, sparse):
    reduced.clear()
    got = [float(one[0]) for one in step()]
    assert got == [9.0, 6.0], (step, got)
    hvd.barrier()
hvd.shutdown()
print("done\n", end="", flush=True)  # one write: the ranks share the output
