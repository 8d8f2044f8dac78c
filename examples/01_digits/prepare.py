"""Prepare the data: scikit-learn's 1,797 handwritten digits, in three parts.

Needs NumPy and scikit-learn, which are in the jobs' environment. Writes below the given directory:

    train/digits.npz    the training data
    test/digits.npz     the validation data
    heldout.json        other images, for which the client requests predictions
"""

import json
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

HELD_OUT = 200
TEST = 297


def main(directory: Path) -> None:
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    images, labels = digits.data.astype("float32")[order], digits.target.astype("int64")[order]
    held_out, test, train = np.split(np.arange(len(labels)), [HELD_OUT, HELD_OUT + TEST])
    for name, part in (("train", train), ("test", test)):
        (directory / name).mkdir(parents=True, exist_ok=True)
        np.savez(directory / name / "digits.npz", images=images[part], labels=labels[part])
    rows = {"images": images[held_out].tolist(), "labels": labels[held_out].tolist()}
    (directory / "heldout.json").write_text(json.dumps(rows))
    print(f"{len(train)} digits to train, {len(test)} to test, {len(held_out)} held out -> {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
