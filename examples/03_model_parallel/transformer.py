"""Train a small language model on Python's own documentation, with automatic partitions.

    python -m smdistributed.modelparallel.tensorflow.run -n 2 transformer.py --partitions 2
    python transformer.py --plan 4        print a plan for four partitions: one process, no training
    python transformer.py --partitions 1

Rank 0 prints a report of the partitions before the first step.
"""

import argparse
import logging
import os
from pydoc_data.topics import topics

import numpy as np
import tensorflow as tf

import smdistributed.modelparallel.tensorflow as smp

CHARACTERS = 128  # ASCII
TEXT = "".join(topics.values()).encode("ascii", "ignore")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small language model that the library cuts.")
    parser.add_argument("--partitions", type=int, default=2, help="model parts; the number of ranks must be a multiple")
    parser.add_argument(
        "--microbatches", type=int, default=4, help="microbatches per batch; the batch size must be a multiple"
    )
    parser.add_argument(
        "--optimize", choices=("memory", "speed"), default="speed", help="what the automatic partitions balance"
    )
    parser.add_argument("--plan", type=int, metavar="PARTITIONS", help="print a plan for this many partitions and exit")
    parser.add_argument("--timeline", help="write a timeline of the last steps to this file, for a trace viewer")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "model/transformer"))
    return parser.parse_known_args()[0]


class Block(tf.keras.layers.Layer):
    """Causal attention, then two dense layers, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1 = tf.keras.layers.LayerNormalization()
        self.attention = tf.keras.layers.MultiHeadAttention(num_heads=4, key_dim=width // 4)
        self.norm2 = tf.keras.layers.LayerNormalization()
        self.wide = tf.keras.layers.Dense(4 * width, activation="gelu")
        self.narrow = tf.keras.layers.Dense(width)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return a tensor of the shape (n, length, width) of the input."""
        normal = self.norm1(x)
        x = x + self.attention(normal, normal, use_causal_mask=True)
        return x + self.narrow(self.wide(self.norm2(x)))


class LanguageModel(smp.DistributedModel):
    """An ordinary model: it does not mention partitions."""

    def __init__(self, length: int, width: int, blocks: int) -> None:
        super().__init__()
        self.length = length
        self.characters = tf.keras.layers.Embedding(CHARACTERS, width)
        self.places = tf.keras.layers.Embedding(length, width)
        self.blocks = [Block(width) for _ in range(blocks)]
        self.norm = tf.keras.layers.LayerNormalization()
        self.head = tf.keras.layers.Dense(CHARACTERS)

    def call(self, text: tf.Tensor) -> tf.Tensor:
        """Return the logits (n, length, 128) of the next characters of texts (n, length) of integers."""
        x = self.characters(text) + self.places(tf.range(self.length))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def plan_partitions(arguments: argparse.Namespace):
    """Return the report of the partitions, without a second process and without values of variables."""
    return smp.plan(
        LanguageModel(arguments.length, arguments.width, arguments.blocks),
        tf.TensorSpec((arguments.batch_size, arguments.length), tf.int32),
        partitions=arguments.plan,
        microbatches=arguments.microbatches,
        optimize=arguments.optimize,
    )


def batches(steps: int, batch_size: int, length: int):
    """Yield pairs (text, next characters), each int32 (batch_size, length); the same on all ranks of a replica."""
    characters = np.frombuffer(TEXT, np.uint8).astype("int32")
    random = np.random.default_rng(7 + smp.dp_rank())
    for _ in range(steps):
        begins = random.integers(0, len(characters) - length - 1, batch_size)
        rows = np.stack([characters[begin : begin + length + 1] for begin in begins])
        yield tf.constant(rows[:, :-1]), tf.constant(rows[:, 1:])


def complete(served, start: str, length: int, count: int = 60) -> str:
    """Return `start`, followed by the characters that the saved model predicts."""
    text = [ord(character) for character in start]
    for _ in range(count):
        seen = text[-length:]
        row = tf.constant([seen + [0] * (length - len(seen))], tf.int32)
        text.append(int(np.argmax(served(row)["output_0"][0, len(seen) - 1])))
    return "".join(map(chr, text))


def main() -> None:
    arguments = parse_arguments()
    if arguments.plan:
        print(plan_partitions(arguments))
        return
    # Show the library's log, including the report of the partitions.
    logging.basicConfig(format="%(message)s")
    logging.getLogger("smdistributed.modelparallel").setLevel(logging.INFO)
    smp.init(
        {
            "partitions": arguments.partitions,
            "microbatches": arguments.microbatches,
            "optimize": arguments.optimize,
            "timeline": arguments.timeline,
        }
    )
    tf.keras.utils.set_random_seed(7)
    model = LanguageModel(arguments.length, arguments.width, arguments.blocks)
    optimizer = tf.keras.optimizers.Adam(3e-3)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def forward_backward(text: tf.Tensor, following: tf.Tensor):
        with tf.GradientTape() as tape:
            loss = loss_of(following, model(text))
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function
    def train_step(text: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
        gradients, loss = forward_backward(text, following)
        gradients = [gradient.accumulate() for gradient in gradients]
        # The norm over the gradients of all partitions; tf.clip_by_global_norm would use only those of this rank.
        gradients, _ = smp.clip_by_global_norm(gradients, 1.0)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    losses = []
    for text, following in batches(arguments.steps, arguments.batch_size, arguments.length):
        losses.append(float(train_step(text, following)))
        if smp.rank() == 0 and len(losses) % 10 == 0:
            print(f"step {len(losses)}: loss={np.mean(losses[-10:]):.4f}", flush=True)

    model.save_model(arguments.model_dir)
    if smp.rank() == 0:
        served = tf.saved_model.load(arguments.model_dir).signatures["serving_default"]
        print(f"the saved model goes on: {complete(served, 'The value of ', arguments.length)!r}")


if __name__ == "__main__":
    main()
