"""Gradients as a step returns them, with one value per microbatch, cannot be applied."""

from typing import Any

import pytest

import ranks

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}


@pytest.mark.parametrize("environment", [{}, {"TF_USE_LEGACY_KERAS": "1"}], ids=["keras", "tf_keras"])
def test_step_outputs_as_gradients_are_refused_with_advice(environment: dict[str, str]) -> None:
    for messages in ranks.run(2, apply_microbatches, config=CONFIG, environment=environment):
        assert len(messages) == 4
        for message, name in zip(messages, ["apply_gradients"] * 3 + ["smp.clip_by_global_norm"], strict=True):
            assert f"{name} was given a StepOutput as gradient 0" in message
            assert "[gradient.accumulate() for gradient in gradients]" in message


def apply_microbatches() -> list[str]:
    """Apply the outputs of a step eagerly, in a graph and by a legacy optimizer; then clip them."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.backend.exceptions import SMPUsageError

    model = models.distributed(models.Chain)(smp.mp_size())

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(model, x, y)
        return tape.gradient(loss, model.trainable_variables)

    def train(x: Any, y: Any, optimizer: Any) -> None:
        gradients = forward_backward(x, y)
        # AutoGraph of TensorFlow 2.12 converts this function, and has no zip with `strict`.
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905

    (x, y), *_ = models.batches(1, 8)
    attempts = [
        lambda: train(x, y, tf.keras.optimizers.SGD()),
        lambda: tf.function(train)(x, y, tf.keras.optimizers.Adam()),
        lambda: train(x, y, tf.keras.optimizers.legacy.SGD()),
        lambda: smp.clip_by_global_norm(forward_backward(x, y), 1.0),
    ]
    messages = []
    for attempt in attempts:
        try:
            attempt()
        except SMPUsageError as error:
            messages.append(str(error))
    return messages
