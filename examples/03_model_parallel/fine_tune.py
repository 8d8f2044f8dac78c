"""Fine-tune a model that was not written for the library: load, wrap, fit.

    python pretrain.py
    python -m smdistributed.modelparallel.tensorflow.run -n 2 fine_tune.py --partitions 2
    python fine_tune.py --partitions 1

The weights of pretrain.py were trained on the digits 0 to 4; a new head learns all ten.
"""

import argparse
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import smdistributed.modelparallel.tensorflow as smp

TEST = 320


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tune a Functional model that the library cuts.")
    parser.add_argument("--partitions", type=int, default=2, help="model parts; the number of ranks must be a multiple")
    parser.add_argument(
        "--microbatches", type=int, default=4, help="microbatches per batch; the batch size must be a multiple"
    )
    parser.add_argument("--by-hand", action="store_true", help="place layers by rules on their names")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--pretrained", type=Path, default=Path("model/pretrained.keras"))
    parser.add_argument("--model-dir", type=Path, default=Path(os.environ.get("SM_MODEL_DIR", "model/fine_tuned")))
    return parser.parse_known_args()[0]


def with_new_head(pretrained: keras.Model) -> keras.Model:
    """Return the model with ten classes instead of five; its first layer is kept."""
    pretrained.get_layer("conv1").trainable = False
    features = pretrained.get_layer("features").output
    return keras.Model(pretrained.input, keras.layers.Dense(10, name="head")(features), name="digits")


def main() -> int:
    arguments = parse_arguments()
    if not arguments.pretrained.exists():
        print(f"there is no {arguments.pretrained}: run pretrain.py first", file=sys.stderr)
        return 2
    smp.init({"partitions": arguments.partitions, "microbatches": arguments.microbatches})
    keras.utils.set_random_seed(7)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).reshape(-1, 8, 8, 1).astype("float32")

    # Every rank loads the whole model, and frees the other ranks' weights when the model is partitioned.
    plain = with_new_head(keras.models.load_model(arguments.pretrained))
    rules = {"conv*": 0, "activation": 0, "*": smp.mp_size() - 1} if arguments.by_hand else None
    model = smp.DistributedModel.wrap(plain, rules)
    model.compile(
        keras.optimizers.Adam(1e-3),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    train = tf.data.Dataset.from_tensor_slices((images[TEST:], labels[TEST:]))
    train = train.shuffle(2000, seed=7).batch(arguments.batch_size, drop_remainder=True)
    # All ranks call `fit` with the same data; rank 0 prints the progress.
    trained = model.fit(train, epochs=arguments.epochs, shuffle=False, verbose=0)
    _, accuracy = model.evaluate(images[:TEST], labels[:TEST], batch_size=TEST, verbose=0)
    # Both calls are collective and write the whole model, which can be read without the library.
    model.save_model(arguments.model_dir)
    model.save(arguments.model_dir / "digits.keras")
    if smp.rank() == 0:
        for epoch, (loss, right) in enumerate(zip(trained.history["loss"], trained.history["accuracy"], strict=True)):
            print(f"epoch {epoch + 1}: loss={loss:.4f} accuracy={right:.3f}")
        print(f"accuracy on {TEST} test images: {accuracy:.3f}")
        served = tf.saved_model.load(arguments.model_dir).signatures["serving_default"]
        predicted = np.argmax(served(tf.constant(images[:5]))["output_0"], -1)
        print(f"the saved model reads {predicted.tolist()} where {labels[:5].tolist()} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
