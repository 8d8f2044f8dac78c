"""Variables that no layer tracks: each is correct on a rank, or cannot be read there."""

from typing import Any

import pytest

import ranks

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}
STEPS = 3


def test_a_variable_that_one_rank_writes_is_read_only_there() -> None:
    [plain] = ranks.run(1, train, config=CONFIG)
    assert plain["scale"] != pytest.approx(2.0)
    assert plain["count"] == 2 * STEPS
    first, second = ranks.run(2, train, config=CONFIG)
    assert first["losses"] == second["losses"] == pytest.approx(plain["losses"], rel=1e-6)
    assert second["scale"] == pytest.approx(plain["scale"], rel=1e-6)
    assert first["count"] == plain["count"]
    assert "cannot read scale:0 (shape (), float32) here: it is held by rank 1 (partition 1)" in first["scale"]
    assert "cannot read count:0 (shape (), int32) here: it is held by rank 0 (partition 0)" in second["count"]


def test_a_variable_that_no_rank_or_every_rank_changes_is_read_on_all_ranks() -> None:
    for result in ranks.run(2, train, config=CONFIG):
        assert result["table"] == [1.0, 2.0, 3.0]
        assert result["seen"] == 2 * STEPS


def test_a_later_step_keeps_the_placement_of_untracked_variables() -> None:
    [plain] = ranks.run(1, evaluate, config=CONFIG)
    for loss in ranks.run(2, evaluate, config=CONFIG):
        assert loss == pytest.approx(plain, rel=1e-6)


def test_a_checkpoint_has_untracked_variables(tmp_path: Any) -> None:
    first, second = ranks.run(2, save_and_restore, str(tmp_path), config=CONFIG)
    assert first[1] == second[1] == "refused"
    assert first[0] == 2 * STEPS
    assert second[0] == pytest.approx(ranks.run(1, train, config=CONFIG)[0]["scale"], rel=1e-6)


# --- on the ranks -----------------------------------------------------------------------------------------------------


def made() -> Any:
    """Return a model, a step that trains it, and untracked variables."""
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    tf.keras.utils.set_random_seed(11)
    untracked = {
        "scale": tf.Variable(2.0, name="scale"),
        "count": tf.Variable(0, name="count", trainable=False),
        "table": tf.Variable([1.0, 2.0, 3.0], name="table", trainable=False),
        "seen": tf.Variable(0, name="seen", trainable=False),
    }

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = tf.keras.layers.Dense(3, activation="tanh"), tf.keras.layers.Dense(1)

        def call(self, x: Any, training: Any = None) -> Any:
            with smp.partition(0):
                untracked["count"].assign_add(1)
                x = self.first(x)
            with smp.partition(min(1, smp.mp_size() - 1)):
                return self.second(x * untracked["table"]) * untracked["scale"]

    net, optimizer = Net(), tf.keras.optimizers.SGD(0.1, momentum=0.9)

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x, training=True) - y))
        untracked["seen"].assign_add(1)
        return tape.gradient(loss, [*net.trainable_variables, untracked["scale"]]), loss

    @smp.step
    def forward(x: Any, y: Any) -> Any:
        return tf.reduce_mean(tf.square(net(x, training=False) - y))

    random = np.random.RandomState(5)
    x, y = tf.constant(random.randn(8, 4), tf.float32), tf.constant(random.randn(8, 1), tf.float32)

    @tf.function
    def train_step() -> Any:
        grads, loss = forward_backward(x, y)
        variables = [*net.trainable_variables, untracked["scale"]]
        optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], variables, strict=True))
        return loss.reduce_mean()

    losses = [float(train_step()) for _ in range(STEPS)]
    return net, optimizer, untracked, losses, lambda: float(forward(x, y).reduce_mean())


def _read(variable: Any) -> Any:
    from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError

    try:
        return variable.numpy().tolist()
    except SMPRemoteVariableError as error:
        return str(error)


def train() -> Any:
    _, _, untracked, losses, _ = made()
    return {name: _read(variable) for name, variable in untracked.items()} | {"losses": losses}


def evaluate() -> float:
    return made()[4]()


def save_and_restore(directory: str) -> Any:
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    net, optimizer, untracked, _, _ = made()
    manager = smp.CheckpointManager(tf.train.Checkpoint(model=net, optimizer=optimizer, **untracked), directory)
    manager.save()
    mine, other = ("count", "scale") if smp.rank() == 0 else ("scale", "count")
    untracked[mine].assign(tf.zeros_like(untracked[mine]))
    assert manager.restore() is not None
    return untracked[mine].numpy().item(), "refused" if isinstance(_read(untracked[other]), str) else "read"


def test_a_remote_variable_is_not_an_untracked_variable_of_later_steps(tmp_path: Any) -> None:
    for untracked, steps in ranks.run(
        2, restore_and_step_twice, str(tmp_path), config={**CONFIG, "hang_timeout_s": 20}
    ):
        assert untracked == [0, 0, 0]
        assert steps == (8, 4)


def restore_and_step_twice(directory: str) -> Any:
    """Run three steps after a restore in which only the first partition has variables; return the untracked count."""
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from checkpoints import forget_the_step_before
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(models.CLASSES)

        def call(self, x: Any) -> Any:
            x = self.layer(x)
            with smp.partition(1):
                return tf.nn.relu(x)

    counts: list[int] = []
    for number in range(2):
        forget_the_step_before()
        net = Net()
        manager = smp.CheckpointManager(tf.train.Checkpoint(model=net), directory)
        manager.restore()
        for size in (4, 8, 8)[: 1 + 2 * number]:  # each size is traced again
            x = tf.ones([size, models.FEATURES])
            outputs = smp.step(lambda x, net=net: net(x))(x).merge()
            counts.append(len(engine()._untracked))
        if number == 0:
            manager.save()
    return counts[1:], tuple(outputs.shape)
