"""Training script: learn 8x8 images of handwritten digits.

An ordinary script for TensorFlow 2.21 (Keras 3) that also runs by hand:

    python train.py --train data/train --test data/test --sm-model-dir model
"""

import argparse
import os
from pathlib import Path

import keras
import numpy as np


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    # Hyperparameters arrive as arguments.
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=7)
    # Every script gets this argument, a place for checkpoints. This script is too short to need any.
    parser.add_argument("--model_dir", type=str)
    # The directories of the channels and of the model are in environment variables.
    parser.add_argument("--train", type=Path, default=os.environ.get("SM_CHANNEL_TRAIN"))
    parser.add_argument("--test", type=Path, default=os.environ.get("SM_CHANNEL_TEST"))
    parser.add_argument("--sm-model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR"))
    return parser.parse_args()


def load(channel: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the images (n, 64) and labels (n,) of all .npz files of a channel."""
    parts = [np.load(file) for file in sorted(Path(channel).glob("*.npz"))]
    if not parts:
        raise FileNotFoundError(f"no .npz file in {channel}")
    images = np.concatenate([part["images"] for part in parts])
    labels = np.concatenate([part["labels"] for part in parts])
    return images, labels


def build(learning_rate: float) -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((64,), dtype="float32", name="pixels"),
            keras.layers.Rescaling(1 / 16),  # pixels are 0 to 16
            keras.layers.Reshape((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


class EpochLog(keras.callbacks.Callback):
    """Print one line per epoch."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        values = " ".join(f"{name}={value:.4f}" for name, value in (logs or {}).items())
        print(f"epoch {epoch + 1}: {values}", flush=True)


def main() -> None:
    arguments = parse_arguments()
    keras.utils.set_random_seed(arguments.seed)
    images, labels = load(arguments.train)
    print(f"{len(images)} images to train with", flush=True)
    model = build(arguments.learning_rate)
    model.fit(
        images,
        labels,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=load(arguments.test),
        callbacks=[EpochLog()],
        verbose=0,
    )
    # The model server reads versions of a model from numbered directories.
    model.export(arguments.sm_model_dir / "1", verbose=False)
    print("model exported", flush=True)


if __name__ == "__main__":
    main()
