"""A training script as teams bring it from SageMaker: arguments, channels, SM_* variables, a metric in the log."""

import argparse
import glob
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--learning_rate", type=float, default=0.1)
parser.add_argument("--model_dir", type=str)
parser.add_argument("--train", type=str, default=os.environ.get("SM_CHANNEL_TRAIN"))
parser.add_argument("--test", type=str, default=os.environ.get("SM_CHANNEL_TEST"))
args, _ = parser.parse_known_args()


def load(directory):
    pieces = [np.load(path) for path in sorted(glob.glob(f"{directory}/x_*.npy"))]
    x = np.concatenate(pieces).astype("float32")
    return x, x @ np.arange(1, x.shape[1] + 1, dtype="float32")


tf.keras.utils.set_random_seed(1)
x_train, y_train = load(args.train)
x_test, y_test = load(args.test)
model = tf.keras.Sequential([tf.keras.layers.Input((x_train.shape[1],)), tf.keras.layers.Dense(1)])
model.compile(tf.keras.optimizers.SGD(args.learning_rate), "mse")
model.fit(x_train, y_train, batch_size=args.batch_size, epochs=args.epochs, verbose=0)
loss = model.evaluate(x_test, y_test, verbose=0)
print(f"val_loss: {loss:.6f}", flush=True)
target = os.path.join(os.environ["SM_MODEL_DIR"], "1")
model.export(target) if hasattr(model, "export") else model.save(target)
