"""Training script: learn digits from a channel in Pipe mode.

The channel has no files on disk: the records of each epoch that `repeat` requests are streamed through a FIFO.
"""

import argparse
import os
from pathlib import Path

import keras
import tensorflow as tf

from sagemaker_tensorflow import PipeModeDataset

FEATURES = {
    "pixels": tf.io.FixedLenFeature([], tf.string),
    "digit": tf.io.FixedLenFeature([], tf.int64),
}


def parse(record: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return an image under the name of the model's input, and its digit."""
    example = tf.io.parse_single_example(record, FEATURES)
    pixels = tf.io.decode_raw(example["pixels"], tf.float64)
    return {"pixels": tf.ensure_shape(pixels, [64])}, example["digit"]


def stream(epochs: int) -> tf.data.Dataset:
    dataset = PipeModeDataset(channel="training", record_format="TFRecord")
    dataset = dataset.repeat(epochs)
    dataset = dataset.prefetch(10)
    dataset = dataset.map(parse, num_parallel_calls=10)
    return dataset.batch(64)


def build() -> keras.Model:
    pixels = keras.Input((64,), name="pixels")
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Rescaling(1 / 16)(pixels))
    model = keras.Model({"pixels": pixels}, keras.layers.Dense(10, activation="softmax")(hidden))
    model.compile(keras.optimizers.Adam(2e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class Steps(keras.callbacks.Callback):
    """Count batches. The optimizer's counter would also include the end of the data."""

    count = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
        self.count += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--model_dir", type=str)
    parser.add_argument("--sm-model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR"))
    arguments = parser.parse_args()
    keras.utils.set_random_seed(7)
    model = build()
    # One call of `fit`: the dataset contains all epochs.
    steps = Steps()
    trained = model.fit(stream(arguments.epochs), verbose=0, callbacks=[steps])
    print(f"{steps.count} steps, accuracy over all of them {trained.history['accuracy'][-1]:.3f}", flush=True)
    model.export(arguments.sm_model_dir / "1", verbose=False)


if __name__ == "__main__":
    main()
