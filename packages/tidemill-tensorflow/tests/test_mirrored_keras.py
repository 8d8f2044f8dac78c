"""Keras 3 on several workers computes the numbers of plain Keras in one process. Correct functions stay unchanged."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

WORKERS = 2
TRAINING = """
import json, sys
import keras, numpy as np, tensorflow as tf

mirrored = sys.argv[1] == "mirrored"
strategy = tf.distribute.MultiWorkerMirroredStrategy() if mirrored else tf.distribute.get_strategy()

def model(**options):
    with strategy.scope():
        keras.utils.set_random_seed(1)
        made = keras.Sequential([keras.layers.Dense(16, activation="tanh"), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **options)
    return made

generator = np.random.default_rng(0)
x, y = generator.normal(size=(100, 8)).astype("float32"), generator.integers(0, 3, 100)
found = {}
if mirrored:
    for name, options in (("as it is", {}), ("steps", {"steps_per_execution": 2})):
        try:
            model(**options).fit(x, y, batch_size=32, verbose=0)
        except (TypeError, ValueError) as error:
            found[name] = str(error)
        import tidemill_tensorflow
        tidemill_tensorflow.activate()
trained = model()
history = trained.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0, validation_data=(x[:32], y[:32]))
found |= {
    "weights": [weight.tolist() for weight in trained.get_weights()],
    "history": history.history,
    "evaluated": trained.evaluate(x, y, batch_size=32, verbose=0),
    "predicted": trained.predict(x, batch_size=32, verbose=0).tolist(),
}
print(json.dumps(found))
"""


def run(script: Path, kind: str, configs: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Run one process per configuration; return each process's output and log."""
    processes = [
        subprocess.Popen(
            [sys.executable, script, kind],
            env=os.environ | ({"TF_CONFIG": json.dumps(config)} if config else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for config in configs
    ]
    try:
        ended = [process.communicate(timeout=300) for process in processes]
        assert [process.returncode for process in processes] == [0] * len(processes), ended
    finally:
        for process in processes:
            process.kill()
    return [(json.loads(out.splitlines()[-1]), log) for out, log in ended]


def workers(reserve_port: Callable[[], int]) -> list[dict[str, Any]]:
    addresses = [f"127.0.0.1:{reserve_port()}" for _ in range(WORKERS)]
    return [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}} for i in range(WORKERS)]


def test_two_workers_come_to_the_numbers_of_plain_keras_in_one_process(
    tmp_path: Path, reserve_port: Callable[[], int]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRAINING)
    (first, log), (second, _) = run(script, "mirrored", workers(reserve_port))
    ((plain, _),) = run(script, "plain", [{}])
    assert "unsupported type" in first.pop("as it is"), "Keras is sound: the repair has no reason any more"
    assert first.pop("steps").startswith("steps_per_execution=2 does not work under MultiWorkerMirroredStrategy")
    assert log.count("they are repaired here") == 1
    assert {name: first[name] for name in plain} == {name: second[name] for name in plain}
    # Each worker sums its half of a batch, so sums are rounded in another order.
    close = {"rtol": 1e-4, "atol": 1e-5}
    for mine, theirs in zip(first["weights"], plain["weights"], strict=True):
        np.testing.assert_allclose(mine, theirs, **close)
    assert first["history"].keys() == plain["history"].keys()
    for name, values in plain["history"].items():
        np.testing.assert_allclose(first["history"][name], values, **close)
    np.testing.assert_allclose(first["evaluated"], plain["evaluated"], **close)
    np.testing.assert_allclose(first["predicted"], plain["predicted"], **close)


def test_the_repair_can_be_undone(tf: Any) -> None:
    from keras.src.backend.tensorflow import trainer

    from tidemill_tensorflow import mirrored_keras

    repaired = trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica
    originals = tuple(function.__wrapped__ for function in repaired)  # `activate` has replaced them
    trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica = originals
    undo = mirrored_keras.repair(trainer)
    assert trainer.reduce_per_replica.__wrapped__ is originals[1]
    undo()
    assert (trainer.TensorFlowTrainer._maybe_symbolic_build, trainer.reduce_per_replica) == originals
    mirrored_keras.repair(trainer)
    mirrored_keras.repair(trainer)
    assert trainer.reduce_per_replica.__wrapped__ is originals[1], "it is repaired once"


def test_what_is_sound_is_left_alone() -> None:
    from tidemill_tensorflow import mirrored_keras

    def build(self: Any, iterator: Any = None) -> None:
        self.strategy.reduce("SUM", next(iterator), axis=None)

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        return strategy.reduce("MEAN", values, axis=None)

    sound = SimpleNamespace(
        TensorFlowTrainer=SimpleNamespace(_maybe_symbolic_build=build), reduce_per_replica=reduce_per_replica
    )
    mirrored_keras.repair(sound)
    assert sound.reduce_per_replica is reduce_per_replica
    assert sound.TensorFlowTrainer._maybe_symbolic_build is build
    renamed = SimpleNamespace(TensorFlowTrainer=SimpleNamespace())
    mirrored_keras.repair(renamed)
    assert vars(renamed).keys() == {"TensorFlowTrainer"}


def test_the_repair_waits_for_keras_if_that_imports_tensorflow(run_script: Any) -> None:
    text = "import keras; from keras.src.backend.tensorflow import trainer"
    text += "; print(hasattr(trainer.reduce_per_replica, '__wrapped__'))"
    ended = run_script(text)
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr
    assert "repaired" not in ended.stderr
