"""Scripts of Keras 2 on Keras 3: the reason of the failure names the way."""

import json
import subprocess

import pytest

from tidemill_runtime.earlier_keras import advice
from tidemill_runtime.failure import compose, describe_end, read_report

SCRIPT = r"""
import argparse, json, sys, traceback
import numpy as np
import tensorflow as tf
from tidemill_runtime import startup
keras = tf.keras
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
model.compile("sgd", "mse")
x, y = np.zeros((4, 3), "float32"), np.zeros((4, 2), "float32")
adam, mean = keras.optimizers.Adam(), keras.metrics.Mean()
class Mine:
    def fit(self, x): ...
class Net(keras.Model): ...
for number, line in enumerate(json.loads(sys.argv[2])):
    try:
        exec(compile(line, f"case{number}.py", "exec"))
    except Exception as error:
        import linecache
        linecache.cache[f"case{number}.py"] = (len(line), None, [line], f"case{number}.py")
        startup.os.getpid = lambda: number
        startup._write_report(sys.argv[1], type(error), error, error.__traceback__)
print(keras.__version__)
"""
OLD = [
    "model.reset_states()",
    "mean.reset_states()",
    "Net().reset_states()",
    "adam.variables()",
    "adam.get_updates(None, [])",
    "adam.lr",
    "keras.optimizers.Adam(lr=0.1)",
    "model.fit_generator(None)",
    "model.fit(x, y, workers=2)",
    "model.compile('sgd', 'mse', sample_weight_mode='temporal')",
    "model.layers[0].input_shape",
    "model.layers[0].kernel.value()",
    "keras.backend.learning_phase()",
    "keras.optimizers.legacy.Adam()",
    "keras.layers.experimental",
    "keras.layers.DenseFeatures([])",
    "keras.callbacks.ModelCheckpoint('x.keras', period=1)",
    "tf.reduce_mean(keras.Input((3,)))",
    "model.save('/tmp/a_directory')",
    "tf.estimator",
]
OTHER = [
    "argparse.Namespace().lr",
    "Mine().reset_states()",
    "Mine().fit(x, workers=2)",
    "model.no_such_method()",
    "[].__add__(1)",
    "[]()",
    "model.fit(np.zeros((4, 7)), y)",
    "{}['lr']",
]


def test_errors_that_only_scripts_of_keras_2_cause_name_the_framework_version(tmp_path, job_python):
    ended = subprocess.run(
        [job_python, "-c", SCRIPT, str(tmp_path), json.dumps(OLD + OTHER)],
        env={"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split()[-1].startswith("3.")
    for number, line in enumerate(OLD + OTHER):
        report = read_report(tmp_path, pid=number)
        problem = describe_end(exit_code=1, report=report, stderr_tail="")
        text = compose(problem=problem, exit_code=1, command=["python", "train.py", *["--option"] * 60])
        assert ('set framework_version="2.15"' in text) == (line in OLD), (line, text)
        assert report.message.strip()[:40] in text, "the exception itself comes first"


@pytest.mark.parametrize("keras", ["", "2.15.0"])
def test_the_same_errors_on_keras_2_have_another_cause(keras):
    message = "'Mine' object has no attribute 'reset_states'"
    assert advice(message=message, keras=keras, owner="keras.src.x", attribute="reset_states", line="") == ""


def test_the_methods_of_legacy_optimizers_name_these():
    told = advice(
        message="'Adam' object has no attribute 'get_updates'",
        keras="3.12.0",
        owner="keras.src.optimizers.adam",
        attribute="get_updates",
        line="",
    )
    assert told.endswith("and use tf.keras.optimizers.legacy, or change the code for Keras 3")
