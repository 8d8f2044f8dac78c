"""Write scikit-learn's 1,797 handwritten digits as TFRecords, once plain and once compressed with gzip.

Needs TensorFlow and scikit-learn, which are in the jobs' environment. Writes below the given directory:

    plain/part-0.tfrecord ...       for `fit("s3://...")`
    packed/part-0.tfrecord.gz ...   for `TrainingInput(..., compression="Gzip")`

Every record is a `tf.train.Example` with the 64 pixels of an image as float64 bytes and its digit.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

PARTS = 4


def example(pixels: np.ndarray, digit: int) -> bytes:
    features = {
        "pixels": tf.train.Feature(bytes_list=tf.train.BytesList(value=[pixels.astype("float64").tobytes()])),
        "digit": tf.train.Feature(int64_list=tf.train.Int64List(value=[digit])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def main(directory: Path) -> None:
    digits = load_digits()
    order = np.random.default_rng(7).permutation(len(digits.target))
    for name, suffix, packing in (("plain", "tfrecord", ""), ("packed", "tfrecord.gz", "GZIP")):
        (directory / name).mkdir(parents=True, exist_ok=True)
        for part in range(PARTS):
            file = directory / name / f"part-{part}.{suffix}"
            with tf.io.TFRecordWriter(str(file), packing) as writer:
                for index in order[part::PARTS]:
                    writer.write(example(digits.data[index], int(digits.target[index])))
    print(f"{len(order)} digits in {PARTS} files, plain and packed -> {directory}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
