"""MultiWorkerMirroredStrategy: two processes, each with a separate channel, train one model."""

import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from conftest import Channels

DEADLINE_S = 300

# Its own loop: `fit` of Keras 3 does not accept batches of several workers (TypeError on PerReplica, 2.16 to 2.21).
WORKER = """
import json, os, sys
root, index, *addresses = sys.argv[1:]
os.environ["TF_CONFIG"] = json.dumps(
    {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": int(index)}}
)
import tensorflow as tf
from sagemaker_tensorflow import PipeModeDataset

strategy = tf.distribute.MultiWorkerMirroredStrategy()

def batches(context):
    source = PipeModeDataset("training", "TextLine", root + "/state", root + "/data", root + "/config")
    return source.map(lambda line: tf.strings.to_number(tf.strings.split(line, ","))).batch(4)

with strategy.scope():
    slope = tf.Variable(0.0)

@tf.function
def train(batch):
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * rows[:, 0] - rows[:, 1]) ** 2)
        gradient = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, slope))
        slope.assign_sub(0.005 * gradient)
        return tf.reduce_sum(rows[:, 0])
    return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

seen = 0.0
for epoch in range(2):
    for batch in strategy.distribute_datasets_from_function(batches):
        seen += float(train(batch))
print(f"seen={seen:.0f} slope={slope.numpy():.6f}", flush=True)
"""


def test_two_workers_train_one_model_each_from_its_own_channel(scripts, reader, tmp_path):
    workers = [Channels(make(tmp_path / name)) for name in ("a", "b")]
    try:
        for epoch in range(2):
            workers[0].write(b"".join(b"%d,%d\n" % (x, 3 * x) for x in range(1, 9)), epoch)
            workers[1].write(b"".join(b"%d,%d\n" % (x, 3 * x) for x in range(2, 10)), epoch)
        with reserved_addresses(2) as addresses:
            running = [
                scripts.start(WORKER, worker.root, index, *addresses, reader=reader)
                for index, worker in enumerate(workers)
            ]
            outputs = [process.communicate(DEADLINE_S) for process in running]
        assert [process.returncode for process in running] == [0, 0], outputs
        results = [re.fullmatch(r"seen=(\d+) slope=([\d.]+)\n", output) for output, _ in outputs]
        assert all(results), outputs
        assert results[0].groups() == results[1].groups()
        assert int(results[0][1]) == 2 * (sum(range(1, 9)) + sum(range(2, 10)))
        assert abs(float(results[0][2]) - trained_slope()) < 1e-3
        assert [worker.next_epoch for worker in workers] == ["2", "2"]
    finally:
        for worker in workers:
            worker.end_writers()


def trained_slope() -> float:
    """Return the result of gradient descent on the mean of both workers' batches."""
    slope = 0.0
    for first in (1, 5, 1, 5):  # two batches in each of two epochs
        squares = [x * x for begin in (first, first + 1) for x in range(begin, begin + 4)]
        slope -= 0.005 * 2 * sum(squares) / len(squares) * (slope - 3)
    return slope


def make(directory: Path) -> Path:
    directory.mkdir()
    return directory


@contextmanager
def reserved_addresses(count: int) -> Iterator[list[str]]:
    """Yield addresses. The system gives their ports to nothing else, and TensorFlow uses SO_REUSEADDR."""
    with ExitStack() as stack:
        reserved = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in reserved:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{sock.getsockname()[1]}" for sock in reserved]
