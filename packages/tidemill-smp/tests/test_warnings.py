"""Costly or suspicious code gets one warning."""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest

import ranks

MANUAL = {"auto_partition": False, "default_partition": 0, "microbatches": 2}


def test_a_weight_that_partitions_share_is_named_with_what_it_costs() -> None:
    for messages in ranks.run(2, share_a_weight, config=MANUAL):
        (message,) = messages
        assert "tied/kernel" in message
        assert "is used in the partitions 0, 1: its value (1.0 MB) is sent from partition 0 to the others" in message


def share_a_weight() -> list[str]:
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    class Tied(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.tied = keras.layers.Dense(500, use_bias=False, name="tied")

        def call(self, x: Any) -> Any:
            x = self.tied(x)
            with smp.partition(1):
                return tf.matmul(x, self.tied.kernel, transpose_b=True)

    net = Tied()
    forward = smp.step(lambda x: net(x))
    with _logged() as messages:
        for size in (4, 8):  # the second size is traced again, without another warning
            assert forward(tf.ones([size, 500])).merge().shape == [size, 500]
    return messages


def test_updating_inside_a_step_is_refused_for_tf_keras() -> None:
    environment = {"TF_USE_LEGACY_KERAS": "1"}
    for failure in ranks.run(2, update_inside, config=MANUAL, environment=environment, check=False):
        assert "SMPUsageError: apply_gradients was called inside an smp.step" in failure.trace
        assert "apply their accumulate() outside, once per batch" in failure.trace


def test_updating_once_per_microbatch_is_warned_of() -> None:
    (warning, again), others = ranks.run(2, update_inside, config=MANUAL)
    assert warning == again, "once for each shape that is traced"
    assert "apply_gradients was called inside an smp.step: it updates once per microbatch" in warning
    assert others == []


def update_inside() -> list[str]:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net, optimizer = models.distributed(models.Chain)(2), tf.keras.optimizers.SGD(0.1, global_clipnorm=1.0)

    @smp.step
    def update(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        optimizer.apply_gradients(
            zip(tape.gradient(loss, net.trainable_variables), net.trainable_variables, strict=True)
        )
        return loss

    (x, y), *_ = models.batches(1, 8)
    with _logged() as messages:
        for size in (8, 4):  # traced before and after the model is partitioned
            update(tf.constant(x[:size]), tf.constant(y[:size]))
    assert int(optimizer.iterations) == 4
    return messages


@contextlib.contextmanager
def _logged() -> Iterator[list[str]]:
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    try:
        yield messages
    finally:
        log.removeHandler(handler)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be bound here")
def test_ranks_that_share_cores_or_start_late_get_a_warning() -> None:
    with ranks.Job(2, None) as job:
        assert job.call(start_late_on_one_core) == [True, True]
        output = job.output()
    assert output.count("2 ranks share 1 cores of this machine") == 1
    assert output.count("its thread pools keep their size; call smp.init() first") == 2


def start_late_on_one_core() -> bool:
    """Bind all ranks to one core, use TensorFlow, and then call smp.init."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    tf.ones([2]) + tf.ones([2])
    smp.init({"partitions": 2})
    return bool(smp.core.initialized)
