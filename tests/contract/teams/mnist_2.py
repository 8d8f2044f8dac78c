"""Classify pictures of digits with TensorFlow 2.x: a Keras model, which the first instance saves."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf


def load(directory, kind):
    pictures = np.load(os.path.join(directory, f"{kind}_data.npy")).astype("float32")
    return pictures.reshape(-1, 28 * 28), np.load(os.path.join(directory, f"{kind}_labels.npy"))


parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=str)
parser.add_argument("--sm-model-dir", type=str, default=os.environ.get("SM_MODEL_DIR"))
parser.add_argument("--train", type=str, default=os.environ.get("SM_CHANNEL_TRAINING"))
parser.add_argument("--hosts", type=list, default=json.loads(os.environ.get("SM_HOSTS")))
parser.add_argument("--current-host", type=str, default=os.environ.get("SM_CURRENT_HOST"))
args, _ = parser.parse_known_args()

tf.keras.utils.set_random_seed(1)
model = tf.keras.Sequential(
    [
        tf.keras.layers.Input((28 * 28,)),
        tf.keras.layers.Dense(32, activation="relu"),
        tf.keras.layers.Dense(10, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(*load(args.train, "train"), epochs=10, verbose=0)
model.evaluate(*load(args.train, "eval"), verbose=2)
if args.current_host == args.hosts[0]:
    target = os.path.join(args.sm_model_dir, "000000001")
    model.export(target) if hasattr(model, "export") else model.save(target)
