"""Evaluate a trained model in a processing job, and write a report that a condition of a pipeline reads."""

import glob
import json
import os
import tarfile

import numpy as np
import tensorflow as tf

BASE = "/opt/ml/processing"

with tarfile.open(f"{BASE}/model/model.tar.gz") as archive:
    archive.extractall(f"{BASE}/model")
model = tf.saved_model.load(f"{BASE}/model/1")
signature = model.signatures["serving_default"]
x = np.concatenate([np.load(path) for path in sorted(glob.glob(f"{BASE}/test/x_*.npy"))]).astype("float32")
(name,) = signature.structured_input_signature[1]
(predicted,) = signature(**{name: tf.constant(x)}).values()
mse = float(np.mean((predicted.numpy()[:, 0] - x @ np.arange(1, x.shape[1] + 1)) ** 2))
os.makedirs(f"{BASE}/evaluation", exist_ok=True)
with open(f"{BASE}/evaluation/evaluation.json", "w") as file:
    json.dump({"regression_metrics": {"mse": {"value": mse}}}, file)
print(f"MSE {mse:.6f}", flush=True)
