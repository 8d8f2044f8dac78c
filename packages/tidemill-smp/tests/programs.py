"""Random models: graphs of layers, each in a random partition."""

from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from hypothesis import strategies as st

import models
import smdistributed.modelparallel.tensorflow as smp

keras = tf.keras
L = keras.layers
WIDTH = 8
LAYERS = {
    "dense": lambda: L.Dense(WIDTH, activation="tanh"),
    "normalize": L.LayerNormalization,
    "batch normalize": L.BatchNormalization,
    "drop": lambda: L.Dropout(0.25, seed=7),
    "gated": lambda: models.Either(),
}
GLUE = {
    "add": lambda a, b: a + b,
    "multiply": lambda a, b: a * tf.sigmoid(b),
    "choose": lambda a, b: tf.where(a > 0.0, a, b),
    "stop": lambda a, b: a + tf.stop_gradient(b),
    "halves": lambda a, b: tf.concat([a[:, : WIDTH // 2], b[:, WIDTH // 2 :]], -1),
    "matrix": lambda a, b: a + 0.1 * tf.matmul(tf.nn.softmax(tf.matmul(a, b, transpose_b=True)), a),
}


@dataclass(frozen=True)
class Instruction:
    """One layer or one op."""

    kind: str
    """A key of `LAYERS` or `GLUE`; or `again`: the preceding layer; or `again unless`: the same without statistics."""
    sources: tuple[int, int]
    """Distances back to its input values; layers use the first."""
    partition: int


@dataclass(frozen=True)
class Program:
    """A model in which each instruction computes one value with `WIDTH` features."""

    instructions: tuple[Instruction, ...]
    head: int
    """The partition of the last layer."""


class Random(keras.Model):
    """The model of a program. Its result combines all unused values."""

    def __init__(self, partitions: int, program: Program) -> None:
        super().__init__()
        self.partitions, self.program = partitions, program
        self.first, self.head = L.Dense(WIDTH), L.Dense(models.CLASSES)
        self.body = [LAYERS[one.kind]() for one in program.instructions if one.kind in LAYERS]

    def call(self, x: Any, training: bool | None = None) -> Any:
        values, unused, layers, made = [self.first(x)], {0}, iter(self.body), []
        for one in self.program.instructions:
            a, b = (max(0, len(values) - back) for back in one.sources)
            with smp.partition(one.partition % self.partitions):
                if one.kind in GLUE:
                    values.append(GLUE[one.kind](values[a], values[b]))
                    unused.discard(b)
                else:
                    if one.kind in LAYERS:
                        made.append(next(layers))
                    layer = made[-1] if made else self.first_again
                    if one.kind == "again unless" and isinstance(layer, L.BatchNormalization):
                        layer = self.first_again
                    values.append(self._call_layer(layer, values[a], training))
            unused.discard(a)
            unused.add(len(values) - 1)
        with smp.partition(self.program.head % self.partitions):
            return self.head(tf.concat([values[place] for place in sorted(unused)], -1))

    def first_again(self, x: Any) -> Any:
        return tf.tanh(x)

    def _call_layer(self, layer: Any, x: Any, training: bool | None) -> Any:
        takes_training = isinstance(layer, (L.Dropout, L.BatchNormalization))
        return layer(x, training=training) if takes_training else layer(x)


def programs() -> st.SearchStrategy[Program]:
    """Programs of up to twelve instructions, for up to four partitions."""
    kinds = st.sampled_from([*LAYERS, *GLUE, "again unless"])
    back = st.integers(1, 6)
    partition = st.integers(0, 3)
    instruction = st.builds(Instruction, kinds, st.tuples(back, back), partition)
    return st.builds(Program, st.lists(instruction, min_size=1, max_size=12).map(tuple), partition)
