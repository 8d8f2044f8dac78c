"""Measure the quality of the automatic cut: its longest stage, compared with that of the best manual cut.

    .venvs/tf-2.21/bin/python benchmarks/smp_partition.py [--only chain skip bytes] [--rounds 5] [--no-runs]

A stage is the work of a partition for one microbatch: its layers forward and backward, and its sends and receives.
`smp.plan(..., measured=True)` measures the layers on one core. The manual cuts are all ways to divide the layers, in
the order of the model, into P consecutive runs; other ops go to the partition of their inputs, as with the rules of
`smp.DistributedModel.wrap`. All cuts are compared with the same measured times. The goal: the longest stage of the
automatic cut is at most 1.03 times that of the best manual one.

With `optimize="speed"` the columns are: the longest stage of the automatic and of the best manual cut, and their ratio;
the ratio by a second, independent measurement (`2nd`); and the ratio if the automatic cut has only estimated times, as
without `measure_layers` (`estimated`). With `optimize="memory"` the largest partitions are compared. There the
automatic cut may have a partition up to 1.05 times as large as necessary if that makes it faster, so a ratio of up to
1.05 is intended.

Cuts into two partitions are also run, in turn, by two ranks with a core each: the automatic cut, the best manual one,
and the two manual cuts next to that, with one layer more and one less. `CPU ms` is the CPU time of the busiest rank per
step, and does not depend on other work of the machine; `step ms` is reliable if two cores are free. Both ratios are the
median over rounds (of the steps also the quartiles) of the automatic cut's figure divided by this cut's: above 1.03 a
manual cut was better. If both are the same cut, any difference from 1 is noise. `others` is how many CPUs other
processes used meanwhile.

Models: `chain`, 14 dense layers that become narrower; `skip`, 12 layers and a connection from the second to the last
but one; `bytes`, where an embedding and a wide layer have the bytes, and convolutions the time.
"""

import argparse
import contextlib
import dataclasses
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages" / "tidemill-smp" / "tests"))

import ranks
import smp_pipeline

GOAL = 1.03
MICROBATCHES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=sorted(MODELS), default=list(MODELS), help="models")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run")
    parser.add_argument("--steps", type=int, default=10, help="steps of each round")
    parser.add_argument("--no-runs", action="store_true", help="judge the cuts by measured times alone")
    options = parser.parse_args()
    print("model  P  cuts  automatic ms  manual ms  ratio  goal 1.03    2nd  estimated  largest MB  manual MB  ratio")
    found = {model: planned(model) for model in options.only}
    if options.no_runs:
        return
    print("\nmodel  cut before    longest ms  CPU ms  automatic by it  step ms  automatic by it        others")
    for model, cuts in found.items():
        run_in_turn(model, cuts, options)


@dataclasses.dataclass(frozen=True)
class Cuts:
    """The cuts into two partitions to run."""

    graph: Any
    automatic: tuple[int, ...]
    manual: list[tuple[dict[str, int], tuple[int, ...]]]


@dataclasses.dataclass(frozen=True)
class Sample:
    """What was measured in some steps on both ranks."""

    step_s: float
    busiest_s: float
    """CPU time per step of the rank that used most."""
    other_cpus: float


def planned(model: str) -> Cuts:
    """Compare the cuts of a model into 2 and 4 partitions, and print the result."""
    graph, second, estimated = graphs(model)
    two: Cuts | None = None
    for partitions in (2, 4):
        cuts = manual_cuts(graph, partitions)
        automatic = automatic_cut(graph, partitions, "speed")
        place = min(range(len(cuts)), key=lambda place: longest_ms(graph, cuts[place][1], partitions))
        manual = cuts[place][1]
        two = two or Cuts(graph, automatic, cuts[max(place - 1, 0) : place + 2])
        own, best = longest_ms(graph, automatic, partitions), longest_ms(graph, manual, partitions)
        again = longest_ms(second, automatic, partitions) / longest_ms(second, manual, partitions)
        guessed = longest_ms(graph, automatic_cut(estimated, partitions, "speed"), partitions) / best
        small = largest_mb(graph, automatic_cut(graph, partitions, "memory"), partitions)
        smallest = min(largest_mb(graph, cut, partitions) for _, cut in cuts)
        print(
            f"{model:6} {partitions}  {len(cuts):4}  {own:12.3f}  {best:9.3f}  {own / best:5.3f}  "
            f"{'met' if own / best <= GOAL else 'MISSED':9}  {again:5.3f}  {guessed:9.3f}  "
            f"{small:10.1f}  {smallest:9.1f}  {small / smallest:5.3f}",
            flush=True,
        )
    assert two is not None
    return two


def graphs(model: str) -> Iterator[Any]:
    """Yield the model's units three times: measured, measured again, and estimated."""
    from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

    environment = {**smp_pipeline.ENVIRONMENT, **smp_pipeline.ONE_THREAD}
    with smp_pipeline.one_core(), ranks.Job(1, {"partitions": 1}, environment) as job:
        found = [smp_pipeline.finish(job.call(units, model, measured))[0] for measured in (True, True, False)]
    return map(UnitGraph.from_json, found)


def manual_cuts(graph: Any, partitions: int) -> list[tuple[dict[str, int], tuple[int, ...]]]:
    """Return all ways to cut the layers, in their order, into runs: as rules, and as a partition for each unit."""
    from smdistributed.modelparallel.tensorflow.partitioning.manual import assign_by_rules

    layers = list(dict.fromkeys(unit.layer_path for unit in graph.units if unit.layer_path))
    cuts = []
    for bounds in itertools.combinations(range(1, len(layers)), partitions - 1):
        rules = {layer: sum(place >= bound for bound in bounds) for place, layer in enumerate(layers)}
        cuts.append((rules, assign_by_rules(graph, rules, partitions=partitions)))
    return cuts


def automatic_cut(graph: Any, partitions: int, optimize: str) -> tuple[int, ...]:
    from smdistributed.modelparallel.tensorflow.partitioning.cut import cut

    return cut(graph, cut_options(partitions, optimize)).assignment


def longest_ms(graph: Any, assignment: tuple[int, ...], partitions: int) -> float:
    from smdistributed.modelparallel.tensorflow.partitioning.cost import evaluate

    return max(evaluate(graph, assignment, cut_options(partitions, "speed")).time_ns) / 1e6


def largest_mb(graph: Any, assignment: tuple[int, ...], partitions: int) -> float:
    from smdistributed.modelparallel.tensorflow.partitioning.cost import evaluate

    return max(evaluate(graph, assignment, cut_options(partitions, "memory")).bytes) / 1e6


def cut_options(partitions: int, optimize: str) -> Any:
    """Return the options with which `smp.plan` cuts."""
    from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions

    return CutOptions(
        partitions=partitions, microbatches=MICROBATCHES, optimize="speed" if optimize == "speed" else "memory"
    )


def run_in_turn(model: str, cuts: Cuts, options: argparse.Namespace) -> None:
    """Train with all cuts, and print what was measured for each."""
    from smdistributed.modelparallel.tensorflow.partitioning.file import save_partition

    config = {"partitions": 2, "microbatches": MICROBATCHES, "optimize": "speed"}
    environment = {**smp_pipeline.ENVIRONMENT, **smp_pipeline.ONE_THREAD}
    units = [unit.name for unit in cuts.graph.units]
    with contextlib.ExitStack() as stack:
        stack.enter_context(smp_pipeline.all_cores())
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "cut.json"
        save_partition(file, cuts.graph, cuts.automatic, partitions=2)
        from_file = {"partition_file": str(file), "load_partition": True}
        jobs = []
        for rules, wanted in [(None, cuts.automatic), *cuts.manual]:
            jobs.append(stack.enter_context(ranks.Job(2, config if rules else config | from_file, environment)))
            places = smp_pipeline.finish(jobs[-1].call(prepare, model, rules))
            assert places == [dict(zip(units, wanted, strict=True))] * 2, "the ranks have taken another cut"
        rounds = [in_turn(jobs, options.steps, turn) for turn in range(options.rounds)]
    for place, assignment in enumerate([cuts.automatic, *(wanted for _, wanted in cuts.manual)]):
        name = "automatic" if place == 0 else units[assignment.index(1)].rpartition("/")[2]
        longest = longest_ms(cuts.graph, assignment, 2)
        print(
            f"{model:6} {name:13} {longest:10.3f}  {line([(found[0], found[place]) for found in rounds])}", flush=True
        )


def in_turn(jobs: list[ranks.Job], steps: int, turn: int) -> list[Sample]:
    """Run some steps of each job, one job after the other, and begin with another job in each turn."""
    first = turn % len(jobs)
    found = {place: sample(jobs[place], steps) for place in (*range(first, len(jobs)), *range(first))}
    return [found[place] for place in range(len(jobs))]


def line(pairs: list[tuple[Sample, Sample]]) -> str:
    """Return the printed line of a cut, from its rounds and the automatic cut's rounds."""
    cpu = statistics.median(automatic.busiest_s / this.busiest_s for automatic, this in pairs)
    ratios = [automatic.step_s / this.step_s for automatic, this in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    step, busiest, others = (
        statistics.median(getattr(this, name) for _, this in pairs) for name in ("step_s", "busiest_s", "other_cpus")
    )
    return (
        f"{busiest * 1e3:6.1f}  {cpu:15.3f}  {step * 1e3:7.1f}  {middle:5.3f} ({low:.3f} to {high:.3f})  {others:6.2f}"
    )


def sample(job: ranks.Job, steps: int) -> Sample:
    busy, own, begin = smp_pipeline.busy_s(), smp_pipeline.own_s(job), time.monotonic()
    found = smp_pipeline.finish(job.call(run, steps))
    wall, own = time.monotonic() - begin, smp_pipeline.own_s(job) - own
    others = max(0.0, (smp_pipeline.busy_s() - busy - own) / wall)
    return Sample(max(step_s for step_s, _ in found), max(cpu_s for _, cpu_s in found), others)


# --- on the ranks -------------------------------------------------------------------------------------------------

_step: list[Callable[[], Any]] = []


def units(model: str, measured: bool) -> str:
    """Return the units of a model as JSON."""
    import smdistributed.modelparallel.tensorflow as smp

    net, x = MODELS[model]()
    wrapped = smp.DistributedModel.wrap(net)
    report = smp.plan(wrapped, x, partitions=2, microbatches=MICROBATCHES, optimize="speed", measured=measured)
    return report.graph.to_json()


def prepare(model: str, rules: dict[str, int] | None) -> dict[str, int]:
    """Make the model and its step, and run it until everything is compiled. Returns the partitions of its units."""
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.engine.engine import engine

    keras.utils.set_random_seed(1)
    net, x = MODELS[model]()
    wrapped, optimizer = smp.DistributedModel.wrap(net, rules), keras.optimizers.SGD(1e-3)

    @smp.step
    def forward_backward(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(wrapped(x)))
        return tape.gradient(loss, wrapped.trainable_variables), loss

    @tf.function
    def train(x: Any) -> Any:
        grads, loss = forward_backward(x)
        optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], wrapped.trainable_variables, strict=True))
        return loss.reduce_mean()

    inputs = tf.constant(x)
    _step[:] = [lambda: train(inputs)]
    for _ in range(3):
        _step[0]()
    return dict(engine().decided.automatic)


def run(steps: int) -> tuple[float, float]:
    """Return the seconds per step, and the CPU seconds per step."""
    import smdistributed.modelparallel.tensorflow as smp

    smp.barrier()
    begin, cpu = time.perf_counter(), time.process_time()
    losses = [_step[0]() for _ in range(steps)]
    float(losses[-1])
    return (time.perf_counter() - begin) / steps, (time.process_time() - cpu) / steps


def chain() -> tuple[Any, Any]:
    import keras

    widths = (1024, 1024, 768, 768, 512, 512, 512, 384, 384, 256, 256, 128, 64, 10)
    layers = [keras.layers.Dense(width, activation="relu", name=f"layer_{i}") for i, width in enumerate(widths)]
    return keras.Sequential([keras.Input((512,)), *layers], name="net"), numbers((1024, 512))


def skip() -> tuple[Any, Any]:
    import keras

    dense = keras.layers.Dense
    inputs = keras.Input((256,))
    x = kept = dense(512, activation="relu", name="layer_1")(dense(384, activation="relu", name="layer_0")(inputs))
    for place, width in enumerate((512, 640, 640, 768, 768, 512, 512, 384), start=2):
        x = dense(width, activation="relu", name=f"layer_{place}")(x)
    x = dense(256, activation="relu", name="layer_10")(keras.layers.Concatenate(name="joined")([x, kept]))
    return keras.Model(inputs, dense(10, name="head")(x), name="net"), numbers((1024, 256))


def bytes_and_time() -> tuple[Any, Any]:
    import keras
    import numpy as np

    layers = keras.layers
    convolutions = [
        layers.Conv1D(width, 5, padding="same", activation="relu", name=f"conv_{i}")
        for i, width in enumerate((96, 128, 128, 160, 160))
    ]
    net = keras.Sequential(
        [
            keras.Input((64,), dtype="int32"),
            layers.Embedding(50_000, 64, name="embedding"),
            *convolutions,
            layers.GlobalAveragePooling1D(name="pool"),
            layers.Dense(4096, activation="relu", name="wide"),
            layers.Dense(1024, activation="relu", name="narrow"),
            layers.Dense(10, name="head"),
        ],
        name="net",
    )
    return net, np.random.RandomState(0).randint(0, 50_000, (128, 64)).astype("int32")


def numbers(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.random.RandomState(0).randn(*shape).astype("float32")


MODELS = {"chain": chain, "skip": skip, "bytes": bytes_and_time}

if __name__ == "__main__":
    main()
