"""Measure what the package layer of a job adds to its start: writing it, and starting Python in it.

Usage: ``python benchmarks/package_layer.py [ROUNDS]``

In each round, Python of the jobs' environment starts without and with a layer, in turns, so that other load on the
machine affects both alike. CPU time is that of user and system. The environment must be built.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidemill.core.images import DEFAULT_TENSORFLOW
from tidemill.environments.builder import Environments, JobEnvironment
from tidemill.environments.venv_files import write_venv
from tidemill.settings import Settings

STEPS = ("Python starts without a layer", "the layer is written", "Python starts in the layer")


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 200
    environment = Environments(Settings().environments_dir).describe(f"tf-{DEFAULT_TENSORFLOW}")
    with tempfile.TemporaryDirectory() as place:
        measured = [measure(environment, Path(place) / str(number)) for number in range(rounds)]
    for kind, what in enumerate(("time", "CPU time")):
        columns = list(zip(*([step[kind] for step in one] for one in measured), strict=True))
        added = [written + inside - without for without, written, inside in zip(*columns, strict=True)]
        for name, values in zip((*STEPS, "added by the layer"), (*columns, added), strict=True):
            ordered = [value * 1e3 for value in statistics.quantiles(values, n=20)]
            print(f"{what}, {name}: {statistics.median(values) * 1e3:.2f} ms ({ordered[0]:.2f}, {ordered[-1]:.2f})")


def measure(environment: JobEnvironment, prefix: Path) -> list[tuple[float, float]]:
    """Return time and CPU time, in seconds, of each of the steps."""
    return [
        timed(partial(subprocess.run, [environment.python, "-c", "pass"], check=True)),
        timed(partial(write_venv, prefix, environment.interpreter, below=environment.site_packages)),
        timed(partial(subprocess.run, [prefix / "bin" / "python", "-c", "pass"], check=True)),
    ]


def timed(run: Callable[[], object]) -> tuple[float, float]:
    started_s, used_s = time.perf_counter(), cpu_s()
    run()
    return time.perf_counter() - started_s, cpu_s() - used_s


def cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


if __name__ == "__main__":
    main()
