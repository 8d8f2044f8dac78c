"""Train an ordinary Keras model for fine_tune.py, in one process and without the library.

    python pretrain.py

The model learns the digits 0 to 4 and is saved as a `.keras` file.
"""

import argparse
from pathlib import Path

import keras
from sklearn.datasets import load_digits


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the model that fine_tune.py takes up.")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--output", type=Path, default=Path("model/pretrained.keras"))
    return parser.parse_args()


def build() -> keras.Model:
    images = keras.Input((8, 8, 1), name="images")
    x = keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1")(images)
    skip = keras.layers.Conv2D(32, 3, padding="same", name="conv2")(x)
    x = keras.layers.Activation("relu", name="activation")(keras.layers.Add(name="add")([x, skip]))
    x = keras.layers.BatchNormalization(name="normalization")(x)
    x = keras.layers.Flatten(name="flatten")(x)
    x = keras.layers.Dense(128, activation="relu", name="features")(x)
    return keras.Model(images, keras.layers.Dense(5, name="head_0_to_4")(x), name="digits")


def main() -> None:
    arguments = parse_arguments()
    keras.utils.set_random_seed(7)
    images, labels = load_digits(n_class=5, return_X_y=True)
    model = build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    trained = model.fit((images / 16).reshape(-1, 8, 8, 1), labels, epochs=arguments.epochs, batch_size=64, verbose=0)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    model.save(arguments.output)
    print(f"accuracy on the digits 0 to 4: {trained.history['accuracy'][-1]:.3f} -> {arguments.output}")


if __name__ == "__main__":
    main()
