"""Compare steps with the training compiler to plain steps and to manually enabled XLA, for several models.

Run ``python compiler.py [MODEL ...]`` in an environment with TensorFlow and tidemill-tensorflow. The two models of
transformers also need ``PYTHONPATH=DIR`` after ``uv pip install --target DIR 'transformers==4.57.*'``.
Each model runs in its own process, and ``--results`` keeps its figures: an interrupted run continues with the missing
models (``--again`` measures all again, ``--table`` only prints). A model takes about two to five minutes on two quiet
cores, all models 45 minutes.

Ways: ``plain`` (``jit_compile=False``); ``jit`` (``jit_compile=True``); ``auto`` (XLA's automatic clustering,
``tf.config.optimizer.set_jit``); ``ours`` (the compiler). In each round every way trains a block of steps, in
alternating order. A ratio is the median of the paired ratios way / plain, with the bootstrapped 95 % interval of the
median. After the ratio of wall time follows the ratio of CPU time, which other work on the machine disturbs less.

The time to step 1,000 is the time of the first steps (with ``ours`` until it has decided) plus the time of the
remaining steps at plain's median times the way's ratio. Each start has its own process, in which TensorFlow is already
loaded. ``cold`` starts without a stored decision, ``warm`` with the decision of the cold start. Times of ``plain`` and
``warm`` are means of two starts. ``allowed`` is plain's time plus the cold run's additional CPU seconds divided by the
number of cores. These runs compile at once (``max_cost`` is infinite), so that they decide within the first steps.

``--brief`` instead trains `MODEL ...` in the ways ``plain`` and ``ours`` alone, in one process each, with the compiler
until it has decided and then in blocks of half a second. It also runs with Keras 2, as in the environments of
TensorFlow 2.12 and 2.15: about half a minute per model.

``--short`` instead compares short and varied trainings (`compiler_short.py`), each as a process of its own, from its
start to its end, with the compiler as it is by default. The ratios ours / plain of paired processes follow each other
in alternating order. The goal for wall and CPU time: a lower end of the 95 % interval of at most 1.05.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDS = 12
BLOCK_S = 1.0
"""Duration of a block in seconds. In shorter ones, the start of `fit` and throttled CPUs count too much."""
CALIBRATION_STEPS = 20
FIRST_STEPS = 10
LATER_STEPS = 40
"""Number of steps per chunk while a model starts, and while several batches per call are tried."""
FIT_STEPS = ("multi_step_on_iterator", "train_function")
MAX_STEP_MS = 30.0
MAX_START_S = 240
GOAL_STEPS = 1000
WAYS = ("plain", "jit", "auto", "ours")
STARTS = ("plain", "cold", "warm", "plain", "warm")
NAMES = [
    "mlp",
    "mlp_dropout",
    "mlp_batchnorm",
    "cnn",
    "resnet50",
    "mobilenet",
    "lstm",
    "transformer",
    "bert",
    "distilbert",
    "recommender",
    "gan",
]
ERROR_LINES = 3


@dataclass
class Used:
    """Wall time and CPU time of this process, in seconds."""

    wall_s: float
    cpu_s: float


class Way:
    """Train one model in one way.

    Args:
        name: One of `WAYS`.
        run: Trains a number of steps.
    """

    def __init__(self, name: str, run: Callable[[int], None]) -> None:
        self.name = name
        self._run = run
        self._is_auto = name == "auto"

    def steps(self, number: int) -> Used:
        """Train a number of steps, and return their total times."""
        import tensorflow as tf

        if self._is_auto:
            tf.config.optimizer.set_jit(True)
        wall, cpu = time.perf_counter(), time.process_time()
        self._run(number)
        used = Used(time.perf_counter() - wall, time.process_time() - cpu)
        if self._is_auto:
            tf.config.optimizer.set_jit(False)
        return used


def way_of(model: str, name: str) -> Way:
    """Build a model, and return a way of training it."""
    import tensorflow as tf

    from compiler_models import MODELS, gan_step, keras

    jit: Any = {"jit": True, "ours": None}.get(name, False)
    build = MODELS[model]
    if build is None:
        step = gan_step(jit)

        def loop(number: int) -> None:
            for _ in range(number - 1):
                step()
            float(step()[0])

        return Way(name, loop)
    keras.utils.set_random_seed(0)
    problem = build()
    compiled: dict[str, Any] = {} if jit is None else {"jit_compile": jit}
    if problem.labels is None:
        import tf_keras

        problem.model.compile(tf_keras.optimizers.Adam(1e-4), **compiled)
        rows = tf.data.Dataset.from_tensor_slices(problem.features)
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        problem.model.compile(keras.optimizers.Adam(1e-4), loss, **compiled)
        rows = tf.data.Dataset.from_tensor_slices((problem.features, problem.labels))
    options = tf.data.Options()
    options.autotune.enabled = False  # with it, the end of a `fit` waits for its next look at the data: after 1.27 s
    batches = rows.batch(problem.batch, drop_remainder=True).repeat().prefetch(2).with_options(options)
    return Way(name, lambda number: problem.model.fit(batches, steps_per_epoch=number, epochs=1, verbose=0))


def prepare(cache: str) -> None:
    """Load TensorFlow and the compiler, and warm both up, so that no way is charged with their start."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    # Without set_jit the flag has no effect.
    os.environ["TF_XLA_FLAGS"] = "--tf_xla_cpu_global_jit"
    import tidemill_tensorflow

    tidemill_tensorflow.compile_training(cache_dir=cache, max_cost=math.inf)
    way_of("gan", "plain").steps(2)
    way_of("gan", "jit").steps(2)


def measure(model: str, rounds: int) -> dict[str, Any]:
    """Measure the starts of one model in processes of their own, and then all ways in this process."""
    with tempfile.TemporaryDirectory() as cache:
        starts: dict[str, list[dict[str, Any]]] = {}
        for name in STARTS:
            command = [sys.executable, __file__, "--one", model, "--start", name, "--cache", cache]
            if name == "warm" and not starts["cold"][0]["with_batches"]:
                command.append("--without-batches")
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            starts.setdefault(name, []).append(json.loads(done.stdout.strip().splitlines()[-1]))
        prepare(cache)
        load = os.getloadavg()[0]
        ways = {name: way_of(model, name) for name in WAYS}
        for name, way in ways.items():
            start(way, decides=name == "ours", with_batches=starts["cold"][0]["with_batches"])
        for way in ways.values():
            way.steps(FIRST_STEPS)  # functions start anew after the first change of set_jit
        number = max(1, round(BLOCK_S / per_step(ways["plain"].steps(CALIBRATION_STEPS), CALIBRATION_STEPS).wall_s))
        blocks: dict[str, list[Used]] = {name: [] for name in WAYS}
        for turn in range(rounds):
            for name in WAYS if turn % 2 else reversed(WAYS):
                blocks[name].append(per_step(ways[name].steps(number), number))
    return {
        "model": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": [load, os.getloadavg()[0]],
        "steps_of_block": number,
        "starts": starts,
        "decisions": starts["cold"][0]["decisions"],
        "blocks": {name: [[used.wall_s, used.cpu_s] for used in taken] for name, taken in blocks.items()},
    }


def measure_start(model: str, name: str, cache: str, *, with_batches: bool) -> dict[str, Any]:
    """Measure one start of a model. It must be the only model of this process: others slow its start down."""
    prepare(cache)
    way = way_of(model, "plain" if name == "plain" else "ours")
    found = start(way, decides=name != "plain", with_batches=with_batches)
    was_tried = any(function["batches_at_once"] for function in _functions())
    return {**found, "with_batches": was_tried, "decisions": decisions()}


def start(way: Way, *, decides: bool, with_batches: bool = True) -> dict[str, float]:
    """Train the first steps, with the compiler until all is decided; return their number and their times.

    Args:
        way: The way.
        decides: Whether the way is the compiler's.
        with_batches: Whether to wait for a decision on several batches per call, if the compiler tries that.
    """
    wall = cpu = 0.0
    steps = 0
    while True:
        number = LATER_STEPS if decides and is_decided() else FIRST_STEPS
        used = way.steps(number)
        wall, cpu, steps = wall + used.wall_s, cpu + used.cpu_s, steps + number
        is_done = not decides or (is_decided() and (not with_batches or has_decided_on_batches()))
        if is_done or wall > MAX_START_S or steps >= GOAL_STEPS:
            return {"steps": steps, "wall_s": wall, "cpu_s": cpu}


def is_decided() -> bool:
    """Return whether every training function that the compiler has found has a decision."""
    functions = _functions()
    return bool(functions) and all(
        function["fallback"] or any(shape["decision"] for shape in function["shapes"]) for function in functions
    )


def has_decided_on_batches() -> bool:
    """Return whether no trial of several batches per call is running or can still start for short steps."""
    for function in _functions():
        found, shapes = function["batches_at_once"], function["shapes"]
        decision = shapes[0]["decision"] if shapes else None
        is_tried = decision is not None and shapes[0]["median_ms"].get(decision, 0) < MAX_STEP_MS
        if function["name"] in FIT_STEPS and is_tried and (found is None or found["decision"] is None):
            return False
    return True


def decisions() -> list[str]:
    """Return the decisions of all functions."""
    return [
        f"plain: {function['fallback']}"
        if function["fallback"]
        else ", ".join(f"{shape['fallback'] or shape['decision']}" for shape in function["shapes"][:2])
        + (", 8 batches a call" if (function["batches_at_once"] or {}).get("decision") == "at_once" else "")
        for function in _functions()
    ]


def _functions() -> list[dict[str, Any]]:
    from tidemill_tensorflow import compiler

    found: list[dict[str, Any]] = compiler._sessions[0].as_dict()["functions"]
    return found


def per_step(used: Used, number: int) -> Used:
    """Return the times per step."""
    return Used(used.wall_s / number, used.cpu_s / number)


def row(found: dict[str, Any]) -> tuple[str, float]:
    """Return a model's row of the table, and its gain plain / ours."""
    blocks = found["blocks"]
    walls = {name: [wall for wall, _ in taken] for name, taken in blocks.items()}
    cpus = {name: [cpu for _, cpu in taken] for name, taken in blocks.items()}

    def ratio(name: str) -> str:
        wall, cpu = paired(walls[name], walls["plain"]), paired(cpus[name], cpus["plain"])
        text = f"{statistics.median(wall):.2f} / {statistics.median(cpu):.2f}"
        if name != "ours":
            return text
        low, high = interval(wall)
        cpu_low, cpu_high = interval(cpu)
        return f"{text} [{low:.2f}, {high:.2f}] / [{cpu_low:.2f}, {cpu_high:.2f}]"

    def to_goal(start: str, steady: str) -> float:
        # The paired ratio varies less than the way's own median.
        step_s = statistics.median(walls["plain"]) * statistics.median(paired(walls[steady], walls["plain"]))
        return statistics.fmean(
            first["wall_s"] + (GOAL_STEPS - first["steps"]) * step_s for first in found["starts"][start]
        )

    cold = found["starts"]["cold"][0]
    additional = cold["cpu_s"] - cold["steps"] * statistics.median(cpus["plain"])
    allowed = to_goal("plain", "plain") + max(additional, 0.0) / found["cores"]
    plain_s, cold_s, warm_s = to_goal("plain", "plain"), to_goal("cold", "ours"), to_goal("warm", "ours")
    cells = [
        found["model"],
        f"{1e3 * statistics.median(walls['plain']):.1f} / {1e3 * statistics.median(cpus['plain']):.1f}",
        ratio("jit"),
        ratio("auto"),
        ratio("ours"),
        f"{plain_s:.1f}, {cold_s:.1f} ({allowed:.1f}), {warm_s:.1f}",
        "; ".join(found["decisions"]),
        f"{found['load'][0]:.1f}, {found['load'][1]:.1f}",
    ]
    return f"| {' | '.join(cells)} |", 1 / statistics.median(paired(walls["ours"], walls["plain"]))


def measure_brief(model: str, rounds: int) -> str:
    """Measure plain steps and those of the compiler in this process, and return a row of the table."""
    with tempfile.TemporaryDirectory() as cache:
        prepare(cache)
        plain, ours = way_of(model, "plain"), way_of(model, "ours")
        for way in (plain, ours):
            start(way, decides=way is ours)
            way.steps(FIRST_STEPS)
        number = max(1, round(0.5 * BLOCK_S / per_step(plain.steps(CALIBRATION_STEPS), CALIBRATION_STEPS).wall_s))
        blocks: dict[str, list[Used]] = {"plain": [], "ours": []}
        for turn in range(rounds):
            for way in (plain, ours) if turn % 2 else (ours, plain):
                blocks[way.name].append(per_step(way.steps(number), number))
        found = decisions()[-1]
    wall = paired([used.wall_s for used in blocks["ours"]], [used.wall_s for used in blocks["plain"]])
    cpu = paired([used.cpu_s for used in blocks["ours"]], [used.cpu_s for used in blocks["plain"]])
    low, high = interval(wall)
    step_ms = 1e3 * statistics.median(used.wall_s for used in blocks["plain"])
    import tensorflow as tf

    return (
        f"| {tf.__version__} | {model} | {step_ms:.1f} | {statistics.median(wall):.2f} [{low:.2f}, {high:.2f}]"
        f" | {statistics.median(cpu):.2f} | {found} |"
    )


def measure_short(name: str, rounds: int) -> dict[str, list[Used]]:
    """Run a short training plain and with the compiler, in turn; return the times of the processes by way."""
    found: dict[str, list[Used]] = {"plain": [], "ours": []}
    for turn in range(rounds):
        for way in ("plain", "ours") if turn % 2 else ("ours", "plain"):
            command = [sys.executable, str(Path(__file__).with_name("compiler_short.py")), name, way]
            begin = time.perf_counter()
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            log = process.stderr.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if status:
                raise SystemExit(f"{name}, {way}: {log[-500:]}")
            found[way].append(Used(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime))
    return found


def short_row(name: str, found: dict[str, list[Used]]) -> str:
    """Return the row of a short training."""
    walls = paired([used.wall_s for used in found["ours"]], [used.wall_s for used in found["plain"]])
    cpus = paired([used.cpu_s for used in found["ours"]], [used.cpu_s for used in found["plain"]])
    cells = [name, *(f"{statistics.median(used.wall_s for used in found[way]):.1f}" for way in found)]
    cells += [f"{statistics.median(used.cpu_s for used in found[way]):.1f}" for way in found]
    cells += [
        f"{statistics.median(each):.2f} [{interval(each)[0]:.2f}, {interval(each)[1]:.2f}]" for each in (walls, cpus)
    ]
    return f"| {' | '.join(cells)} |"


SHORT_HEADER = (
    "| training | plain, s | ours, s | plain, CPU s | ours, CPU s | wall time, ours / plain [95 %] | CPU time |\n"
    "|---|---|---|---|---|---|---|"
)

HEADER = (
    "| model | plain, ms: wall / CPU | jit / plain: wall / CPU | auto / plain | ours / plain [95 %]"
    " | s to step 1,000: plain, cold (allowed), warm | decision | load |\n|---|---|---|---|---|---|---|---|"
)


def paired(way: list[float], plain: list[float]) -> list[float]:
    """Return the ratio way / plain of each round."""
    return [one / other for one, other in zip(way, plain, strict=True)]


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the bootstrapped 95 % interval of the median."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def main() -> None:
    """Measure the models without a result, each in its own process, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*NAMES, []], help=f"default: all: {', '.join(NAMES)}")
    parser.add_argument("--results", type=Path, default=Path(tempfile.gettempdir()) / "tidemill-compiler-benchmark")
    parser.add_argument("--again", action="store_true", help="measure models again that have a result")
    parser.add_argument("--table", action="store_true", help="print what was measured, and measure nothing")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"number of timed rounds; default: {ROUNDS}")
    parser.add_argument("--short", action="store_true", help="compare short trainings, from start to end")
    parser.add_argument("--brief", action="store_true", help="compare plain and ours alone, after the decision")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--start", choices=STARTS, help=argparse.SUPPRESS)
    parser.add_argument("--cache", help=argparse.SUPPRESS)
    parser.add_argument("--without-batches", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.start:
        with_batches = not arguments.without_batches
        found_start = measure_start(arguments.one, arguments.start, arguments.cache, with_batches=with_batches)
        print(json.dumps(found_start))
        return
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.rounds)))
        return
    if arguments.brief:
        for name in arguments.models or NAMES:
            print(measure_brief(name, arguments.rounds), flush=True)
        return
    if arguments.short:
        from compiler_short import SHORT

        print(SHORT_HEADER, flush=True)
        for name in SHORT:
            print(short_row(name, measure_short(name, arguments.rounds)), flush=True)
        return
    arguments.results.mkdir(parents=True, exist_ok=True)
    names = arguments.models or NAMES
    missing = [name for name in names if not arguments.table and (arguments.again or not result(arguments, name))]
    print(f"{len(missing)} models to measure, about {4 * len(missing)} minutes; results in {arguments.results}\n")
    print(HEADER, flush=True)
    gains = []
    for name in names:
        if name in missing:
            measure_apart(arguments, name)
        found = result(arguments, name)
        if found is not None:
            text, gain = row(found)
            gains.append(gain)
            print(text, flush=True)
    if gains:
        print(f"\ngeometric mean of plain / ours, {len(gains)} models: {statistics.geometric_mean(gains):.2f}")


def measure_apart(arguments: argparse.Namespace, name: str) -> None:
    """Measure a model in its own process. If that fails, print the failure and continue with the next model."""
    command = [sys.executable, __file__, "--one", name, "--rounds", str(arguments.rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-ERROR_LINES:])
        print(f"| {name} | not measured: {last[:300]} |", flush=True)
        return
    partial = arguments.results / f"{name}.partial"
    partial.write_text(done.stdout.strip().splitlines()[-1])
    partial.replace(arguments.results / f"{name}.json")


def result(arguments: argparse.Namespace, name: str) -> dict[str, Any] | None:
    """Return the stored result of a model, or None."""
    path = arguments.results / f"{name}.json"
    found: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
    return found


if __name__ == "__main__":
    main()
