"""Random ops of the script: different numbers in each microbatch, independent of the cut."""

from typing import Any

import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {"auto_partition": False, "default_partition": 0}
KINDS = ["uniform", "dropout", "shuffle", "in a loop", "in a function", "in a function put in place"]


@pytest.mark.parametrize("kind", KINDS)
def test_microbatches_draw_different_numbers(kind: str) -> None:
    two = ranks.run(2, draw, kind, config=CONFIG)
    (one,) = ranks.run(1, draw, kind, config=CONFIG)
    assert len({tuple(piece) for piece in one}) == 4
    assert two == [one, one]


def draw(kind: str) -> list[list[float]]:
    """Return the random numbers of each of 4 microbatches in the first step."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    tf.random.set_seed(5)

    def drawn(x: Any) -> Any:
        if kind == "uniform":
            return tf.random.uniform([32], seed=3)
        if kind == "dropout":
            return tf.nn.dropout(tf.ones([64]), 0.5, seed=3)
        if kind == "shuffle":
            return tf.random.shuffle(tf.range(32.0), seed=3)
        if kind == "in a loop":
            return tf.while_loop(
                lambda i, _: i < 2, lambda i, y: (i + 1, y + tf.random.normal([32], seed=3)), (0, tf.zeros([32]))
            )[1]
        signature = [] if kind == "in a function" else None  # a function with a signature is not inlined
        return tf.function(lambda: tf.random.normal([32], seed=3), input_signature=signature)()

    class Net(smp.DistributedModel):
        def call(self, x: Any) -> Any:
            with smp.partition(smp.mp_size() - 1):
                return drawn(x) + 0.0 * tf.reduce_sum(x)

    net = Net()

    @smp.step
    def forward(x: Any) -> Any:
        return net(x)

    with configured(microbatches=4):
        result = tf.function(lambda x: forward(x).outputs)(tf.zeros([4, 1]))
    return [piece.numpy().tolist() for piece in result]


def test_a_function_that_two_steps_share_outlives_the_first() -> None:
    (drawn,) = ranks.run(1, share_a_function, config=CONFIG)
    assert drawn[0] == drawn[1]


def share_a_function() -> list[list[list[float]]]:
    """Return the random numbers of two steps with the same function, the second after the first is deleted."""
    import gc

    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    draw_some = tf.function(lambda: tf.random.normal([8], seed=3), input_signature=[])
    draw_some.get_concrete_function()

    class Net(smp.DistributedModel):
        def call(self, x: Any) -> Any:
            return draw_some() + 0.0 * tf.reduce_sum(x)

    def train() -> Any:
        net = Net()
        forward = smp.step(lambda x: net(x))
        return tf.function(lambda x: forward(x).outputs)

    with configured(microbatches=4):
        first, second = train(), train()
        drawn = [[piece.numpy().tolist() for piece in first(tf.zeros([4, 1]))]]
        concrete = second.get_concrete_function(tf.zeros([4, 1]))
        del first
        gc.collect()
        drawn.append([piece.numpy().tolist() for piece in concrete(tf.zeros([4, 1]))])
    return drawn
