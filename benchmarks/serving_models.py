"""Compare the model server with what people would write instead, on models that people serve.

    .venvs/tf-2.21/bin/python benchmarks/serving_models.py [--models mobilenet_jpeg encoder] [--peers litserve]

The contenders serve the same SavedModel at the same time, and are measured in turn in each round: tidemill-serving with
its defaults; FastAPI with uvicorn; LitServe and BentoML with batches (`serving_peers.py`; ``make serving-peers``).
In a closed loop, 1, 8 and 32 connections each send a request after each answer. In an open loop, requests arrive at
random times, at half of the rate that the slowest contender reached with 8 connections in the first round (or at
``--rate``); the latency counts from the intended time of the arrival. Before anything is timed, every contender answers
each request alone and all at once, and each answer must be equal to TensorFlow's.

CPU and memory (PSS) are those of all processes of a contender. The bare callable is the engine alone in a process with
the same rows: 1 or 32 at once, on one thread or on TensorFlow's, whichever is better. Figures are medians of the
rounds; a ratio is the median of the ratios of the rounds, with its bootstrapped 95 % interval. The load generator runs
on the same cores.

All models with all contenders take about 25 minutes (``--minutes``) at most: a case whose share of time is over ends
after fewer rounds, but three at least, and its table has their number. ``--models`` and ``--peers`` measure a part.
Models have random weights and are kept in the directory ``--cache`` (`served_models.py`).
"""

import argparse
import concurrent.futures
import contextlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np

from compiler import interval
from serving import cpu_s, start_server
from serving_load import Load, closed_loop, open_loop, request_of
from serving_peers import PEERS, Started, end, start_peer, tree

OURS = "tidemill"
CASES = {
    "half_plus_two": "half_plus_two",
    "mobilenet_json": "mobilenet",
    "mobilenet_npy": "mobilenet",
    "mobilenet_jpeg": "mobilenet_jpeg",
    "resnet50": "resnet50",
    "encoder": "encoder",
    "encoder_ragged": "encoder",
    "recommender": "recommender",
    "lstm": "lstm",
}
"""Model by case. A case is a model with requests."""

RELATIVE_TOLERANCE = 1e-3
"""Largest difference of two servers' answers, as a part of the largest value: batches may sum in another order."""

CALLABLE = """
import base64, json, resource, sys, time
from pathlib import Path
import numpy as np
from tidemill_serving.engine import open_engine
model = open_engine().load(Path(sys.argv[1]))
signature = model.signatures["serving_default"]
instances = json.loads(Path(sys.argv[2]).read_text())["instances"]
warm = set()
def column(name, spec, first, rows):
    chosen = [instances[(first + index) % len(instances)] for index in range(rows)]
    values = chosen if len(signature.inputs) == 1 else [each[name] for each in chosen]
    if spec.dtype.kind == "O":
        return np.array([base64.b64decode(each["b64"]) for each in values], object)
    arrays = [np.asarray(each, spec.dtype) for each in values]
    if len({each.shape for each in arrays}) > 1:
        longest = max(len(each) for each in arrays)
        arrays = [np.pad(each, (0, longest - len(each))) for each in arrays]
    return np.stack(arrays)
def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
def measure(rows, pooled, seconds):
    firsts = range(len(instances)) if rows == 1 else (0,)
    runs = [[column(name, spec, first, rows) for name, spec in signature.inputs.items()] for first in firsts]
    if (rows, pooled) not in warm:
        warm.add((rows, pooled))
        model.run(signature, runs[0], pooled=pooled)
    times, begin, cpu = [], time.perf_counter(), cpu_s()
    while len(times) < len(runs) or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        model.run(signature, runs[len(times) % len(runs)], pooled=pooled)
        times.append(time.perf_counter() - start)
    return {"ms": sorted(times)[len(times) // 2] * 1e3, "cpu_ms": (cpu_s() - cpu) / len(times) / rows * 1e3}
print("ready", flush=True)
for line in sys.stdin:
    rows, seconds = line.split()
    print(json.dumps([measure(int(rows), pooled, float(seconds)) for pooled in (False, True)]), flush=True)
"""
ROWS = (1, 32)
FIGURES: dict[str, Callable[["Cell"], float]] = {
    "requests/s": lambda cell: cell.load.rps,
    "p50 ms": lambda cell: cell.load.p50_ms,
    "p99 ms": lambda cell: cell.load.p99_ms,
    "CPU ms a request": lambda cell: cell.cpu_ms,
}
FEWEST_ROUNDS = 3
LEAST = 1
"""Requests that each connection sends in a measurement, however long they take."""


@dataclass(frozen=True)
class Contender:
    """A server of one model, while it runs.

    Attributes:
        name: tidemill, or the name of a peer.
        started: Its process and its port.
        request: Returns target, body and content type for an instance of a case.
    """

    name: str
    started: Started
    request: Callable[[str, Any], tuple[str, bytes, str]]

    def requests(self, case: str, instances: Sequence[Any]) -> list[bytes]:
        """Return the requests of a case."""
        return [request_of(*self.request(case, instance)) for instance in instances]


@dataclass(frozen=True)
class Cell:
    """One contender under one load, in one round; CPU in milliseconds per request."""

    load: Load
    cpu_ms: float


@dataclass
class Findings:
    """What was measured of one case.

    Attributes:
        cells: One for each round, by load (e.g. ``8`` connections, or ``open``) and contender.
        callables: Milliseconds of a run and of CPU per row, one for each round, by rows at once.
        memory_mb: By contender, after all rounds.
        rate: Arrivals per second in the open loop.
    """

    cells: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)
    callables: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    memory_mb: dict[str, float] = field(default_factory=dict)
    rate: float = 0.0
    rounds: int = 0

    def add(self, load: str, contender: str, cell: Cell) -> None:
        """Record a measurement."""
        self.cells.setdefault(load, {}).setdefault(contender, []).append(cell)


def main() -> None:
    """Build what is missing, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="default: all")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 8, 32], help="default: 1 8 32")
    parser.add_argument("--seconds", type=float, default=0.8, help="length of one measurement (default: 0.8)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--minutes", type=float, default=25, help="time for all rounds and starts (default: 25)")
    parser.add_argument("--rate", type=float, help="arrivals per second of the open loop; 0: no open loop")
    parser.add_argument("--layers", type=int, default=2, help="blocks of the encoder; 12 as BERT-base (default: 2)")
    default = Path(tempfile.gettempdir()) / "tidemill-served-models"
    parser.add_argument("--cache", type=Path, default=default, help=f"directory of the models (default: {default})")
    given = parser.parse_args()
    cache = given.cache / f"{given.layers}-layers"
    missing = [name for name in given.models if not (cache / f"{name}.json").exists()]
    if missing:
        build = [sys.executable, str(Path(__file__).with_name("served_models.py")), str(cache), *missing]
        subprocess.run([*build, "--layers", str(given.layers)], check=True)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs, {given.rounds} rounds of {given.seconds:g} s")
    begin_s = time.monotonic()
    results: dict[str, Findings] = {}
    for model in dict.fromkeys(CASES[name] for name in given.models):
        with contextlib.ExitStack() as ends:
            names = [name for name in given.models if CASES[name] == model]
            contenders = start(cache, names[0], given.peers, ends)
            for name in names:
                left_s = given.minutes * 60 - (time.monotonic() - begin_s)
                share_s = left_s / (len(given.models) - len(results))
                results[name] = measure(cache, name, contenders, given, ends, until_s=time.monotonic() + share_s)
                report(name, results[name])
    if given.peers:
        compare(results)
    print(f"\n{time.monotonic() - begin_s:.0f} s")


def start(cache: Path, name: str, peers: Iterable[str], ends: contextlib.ExitStack) -> list[Contender]:
    """Start all contenders with the model of a case."""
    model = CASES[name]
    archive = Path(ends.enter_context(tempfile.TemporaryDirectory()))
    (archive / model).symlink_to(cache / model)
    instance = json.loads((cache / f"{name}.json").read_text())["instances"][0]

    def ours(case: str, instance: Any) -> tuple[str, bytes, str]:
        if sends_npy(case):
            return "/invocations", npy_of(instance), "application/x-npy"
        return f"/v1/models/{model}:predict", json.dumps({"instances": [instance]}).encode(), "application/json"

    def start_peer_of(peer: str) -> Contender:
        def theirs(case: str, instance: Any) -> tuple[str, bytes, str]:
            if sends_npy(case):
                return PEERS[peer].npy_request(npy_of(instance))
            return PEERS[peer].json_request([instance])

        return Contender(peer, start_peer(PEERS[peer], cache / model / "1", [instance], ends), theirs)

    server, port, _, _ = start_server(archive, *ours("", instance)[:2])
    ends.callback(end, server)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return [Contender(OURS, Started(server.pid, port), ours), *pool.map(start_peer_of, peers)]


def sends_npy(case: str) -> bool:
    """Return whether the requests of a case are arrays of NumPy."""
    return case.endswith("_npy")


def npy_of(instance: Any) -> bytes:
    """Return a file of NumPy with one row."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray([instance], np.float32))
    return buffer.getvalue()


def measure(
    cache: Path,
    name: str,
    contenders: list[Contender],
    given: argparse.Namespace,
    ends: contextlib.ExitStack,
    *,
    until_s: float,
) -> Findings:
    """Check the answers to the requests of a case, then measure it; end after the round in which the time is over."""
    document = json.loads((cache / f"{name}.json").read_text())
    requests = {}
    for contender in contenders:
        check(contender, name, document["instances"], np.array(document["expected"]))
        requests[contender.name] = contender.requests(name, document["instances"])
        for connections in {8, *given.connections}:  # so that what adapts itself has adapted
            closed_cell(contender, requests[contender.name], connections, given)
    callable_ = start_callable(cache / CASES[name] / "1", cache / f"{name}.json")
    ends.callback(end, callable_)
    findings = Findings(rate=given.rate or 0.0)
    for round_ in range(given.rounds):
        if round_ >= FEWEST_ROUNDS and time.monotonic() > until_s:
            break
        findings.rounds += 1
        turned = contenders[round_ % len(contenders) :] + contenders[: round_ % len(contenders)]
        for connections in given.connections:
            for each in turned:
                findings.add(str(connections), each.name, closed_cell(each, requests[each.name], connections, given))
        if given.rate is None and not findings.rate:
            findings.rate = rate_of(findings)
        for each in turned if findings.rate else ():
            findings.add("open", each.name, open_cell(each, requests[each.name], findings.rate, given.seconds, round_))
        for rows in ROWS:
            findings.callables.setdefault(rows, []).append(callable_cell(callable_, rows, given.seconds / 4))
    for each in contenders:
        findings.memory_mb[each.name] = sum(pss_mb(pid) for pid in tree(each.started.pid))
    return findings


def check(contender: Contender, name: str, instances: list[Any], expected: Any) -> None:
    """Compare the answers to requests alone, and to all at once, with TensorFlow's.

    Raises:
        AssertionError: They differ, or the status is not 200.
    """

    def ask(index: int) -> None:
        target, body, content_type = contender.request(name, instances[index])
        connection = HTTPConnection("127.0.0.1", contender.started.port)
        connection.request("POST", target, body, {"Content-Type": content_type})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        assert response.status == 200, f"{contender.name}, {name}: {text[:2000]!r}"
        answer = json.loads(text)
        answer = np.array(answer["predictions"] if isinstance(answer, dict) else answer)
        assert answer.shape == expected[index : index + 1].shape, (contender.name, name, answer.shape)
        difference = np.abs(answer[0] - expected[index]).max() / np.abs(expected).max()
        assert difference < RELATIVE_TOLERANCE, f"{contender.name} answers {name} wrongly: {difference:.2g}"

    for index in range(len(instances)):
        ask(index)
    with concurrent.futures.ThreadPoolExecutor(len(instances)) as pool:
        list(pool.map(ask, range(len(instances))))


def closed_cell(contender: Contender, requests: list[bytes], connections: int, given: argparse.Namespace) -> Cell:
    """Measure a contender in a closed loop."""
    before_s = cpu_s(contender.started.pid)
    port = contender.started.port
    load = closed_loop(port, requests, connections=connections, seconds=given.seconds, least=LEAST)
    return Cell(load, (cpu_s(contender.started.pid) - before_s) / load.requests * 1e3)


def open_cell(contender: Contender, requests: list[bytes], rate: float, seconds: float, seed: int) -> Cell:
    """Measure a contender in an open loop."""
    before_s = cpu_s(contender.started.pid)
    load = open_loop(contender.started.port, requests, rate=rate, seconds=2 * seconds, seed=seed)
    return Cell(load, (cpu_s(contender.started.pid) - before_s) / load.requests * 1e3)


def rate_of(findings: Findings) -> float:
    """Return half of the rate that the slowest contender reached with 8 connections, or the closest number."""
    load = min(findings.cells, key=lambda each: abs(int(each) - 8), default=None)
    return min(found[0].load.rps for found in findings.cells[load].values()) / 2 if load else 0.0


def start_callable(model: Path, case: Path) -> subprocess.Popen[str]:
    """Start the process of the bare callable."""
    command = [sys.executable, "-c", CALLABLE, str(model), str(case)]
    pipe, quiet = subprocess.PIPE, {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=quiet)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def callable_cell(process: subprocess.Popen[str], rows: int, seconds: float) -> tuple[float, float]:
    """Return the time of a run and the CPU time per row, both in milliseconds, each of the better way."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{rows} {seconds}\n")
    process.stdin.flush()
    ways = json.loads(process.stdout.readline())
    return min(way["ms"] for way in ways), min(way["cpu_ms"] for way in ways)


def pss_mb(pid: int) -> float:
    """Return the proportional set size of a process in MB, 0 if it has ended."""
    with contextlib.suppress(OSError):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(re.findall(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)[0]) / 1024
    return 0.0


def report(name: str, findings: Findings) -> None:
    """Print the medians of a case."""
    print(f"\n### {name}\n{findings.rounds} rounds\n")
    print("| load | contender | requests/s | p50 ms | p99 ms | CPU ms a request | PSS MB |\n" + 7 * "|---" + "|")
    for rows, found in findings.callables.items():
        run_ms, cpu_ms = (statistics.median(each) for each in zip(*found, strict=True))
        print(f"| {rows} rows | bare callable | {shown(rows / run_ms * 1e3)} | {shown(run_ms)} | | {shown(cpu_ms)} | |")
    for load, contenders in findings.cells.items():
        title = f"{shown(findings.rate)}/s" if load == "open" else f"{load} connections"
        for contender, cells in contenders.items():
            figures = (shown(statistics.median(map(figure, cells))) for figure in FIGURES.values())
            print(f"| {title} | {contender} | {' | '.join(figures)} | {findings.memory_mb[contender]:.0f} |")
    sys.stdout.flush()


def compare(results: dict[str, Findings]) -> None:
    """Print our ratios to the best of the others, and which goals are missed."""
    print(f"\n| model | load | {' | '.join(FIGURES)} | memory |\n" + (3 + len(FIGURES)) * "|---" + "|")
    goals: list[str] = []
    for name, findings in results.items():
        memory, least = ratio_of_memory(findings)
        goals += [f"{name}: memory {memory:.2f} of {least}"] if memory > 1 else []
        for load, contenders in findings.cells.items():
            ratios = {title: Ratio.of(contenders, figure) for title, figure in FIGURES.items()}
            print(f"| {name} | {load} | {' | '.join(map(str, ratios.values()))} | {memory:.2f} {least} |")
            goals += [f"{name}, {load}: {each}" for each in missed(load, ratios, findings)]
    print("\nmissed goals:", *(goals or ["none"]), sep="\n- ")


def missed(load: str, ratios: dict[str, "Ratio"], findings: Findings) -> list[str]:
    """Return the goals of a load that are missed."""
    found = [f"{title} {ratios[title]}" for title in ("p99 ms", "CPU ms a request") if ratios[title].low > 1]
    throughput = ratios["requests/s"]
    best = findings.cells[load][throughput.other]
    batched_ms = statistics.median(cpu_ms for _, cpu_ms in findings.callables[32])
    gains = batched_ms < statistics.median(cell.cpu_ms for cell in best) / 2
    if load not in {"1", "open"} and (throughput.median < 1.2 if gains else throughput.low < 0.98):
        found.append(f"requests/s {throughput}, goal {'1.2' if gains else 'from 0.98'}")
    if load == "1":
        paired = zip(findings.cells[load][OURS], findings.callables[1], strict=True)
        excess_ms = statistics.median(cell.load.p50_ms - 1.05 * run_ms for cell, (run_ms, _) in paired)
        found += [f"p50 is {excess_ms:.2f} ms more than 1.05 x the bare callable, goal 0.3"] if excess_ms > 0.3 else []
    return found


@dataclass(frozen=True)
class Ratio:
    """Our figure divided by that of the best other contender: its median and its 95 % interval."""

    median: float
    low: float
    high: float
    other: str

    @classmethod
    def of(cls, contenders: dict[str, list[Cell]], figure: Callable[[Cell], float]) -> "Ratio":
        """Compare the rounds of all contenders by a figure, of which less is better unless it is the throughput."""
        values = {name: [figure(cell) for cell in cells] for name, cells in contenders.items()}
        ours = values.pop(OURS)
        best = max if figure is FIGURES["requests/s"] else min
        other = best(values, key=lambda name: statistics.median(values[name]))
        paired = [one / beside for one, beside in zip(ours, values[other], strict=True)]
        return cls(statistics.median(paired), *interval(paired), other)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f}) {self.other}"


def ratio_of_memory(findings: Findings) -> tuple[float, str]:
    """Return our memory divided by the least of the others, and whose that is."""
    others = {name: memory_mb for name, memory_mb in findings.memory_mb.items() if name != OURS}
    least = min(others, key=lambda name: others[name])
    return findings.memory_mb[OURS] / others[least], least


def shown(value: float) -> str:
    """Return a number with three digits, or as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
