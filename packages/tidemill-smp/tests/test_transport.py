"""Tensors between ranks: both transports, their common format, every order of calls, and the exit of a rank."""

import os
import signal
import time

import numpy as np
import pytest
import tensorflow as tf

import ranks
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.tensorflow_api import has_asynchronous_kernels
from smdistributed.modelparallel.tensorflow.transport.errors import library_errors
from smdistributed.modelparallel.tensorflow.transport.library import load_native_library

DTYPES = (
    tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64,
    tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128,
)  # fmt: skip
SHAPES = ((), (1,), (0,), (3, 0, 2), (2, 3), *(tuple(range(1, n + 1))[:4] + (1,) * (n - 4) for n in (3, 5, 8)))

ASYNCHRONOUS = pytest.mark.skipif(not has_asynchronous_kernels(), reason="TensorFlow has no asynchronous kernels")


@pytest.fixture(params=["native", "python"])
def config(request):
    return {"transport": request.param}


def here():
    now = session.current()
    return now.transport, 1 - now.world.rank


def value_of(dtype, shape, seed):
    numbers = np.random.default_rng(seed).integers(0, 100, shape)
    return tf.cast(tf.constant(numbers, tf.int64), dtype)


def test_the_requested_transport_is_used(config):
    assert ranks.run(2, name_of_transport, config=config) == [config["transport"]] * 2


def name_of_transport():
    return session.current().transport.name


def exchange_kinds():
    transport, peer = here()
    wrong = []
    for dtype in DTYPES:

        @tf.function
        def exchange(dtype=dtype):
            for number, shape in enumerate(SHAPES):
                transport.send(value_of(dtype, shape, smp.rank()), peer=peer, channel=number, label=str(shape))
            return [
                transport.receive(dtype, peer=peer, channel=number, label=str(shape))
                for number, shape in enumerate(SHAPES)
            ]

        for shape, came in zip(SHAPES, exchange(), strict=True):
            wanted = value_of(dtype, shape, peer)
            if came.dtype != dtype or came.shape != shape or not np.array_equal(came.numpy(), wanted.numpy()):
                wrong.append((dtype.name, shape, came.shape))
    return wrong


@pytest.mark.smp_first
def test_every_dtype_and_shape_arrives_as_it_was(config):
    assert ranks.run(2, exchange_kinds, config=config) == [[], []]


def refuse(dtype_name):
    transport, peer = here()
    try:
        if dtype_name == "string":
            transport.send(tf.constant("x"), peer=peer, channel=0, label="text")
        else:
            transport.receive(dtype_name, peer=peer, channel=0, label="text")
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("dtype", ["string", "resource", "variant", "qint8"])
def test_a_dtype_without_plain_bytes_is_refused_when_the_graph_is_built(config, dtype):
    words = ranks.run(2, refuse, dtype, config=config)
    assert all(f"a tensor of dtype {dtype} cannot be sent between ranks" in one for one in words)


def opposite_orders():
    transport, peer = here()
    order = range(4) if smp.rank() == 0 else range(3, -1, -1)

    @tf.function
    def exchange():
        for channel in order:
            transport.send(tf.fill((channel + 1,), float(smp.rank())), peer=peer, channel=channel, label=f"m{channel}")
        return {channel: transport.receive(tf.float32, peer=peer, channel=channel, label="m") for channel in order}

    return [{channel: came.numpy().tolist() for channel, came in exchange().items()} for _ in range(20)]


def test_four_sends_and_four_receives_in_opposite_orders_do_not_block(config):
    for rank, rounds in enumerate(ranks.run(2, opposite_orders, config=config)):
        assert rounds == [{n: [float(1 - rank)] * (n + 1) for n in range(4)}] * 20


def interleaved():
    transport, peer = here()

    @tf.function
    def exchange(x):
        came = []
        for microbatch in range(4):
            if smp.rank() == 0:
                transport.send(x + float(microbatch), peer=peer, channel=microbatch, label="forward")
            else:
                came.append(transport.receive(tf.float32, peer=peer, channel=microbatch, label="forward"))
            if microbatch > 0 and smp.rank() == 1:
                transport.send(came[microbatch - 1] * 2.0, peer=peer, channel=100 + microbatch - 1, label="backward")
            elif microbatch > 0:
                came.append(transport.receive(tf.float32, peer=peer, channel=100 + microbatch - 1, label="backward"))
        return came

    return [[float(one) for one in exchange(tf.constant(float(step)))] for step in range(50)]


def test_sends_and_receives_alternate_over_many_steps(config):
    first, second = ranks.run(2, interleaved, config=config)
    assert second == [[step + microbatch for microbatch in range(4)] for step in range(50)]
    assert first == [[2 * (step + microbatch) for microbatch in range(3)] for step in range(50)]


def one_channel_twice():
    transport, peer = here()

    @tf.function
    def exchange():
        for number in range(5):
            transport.send(tf.constant(number), peer=peer, channel=7, label="same")
        return [transport.receive(tf.int32, peer=peer, channel=7, label="same") for _ in range(5)]

    return [int(one) for one in exchange()]


def test_messages_of_one_channel_keep_their_order(config):
    assert ranks.run(2, one_channel_twice, config=config) == [list(range(5))] * 2


def large_both_ways():
    transport, peer = here()

    @tf.function
    def exchange(x):
        transport.send(x, peer=peer, channel=1, label="large")
        transport.send(x + 1.0, peer=peer, channel=2, label="large")
        return (
            transport.receive(tf.float32, peer=peer, channel=2, label="large"),
            transport.receive(tf.float32, peer=peer, channel=1, label="large"),
        )

    mine = tf.random.stateless_uniform((16, 1024, 1024), seed=(smp.rank(), 0))
    second, first = exchange(mine)
    theirs = tf.random.stateless_uniform((16, 1024, 1024), seed=(peer, 0))
    return bool(tf.reduce_all(first == theirs)), bool(tf.reduce_all(second == theirs + 1.0))


@pytest.mark.smp_first
def test_64_mb_are_sent_in_both_directions_at_once(config):
    assert ranks.run(2, large_both_ways, config=config) == [(True, True)] * 2


SIZES = (0, 1, 3, 100, 8184, 8185, 16384, 16385, 100_000, 300_000)


def many_at_once():
    """Exchange messages of all sizes on one channel per thread, in both directions; return the wrong ones."""
    import threading

    transport, peer = here()

    def exchange(channel):
        @tf.function(input_signature=[tf.TensorSpec(None)])
        def both(x):
            transport.send(x, peer=peer, channel=channel, label="one of many")
            return transport.receive(tf.float32, peer=peer, channel=channel, label="one of many")

        random = np.random.default_rng(channel)
        for number in range(40):
            # The ranks draw the same sizes, and alternate in sending.
            size, shift = SIZES[random.integers(len(SIZES))], smp.rank()
            sent = tf.reshape(tf.range(shift, shift + size, dtype=tf.float32), (1,) * (number % 7) + (size,))
            came = both(sent)
            if came.shape != sent.shape or not np.array_equal(came, sent - shift + (1 - shift)):
                wrong.append((channel, number))

    wrong = []
    threads = [threading.Thread(target=exchange, args=(channel,)) for channel in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return wrong


def test_many_messages_of_all_sizes_from_many_threads(config):
    # A waiting receive of the Python transport, or of TensorFlow 2.12, occupies a thread.
    assert ranks.run(2, many_at_once, config=config) == [[], []]


def steps_at_once():
    """Call four steps from four threads, in opposite orders on the ranks; return their gaps to the plain model."""
    import functools
    import threading

    import models

    def made(kind):
        tf.keras.utils.set_random_seed(3)
        return kind(2)

    def forward(scale, x):
        return net(x) * scale

    net, plain = made(models.distributed(models.Chain)), made(models.Chain)
    steps = [smp.step(functools.partial(forward, scale)) for scale in (1.0, 2.0, 3.0, 4.0)]
    x = tf.random.stateless_uniform((8, models.FEATURES), seed=(1, 2))
    for step in steps:
        step(x)  # ranks trace their steps in one order
    meeting, gaps = threading.Barrier(len(steps)), {}

    def call(place):
        meeting.wait()
        for number in range(10):
            came = steps[place](x + number).merge()
            wanted = plain(x + number) * (place + 1.0)
            gaps[place, number] = float(tf.reduce_max(tf.abs(came - wanted)))

    order = range(len(steps)) if smp.rank() == 0 else reversed(range(len(steps)))
    threads = [threading.Thread(target=call, args=(place,)) for place in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return gaps


STEPS = {"microbatches": 4, "auto_partition": False, "default_partition": 0}


@pytest.mark.smp_first
def test_steps_of_several_threads_do_not_wait_for_each_other(config):
    for gaps in ranks.run(2, steps_at_once, config={**config, **STEPS}):
        assert len(gaps) == 40
        assert max(gaps.values()) < 1e-5


def cancel_while_waiting():
    """Cancel a function while its receive waits; return its error, and the next message."""
    import threading

    from tensorflow.python.eager import cancellation

    transport, peer = here()

    @tf.function
    def wait():
        return transport.receive(tf.float32, peer=peer, channel=1, label="late")

    @tf.function
    def again():
        transport.send(tf.fill([3], 7.0), peer=peer, channel=1, label="after")
        return transport.receive(tf.float32, peer=peer, channel=1, label="after")

    if smp.rank() == 1:
        smp.barrier()
        transport.send(tf.constant(5.0), peer=peer, channel=1, label="late")
        return "", again().numpy().tolist()
    found = []
    canceller = cancellation.CancellationManager()
    call = canceller.get_cancelable_function(wait.get_concrete_function())

    def run():
        try:
            found.append(float(call()))
        except tf.errors.CancelledError:
            found.append("cancelled")

    waiter = threading.Thread(target=run)
    waiter.start()
    while not transport.waiting():
        time.sleep(0.01)
    canceller.start_cancel()
    smp.barrier()
    waiter.join()
    return found[0], again().numpy().tolist()


def test_a_cancelled_receive_consumes_its_message(config):
    (found, first), (_, second) = ranks.run(2, cancel_while_waiting, config=config)
    assert found in (5.0, "cancelled")
    assert first == second == [7.0] * 3


def several_functions():
    transport, peer = here()

    def make(channel):
        @tf.function
        def exchange(x):
            transport.send(x, peer=peer, channel=channel, label="f")
            return transport.receive(tf.float32, peer=peer, channel=channel, label="f")

        return exchange

    functions = [make(channel) for channel in range(3)]

    @tf.function
    def all_of_them(x):
        return [function(x * float(n + 1)) for n, function in enumerate(functions)]

    results = [[float(one) for one in all_of_them(tf.constant(float(smp.rank() + 1)))] for _ in range(5)]
    results.append([float(functions[2](tf.constant([float(smp.rank())] * n))[0]) for n in (1, 2, 3)])
    return results


def test_several_functions_and_retracing(config):
    first, second = ranks.run(2, several_functions, config=config)
    assert first == [[2.0, 4.0, 6.0]] * 5 + [[1.0, 1.0, 1.0]]
    assert second == [[1.0, 2.0, 3.0]] * 5 + [[0.0, 0.0, 0.0]]


def wrong_dtype():
    transport, peer = here()

    @tf.function
    def exchange():
        transport.send(tf.constant(1), peer=peer, channel=1, label="number")
        return transport.receive(tf.float32, peer=peer, channel=1, label="forward of block 3")

    try:
        exchange()
    except tf.errors.OpError as error:
        return type(error).__name__, "forward of block 3" in str(error)


def test_a_dtype_that_was_not_expected_is_an_error(config):
    expected = {"native": "InvalidArgumentError", "python": "InvalidArgumentError"}
    assert ranks.run(2, wrong_dtype, config=config) == [(expected[config["transport"]], True)] * 2


def without_callback():
    """Receive as on a TensorFlow whose std::function has another layout."""
    functions = load_native_library().functions
    before = functions.tidemill_smp_block(1)
    try:
        return interleaved(), functions.tidemill_smp_block(1) - before
    finally:
        functions.tidemill_smp_block(0)


def test_a_callback_that_cannot_be_kept_makes_receives_wait_in_place():
    (first, blocked), (_, also_blocked) = ranks.run(2, without_callback, config={"transport": "native"})
    assert first == [[2 * (step + microbatch) for microbatch in range(3)] for step in range(50)]
    assert (blocked, also_blocked) == (150, 200)


def callbacks_kept():
    functions = load_native_library().functions
    before = functions.tidemill_smp_block(0)
    interleaved()
    return functions.tidemill_smp_block(0) - before


@ASYNCHRONOUS
def test_no_receive_waits_in_place_on_this_tensorflow():
    assert ranks.run(2, callbacks_kept, config={"transport": "native"}) == [0, 0]


@ASYNCHRONOUS
def test_a_waiting_receive_occupies_no_thread():
    result, _ = ranks.run(2, receive_on_the_side, config={"transport": "native"})
    assert result == [5.0, 3.0]


def receive_on_the_side():
    """Receive in one function while another function runs on the same single thread."""
    import threading

    transport, peer = here()

    @tf.function
    def late():
        return transport.receive(tf.float32, peer=peer, channel=1, label="late")

    @tf.function
    def work(x):
        return tf.reduce_sum(tf.linalg.matmul(x, x))

    if smp.rank() == 1:
        smp.barrier()  # rank 0 gets here only if its receive does not occupy the thread
        transport.send(tf.constant(5.0), peer=peer, channel=1, label="late")
        return None
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1
    came = []
    waiter = threading.Thread(target=lambda: came.append(float(late())))
    waiter.start()
    while not transport.waiting():
        time.sleep(0.01)
    answer = float(work(tf.constant([[3.0]])))
    smp.barrier()
    waiter.join()
    return [came[0], answer / 3]


def wait_for_message(label):
    transport, peer = here()

    @tf.function
    def wait():
        return transport.receive(tf.float32, peer=peer, channel=1, label=label)

    with library_errors():
        wait()


@pytest.mark.smp_first
def test_a_killed_peer_ends_the_wait(config):
    with ranks.Job(2, {"partitions": 2, **config}) as job:
        assert job.call(name_of_transport) == [config["transport"]] * 2
        job.begin(wait_for_message, "the forward of microbatch 3, partition 1", only=[0])
        os.kill(job.processes[1].pid, signal.SIGKILL)
        failure = job.result(0)
        assert failure.kind == "SMPPeerLostError", "not that of the limit for hanging ranks"
        assert "rank 1 (partition 1)" in failure.text
        assert "receive the forward of microbatch 3, partition 1" in failure.text


@pytest.mark.smp_first
def test_a_stopped_peer_ends_the_wait_after_the_limit(config):
    with ranks.Job(2, {"partitions": 2, "hang_timeout_s": 8, **config}) as job:
        job.call(name_of_transport)
        os.kill(job.processes[1].pid, signal.SIGSTOP)
        job.begin(wait_for_message, "the backward of microbatch 0", only=[0])
        failure = job.result(0)
        os.kill(job.processes[1].pid, signal.SIGKILL)
        assert failure.kind == "SMPDeadlockError"
        assert "rank 1 (partition 1) sent nothing within 8 s (hang_timeout_s)" in failure.text
        assert "the backward of microbatch 0" in failure.text


def test_an_unrelated_error_is_not_changed():
    with pytest.raises(tf.errors.InvalidArgumentError), library_errors():
        tf.ensure_shape(tf.zeros((2,)), (3,))
