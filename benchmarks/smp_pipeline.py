"""Measure the gain of a pipeline: one rank with one core, compared with two (or four) ranks with a core each.

    .venvs/tf-2.21/bin/python benchmarks/smp_pipeline.py [--rounds 5] [--attempts 40] [--only sleeps transformer]

A round consists of some steps on one rank and the same number of steps on several ranks, in alternating order. Every
rank, also the single one, has one core, one thread between ops and one within ops. The CPU time of other processes is
read from /proc/stat. A round in which they used 0.05 CPUs or more does not count, except for `sleeps`, which needs no
CPU. Each line shows how many rounds count and how many were run. The ratio is the median over rounds of the time of one
rank divided by that of several; the ideal is P B / (B + P - 1). A second ratio is the CPU time of all ranks together
divided by that of one rank, which is reliable on a busy machine, too.

Workloads: `sleeps`, layers that sleep 10 ms forward and 20 ms backward; `transformer`, 4 blocks of width 256 on 16
sequences of 64; `mlp`, 4 layers of 1024 on 1024 rows; `tiny`, 4 layers of 16 on 16 rows.

`first` is another measurement: the CPU seconds of each rank from the construction of ResNet50 (64 x 64 pixels, 8 rows,
two microbatches) to the end of its first step, and those of plain Keras in a process of its own.
"""

import argparse
import contextlib
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages" / "tidemill-smp" / "tests"))

import ranks

MAX_OTHER_CPUS = 0.05
GOALS = {"sleeps": 0.98, "transformer": 0.92}
TICKS = os.sysconf("SC_CLK_TCK")
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
ONE_THREAD = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result."""

    workload: str
    microbatches: int
    pipeline: str
    partitions: int = 2
    steps: int = 5


ROWS = [
    *(Row("sleeps", count, pipeline, steps=3) for count in (4, 8) for pipeline in ("interleaved", "simple")),
    Row("sleeps", 8, "interleaved", partitions=4, steps=2),
    *(Row("transformer", count, "interleaved", steps=8) for count in (4, 8)),
    *(Row("mlp", count, "interleaved", steps=8) for count in (4, 8)),
    Row("tiny", 4, "interleaved", steps=1000),
]


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was measured in some steps on all ranks of a job."""

    step_s: float
    cpu_s: float
    """CPU time per step of all ranks together."""
    other_cpus: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that must count for a line")
    parser.add_argument("--attempts", type=int, default=40, help="rounds to run at most for a line")
    parser.add_argument("--only", nargs="*", help="workloads")
    parser.add_argument("--transport", default="auto")
    options = parser.parse_args()
    rows = [row for row in ROWS if not options.only or row.workload in options.only]
    print(f"{os.cpu_count()} CPUs; a round counts below {MAX_OTHER_CPUS} CPUs of other processes")
    print(
        "workload     P  B pipeline     1 rank ms  P ranks ms  ratio  ideal  of ideal  CPU ratio  rounds    other CPUs"
    )
    if not options.only or "first" in options.only:
        report_first_step(options)
    for partitions in sorted({row.partitions for row in rows}):
        with one_core(), ranks.Job(1, {"partitions": 1, **manual(options)}, {**ENVIRONMENT, **ONE_THREAD}) as alone:
            alone.call(ready)
            with (
                all_cores(),
                ranks.Job(
                    partitions, {"partitions": partitions, **manual(options)}, {**ENVIRONMENT, **ONE_THREAD}
                ) as together,
            ):
                for row in (row for row in rows if row.partitions == partitions):
                    report(row, options, alone, together)


def manual(options: argparse.Namespace) -> dict[str, Any]:
    return {"auto_partition": False, "default_partition": 0, "transport": options.transport}


@contextlib.contextmanager
def affinity(cores: set[int]) -> Generator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_CORES = sorted(os.sched_getaffinity(0))


def one_core() -> contextlib.AbstractContextManager[None]:
    """Processes started within this context have only the first core."""
    return affinity({_CORES[0]})


def all_cores() -> contextlib.AbstractContextManager[None]:
    return affinity(set(_CORES))


def report(row: Row, options: argparse.Namespace, alone: ranks.Job, together: ranks.Job) -> None:
    sides = (alone, together)
    for side in sides:
        finish(side.call(prepare, dataclasses.asdict(row)))
    kept: list[tuple[Sample, Sample]] = []
    others: list[float] = []
    attempts = 0
    while attempts < options.attempts and len(kept) < options.rounds:
        order = sides if attempts % 2 == 0 else sides[::-1]
        found = {id(side): sample(side, row.steps) for side in order}
        one, several = found[id(alone)], found[id(together)]
        others.append(max(one.other_cpus, several.other_cpus))
        if row.workload == "sleeps" or others[-1] < MAX_OTHER_CPUS:
            kept.append((one, several))
        attempts += 1
    print(line(row, kept, attempts, others), flush=True)


def report_first_step(options: argparse.Namespace) -> None:
    """Print a line per round: CPU seconds to the first step, of plain Keras and of each rank."""
    for _ in range(options.rounds):
        found = []
        for partitions in (1, 2):
            config = {"partitions": partitions, "microbatches": partitions, "transport": options.transport}
            # The library's default, which ranks of tests do not have.
            with ranks.Job(partitions, {**config, "measure_layers": True}, ENVIRONMENT) as job:
                found.append(finish(job.call(first_step, partitions == 1)))
        (plain_s,), cpus_s = found
        goal = f"goal 15: {'met' if max(cpus_s) <= 15 else 'MISSED'}"
        ranks_s = " and ".join(f"{cpu_s:.1f}" for cpu_s in cpus_s)
        print(f"first: CPU s to the first step: plain {plain_s:.1f}, ranks {ranks_s}  {goal}", flush=True)


def line(row: Row, kept: list[tuple[Sample, Sample]], attempts: int, others: list[float]) -> str:
    ideal = row.partitions * row.microbatches / (row.microbatches + row.partitions - 1)
    head = f"{row.workload:12} {row.partitions} {row.microbatches:2} {row.pipeline:11} "
    if not kept:
        return f"{head} no round counts of {attempts}; other processes took {min(others):.2f} CPUs at least"
    ratio = statistics.median(one.step_s / several.step_s for one, several in kept)
    cpu = statistics.median(several.cpu_s / max(one.cpu_s, 1e-9) for one, several in kept)
    one_ms, several_ms = (statistics.median(pair[side].step_s for pair in kept) * 1e3 for side in (0, 1))
    goal = GOALS.get(row.workload)
    goal_text = "" if goal is None else f"  goal {goal}: {'met' if ratio / ideal >= goal else 'MISSED'}"
    if row.workload == "tiny":
        goal_text = f"  goal 2.5 times one rank: {1 / ratio:.2f}, {'met' if 1 / ratio <= 2.5 else 'MISSED'}"
    return (
        f"{head} {one_ms:9.2f} {several_ms:11.2f}  {ratio:5.3f}  {ideal:5.3f}  {ratio / ideal:8.3f}  {cpu:9.2f}  "
        f"{len(kept):2}/{attempts:<3}  {statistics.median(others):10.2f}{goal_text}"
    )


def sample(job: ranks.Job, steps: int) -> Sample:
    """Run some steps, and measure how many CPUs other processes used meanwhile."""
    busy, own, begin = busy_s(), own_s(job), time.monotonic()
    times = finish(job.call(run, steps))
    wall, own, busy = time.monotonic() - begin, own_s(job) - own, busy_s() - busy
    return Sample(max(step for step, _ in times), sum(cpu for _, cpu in times), max(0.0, (busy - own) / wall))


def finish(results: list[Any]) -> list[Any]:
    for result in results:
        if isinstance(result, ranks.Failure):
            raise SystemExit(result.trace)
    return results


def busy_s() -> float:
    """Return the seconds that all CPUs have worked since the machine started."""
    user, nice, system, _, _, irq, soft, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + soft) / TICKS


def own_s(job: ranks.Job) -> float:
    """Return the CPU seconds of this process and the ranks."""
    found = time.process_time()
    for process in job.processes:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        found += (int(fields[11]) + int(fields[12])) / TICKS
    return found


# --- on the ranks -------------------------------------------------------------------------------------------------

_step: list[Callable[[], Any]] = []


def ready() -> bool:
    return True


def prepare(given: dict[str, Any]) -> bool:
    """Make the model and its step, and run it until everything is compiled."""
    import keras

    from smdistributed.modelparallel.tensorflow import session

    row = Row(**given)
    now = session.current()
    config = dataclasses.replace(now.config, microbatches=row.microbatches, pipeline=row.pipeline)
    session.set_current(dataclasses.replace(now, config=config))
    keras.utils.set_random_seed(1)
    _step[:] = [make_step(*WORKLOADS[row.workload](row.partitions))]
    for _ in range(3):
        _step[0]()
    return True


def run(steps: int) -> tuple[float, float]:
    """Return the seconds per step, and the CPU seconds of this rank in a step."""
    import smdistributed.modelparallel.tensorflow as smp

    # Between two calls a rank drops what TensorFlow caches of its functions: one step, not measured, fills the cache.
    float(_step[0]())
    smp.barrier()
    begin, worked = time.perf_counter(), time.process_time()
    losses = [_step[0]() for _ in range(steps)]
    float(losses[-1])
    return (time.perf_counter() - begin) / steps, (time.process_time() - worked) / steps


def first_step(is_plain: bool) -> float:
    """Return the CPU seconds from the construction of a model to the end of its first step."""
    import keras
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    begin = time.process_time()
    inner = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    model = inner if is_plain else smp.DistributedModel.wrap(inner)
    optimizer, loss_of = keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy()

    def gradients_of(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        return tape.gradient(loss, model.trainable_variables), loss

    step = gradients_of if is_plain else smp.step(gradients_of)

    @tf.function
    def train(x: Any, y: Any) -> Any:
        gradients, loss = step(x, y)
        if not is_plain:
            gradients, loss = [gradient.accumulate() for gradient in gradients], loss.reduce_mean()
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    images = np.random.default_rng(0).normal(size=(8, 64, 64, 3)).astype("float32")
    float(train(tf.constant(images), tf.constant(np.arange(8))))
    return time.process_time() - begin


def make_step(layers: list[list[Any]], x: Any, y: Any) -> Callable[[], Any]:
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    class Net(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.parts = layers

        def call(self, x: Any, training: bool | None = None) -> Any:
            for number, part in enumerate(self.parts):
                with smp.partition(number * smp.mp_size() // len(self.parts)):
                    for layer in part:
                        x = layer(x)
            return x

    net, optimizer = Net(), keras.optimizers.SGD(1e-3)

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x, training=True) - y))
        return tape.gradient(loss, net.trainable_variables), loss

    @tf.function
    def train(x: Any, y: Any) -> Any:
        grads, loss = forward_backward(x, y)
        optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], net.trainable_variables, strict=True))
        return loss.reduce_mean()

    inputs, targets = tf.constant(x), tf.constant(y)
    return lambda: train(inputs, targets)


def sleeps(partitions: int) -> tuple[list[list[Any]], Any, Any]:
    import keras
    import numpy as np

    dense = [[keras.layers.Dense(16), sleepy_layer(0.010, 0.020)] for _ in range(2 * partitions)]
    return dense, *data((64, 16), (64, 16), np.float32)


def sleepy_layer(forward_s: float, backward_s: float) -> Any:
    import keras
    import tensorflow as tf

    def nap(seconds: float, x: Any) -> Any:
        def sleep(value: Any) -> Any:
            time.sleep(seconds)
            return value

        result = tf.numpy_function(sleep, [x], x.dtype)
        result.set_shape(x.shape)
        return result

    @tf.custom_gradient
    def sleepy(x: Any) -> Any:
        def gradient(upstream: Any) -> Any:
            return nap(backward_s, upstream)

        return nap(forward_s, x), gradient

    class Sleepy(keras.Layer):
        def call(self, x: Any) -> Any:
            return sleepy(x)

    return Sleepy()


def transformer(partitions: int) -> tuple[list[list[Any]], Any, Any]:
    import keras
    import numpy as np

    layers = keras.layers

    class Block(keras.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.attention = layers.MultiHeadAttention(4, 64)
            self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
            self.wide, self.narrow = layers.Dense(1024, activation="gelu"), layers.Dense(256)

        def call(self, x: Any) -> Any:
            y = self.norms[0](x)
            x = x + self.attention(y, y)
            return x + self.narrow(self.wide(self.norms[1](x)))

    return [[Block()] for _ in range(4)], *data((16, 64, 256), (16, 64, 256), np.float32)


def mlp(partitions: int) -> tuple[list[list[Any]], Any, Any]:
    import keras
    import numpy as np

    return [[keras.layers.Dense(1024, activation="tanh")] for _ in range(4)], *data(
        (1024, 1024), (1024, 1024), np.float32
    )


def tiny(partitions: int) -> tuple[list[list[Any]], Any, Any]:
    import keras
    import numpy as np

    return [[keras.layers.Dense(16, activation="tanh")] for _ in range(4)], *data((16, 16), (16, 16), np.float32)


def data(inputs: tuple[int, ...], targets: tuple[int, ...], dtype: Any) -> tuple[Any, Any]:
    import numpy as np

    random = np.random.RandomState(0)
    return random.randn(*inputs).astype(dtype), random.randn(*targets).astype(dtype)


WORKLOADS = {"sleeps": sleeps, "transformer": transformer, "mlp": mlp, "tiny": tiny}

if __name__ == "__main__":
    main()
