"""Classify pictures of digits with TensorFlow 1.x: an estimator, parameter servers, checkpoints in S3."""

import argparse
import json
import os

import numpy as np
import tensorflow as tf

tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
PIXELS = 28 * 28


def network(features, labels, mode):
    pictures = tf.reshape(features["x"], [-1, 28, 28, 1])
    found = tf.compat.v1.layers.conv2d(pictures, filters=4, kernel_size=5, strides=3, activation=tf.nn.relu)
    logits = tf.compat.v1.layers.dense(tf.compat.v1.layers.flatten(found), units=10)
    predictions = {"classes": tf.argmax(logits, axis=1), "probabilities": tf.nn.softmax(logits)}
    if mode == tf.estimator.ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions=predictions)
    loss = tf.compat.v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
    accuracy = tf.compat.v1.metrics.accuracy(labels=labels, predictions=predictions["classes"])
    step = tf.compat.v1.train.get_global_step()
    train = tf.compat.v1.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"accuracy": accuracy})


def load(directory, kind):
    pictures = np.load(os.path.join(directory, kind + "_data.npy")).astype(np.float32)
    return pictures.reshape(-1, PIXELS), np.load(os.path.join(directory, kind + "_labels.npy")).astype(np.int32)


def receiver():
    inputs = {"x": tf.compat.v1.placeholder(tf.float32, [None, PIXELS])}
    return tf.estimator.export.ServingInputReceiver(inputs, inputs)


parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", type=str)
parser.add_argument("--sm-model-dir", type=str, default=os.environ.get("SM_MODEL_DIR"))
parser.add_argument("--train", type=str, default=os.environ.get("SM_CHANNEL_TRAINING"))
parser.add_argument("--hosts", type=list, default=json.loads(os.environ.get("SM_HOSTS")))
parser.add_argument("--current-host", type=str, default=os.environ.get("SM_CURRENT_HOST"))
args, _ = parser.parse_known_args()

numpy_input = tf.compat.v1.estimator.inputs.numpy_input_fn
x_train, y_train = load(args.train, "train")
x_eval, y_eval = load(args.train, "eval")
train_input = numpy_input({"x": x_train}, y_train, batch_size=50, num_epochs=None, shuffle=True)
eval_input = numpy_input({"x": x_eval}, y_eval, num_epochs=1, shuffle=False)
estimator = tf.estimator.Estimator(model_fn=network, model_dir=args.model_dir)
tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(train_input, max_steps=100), tf.estimator.EvalSpec(eval_input)
)
if args.current_host == args.hosts[0]:
    estimator.export_saved_model(args.sm_model_dir, receiver)
