"""How good the automatic cut is: its longest stage beside that of the best manual cut of the same model.

    .venvs/tf-2.21/bin/python benchmarks/smp_partition.py [--only chain skip bytes] [--rounds 7] [--no-runs]

A stage is what a partition does for one microbatch: its layers forward and backward, and what it sends and receives.
`smp.plan(..., measured=True)` measures the layers on one core. Manual are all cuts of the layers, in the order of the
model, into P runs that lie behind each other; what is no layer goes where its inputs are, as with the rules of
`smp.DistributedModel.wrap`. All are judged with the same measured times. The goal is a longest stage of at most 1.03
times the best.

With `optimize="speed"` the columns are: the longest stage of the automatic and of the best manual cut, and their ratio;
the ratio when both are judged by a second measurement, which neither of them has seen (`2nd`); and the ratio where the
automatic cut knows estimated times only, as without `model.profile` (`estimated`). With `optimize="memory"` it is the
largest partition that is compared; up to 1.05 is spent on time on purpose.

Two partitions are run as well, the automatic cut and the best manual one in turn, each by two ranks with a core each.
Where both are one and the same cut, what their ratio differs from 1 is noise. `others` are the CPUs that other
processes took meanwhile.

Models: `chain`, 14 dense layers that become narrower; `skip`, 12 layers and a connection from the second to the last
but one; `bytes`, where an embedding and a wide layer have the bytes, and convolutions the time.
"""

import argparse
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
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each run")
    parser.add_argument("--steps", type=int, default=10, help="steps of each round")
    parser.add_argument("--no-runs", action="store_true", help="judge the cuts by measured times alone")
    options = parser.parse_args()
    print("model  P  cuts  automatic ms  manual ms  ratio  goal 1.03    2nd  estimated  largest MB  manual MB  ratio")
    found = {model: planned(model) for model in options.only}
    if options.no_runs:
        return
    print("\nmodel  automatic step ms  manual step ms  ratio (quartiles)    cuts      others")
    for model, cuts in found.items():
        print(run_both(model, cuts, options), flush=True)


@dataclasses.dataclass(frozen=True)
class Cuts:
    """The two cuts into two partitions that are run."""

    graph: Any
    automatic: tuple[int, ...]
    manual: tuple[int, ...]
    rules: dict[str, int]


def planned(model: str) -> Cuts:
    """Judge the cuts of a model into 2 and 4 partitions, and say so."""
    graph, second, estimated = graphs(model)
    two: Cuts | None = None
    for partitions in (2, 4):
        cuts = manual_cuts(graph, partitions)
        automatic = automatic_cut(graph, partitions, "speed")
        rules, manual = min(cuts, key=lambda cut: longest_ms(graph, cut[1], partitions))
        two = two or Cuts(graph, automatic, manual, rules)
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
    """The model's units three times: measured, measured again, and estimated."""
    from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

    environment = {**smp_pipeline.ENVIRONMENT, **smp_pipeline.ONE_THREAD}
    with smp_pipeline.one_core(), ranks.Job(1, {"partitions": 1}, environment) as job:
        found = [smp_pipeline.finish(job.call(units, model, measured))[0] for measured in (True, True, False)]
    return map(UnitGraph.from_json, found)


def manual_cuts(graph: Any, partitions: int) -> list[tuple[dict[str, int], tuple[int, ...]]]:
    """All ways to cut the layers, in their order, into runs; as rules, and as a partition for each unit."""
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
    """What `smp.plan` cuts by."""
    from smdistributed.modelparallel.tensorflow.partitioning.cost import CutOptions

    return CutOptions(
        partitions=partitions, microbatches=MICROBATCHES, optimize="speed" if optimize == "speed" else "memory"
    )


def run_both(model: str, cuts: Cuts, options: argparse.Namespace) -> str:
    """Train with both cuts in turn."""
    from smdistributed.modelparallel.tensorflow.partitioning.file import save_partition

    config = {"partitions": 2, "microbatches": MICROBATCHES, "optimize": "speed"}
    environment = {**smp_pipeline.ENVIRONMENT, **smp_pipeline.ONE_THREAD}
    with tempfile.TemporaryDirectory() as directory, smp_pipeline.all_cores():
        file = Path(directory) / "cut.json"
        save_partition(file, cuts.graph, cuts.automatic, partitions=2)
        from_file = {"partition_file": str(file), "load_partition": True}
        with ranks.Job(2, config | from_file, environment) as first, ranks.Job(2, config, environment) as second:
            for job, rules, wanted in ((first, None, cuts.automatic), (second, cuts.rules, cuts.manual)):
                places = smp_pipeline.finish(job.call(prepare, model, rules))
                units = [unit.name for unit in cuts.graph.units]
                assert places == [dict(zip(units, wanted, strict=True))] * 2, "the ranks have taken another cut"
            pairs = [rounds(first, second, options.steps, turn % 2 == 1) for turn in range(options.rounds)]
    ratios = [automatic.step_s / manual.step_s for automatic, manual in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    own, best = (statistics.median(pair[side].step_s for pair in pairs) * 1e3 for side in (0, 1))
    others = statistics.median(max(sample.foreign_cpus for sample in pair) for pair in pairs)
    same = "the same" if cuts.automatic == cuts.manual else "differ"
    return f"{model:6} {own:17.2f}  {best:14.2f}  {middle:5.3f} ({low:.3f}-{high:.3f})  {same:8}  {others:6.2f}"


def rounds(first: ranks.Job, second: ranks.Job, steps: int, reverse: bool) -> tuple[Any, Any]:
    """Some steps of both jobs, one behind the other."""
    if reverse:
        return rounds(second, first, steps, reverse=False)[::-1]
    return sample(first, steps), sample(second, steps)


def sample(job: ranks.Job, steps: int) -> smp_pipeline.Sample:
    busy, own, begin = smp_pipeline.busy_s(), smp_pipeline.own_s(job), time.monotonic()
    times = smp_pipeline.finish(job.call(run, steps))
    wall, own = time.monotonic() - begin, smp_pipeline.own_s(job) - own
    others = max(0.0, (smp_pipeline.busy_s() - busy - own) / wall)
    return smp_pipeline.Sample(max(times), own / steps, others)


# --- on the ranks -------------------------------------------------------------------------------------------------

_step: list[Callable[[], Any]] = []


def units(model: str, measured: bool) -> str:
    """The units of a model as JSON."""
    import smdistributed.modelparallel.tensorflow as smp

    net, x = MODELS[model]()
    wrapped = smp.DistributedModel.wrap(net)
    report = smp.plan(wrapped, x, partitions=2, microbatches=MICROBATCHES, optimize="speed", measured=measured)
    return report.graph.to_json()


def prepare(model: str, rules: dict[str, int] | None) -> dict[str, int]:
    """Make the model and its step, and run it until everything is compiled. Where its units are."""
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
    return dict(engine().decisions)


def run(steps: int) -> float:
    """Seconds per step."""
    import smdistributed.modelparallel.tensorflow as smp

    smp.barrier()
    begin = time.perf_counter()
    losses = [_step[0]() for _ in range(steps)]
    float(losses[-1])
    return (time.perf_counter() - begin) / steps


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
