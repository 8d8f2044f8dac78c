"""Save models together with what Python's TensorFlow answers. Runs on every version of TensorFlow from 1.15 on."""

import os
import shutil
import sys
import time
import traceback

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


def record(directory, name, feeds, signature="serving_default"):
    """Call a signature of the SavedModel below ``directory/name/1`` in this process, and store feeds and answers.

    Args:
        feeds: Array by input.
    """
    path = os.path.join(directory, name, "1")
    graph = v1.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        definition = v1.saved_model.load(session, ["serve"], path).signature_def[signature]
        fed = {definition.inputs[alias].name: array for alias, array in feeds.items()}
        fetched = {alias: info.name for alias, info in definition.outputs.items()}
        answers = session.run(fetched, fed)
    store(directory, name, feeds, answers, signature)


def store(directory, name, feeds, answers, signature="serving_default"):
    """Store feeds and answers beside a model."""
    arrays = {"in:" + alias: np.asarray(array) for alias, array in feeds.items()}
    arrays.update({"out:" + alias: _plain(np.asarray(answer)) for alias, answer in answers.items()})
    made_by = np.array("TensorFlow " + tf.__version__)
    np.savez(os.path.join(directory, name + ".npz"), signature=np.array(signature), made_by=made_by, **arrays)


def save_all(models, directory, chosen=()):
    """Save models; those that cannot be made are named at the end, after all others.

    Args:
        models: A function by name, which saves one model below the directory that it gets, and records it.
        chosen: Names of the models to save. Default: all.

    Raises:
        SystemExit: A model could not be made.
    """
    failed = []
    for name, save in models.items():
        if chosen and name not in chosen:
            continue
        begin = time.time()
        try:
            with v1.Graph().as_default() if tf.__version__.startswith("1.") else _Nothing():
                save(directory, name)
        except Exception:  # noqa: BLE001 - the other models are made all the same
            traceback.print_exc()
            failed.append(name)
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)
            continue
        print("made {} in {:.0f} s".format(name, time.time() - begin), flush=True)
    if failed:
        sys.exit("TensorFlow {} could not make {}".format(tf.__version__, ", ".join(failed)))


def _plain(array):
    """Return an array that NumPy can store: bfloat16, which it lacks, as float32."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


class _Nothing(object):
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False
