"""Load the models of a job without the library: directories from standard input, outputs to a file."""

import json
import sys

import numpy as np
import tensorflow as tf


def main() -> None:
    work, given = json.load(sys.stdin), {}
    for name, job in work["models"].items():
        inputs = [tf.constant(np.load(path)) for path in job["inputs"]]
        if job["kind"] == "saved":
            function = tf.saved_model.load(job["path"]).signatures["serving_default"]
        elif job["kind"] == "saved by keras":
            function = tf.keras.models.load_model(job["path"]).signatures["serving_default"]
        else:
            model = tf.keras.models.load_model(job["path"])
            answer = model(inputs if len(inputs) > 1 else inputs[0], training=False)
            given[f"{name}:output_0"] = np.array(answer)
            continue
        named = function.structured_input_signature[1]
        # A signature preserves the names of several inputs, but not their order.
        several = dict(zip(job["names"], inputs, strict=False))
        outputs = function(inputs[0]) if len(inputs) == 1 else function(**several)
        assert all(spec.shape[0] is None for spec in named.values()), named
        given |= {f"{name}:{key}": value.numpy() for key, value in outputs.items()}
    assert not any(module.split(".")[0] == "smdistributed" for module in sys.modules)
    np.savez(work["answers"], **given)


if __name__ == "__main__":
    main()
