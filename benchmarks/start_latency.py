"""Measure the time from `fit()` to the first line of the user's script, compared with a manual start of the script.

    python benchmarks/start_latency.py [--rounds 5] [--cold] [--instances 4]

`--instances` compares a job of several instances with a job of one instance instead; the time ends with the script's
first line on the last instance. `--cold` also measures a first job, whose environment is built in a new directory (uv's
cache may have the packages). The warm rounds of the second table use `TIDEMILL_WARM=1`: scripts are forked from a
process that has imported TensorFlow.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fitting import fit
from tidemill.environments.builder import Environments
from tidemill.settings import Settings
from tidemill.testing import Service

FIRST_LINE = "import time; print('AT', time.time(), flush=True)\n"
WITH_TENSORFLOW = "import tensorflow, time; print('AT', time.time(), flush=True)\n"


def moment(output: str, *, instances: int = 1) -> float:
    """Return the time that the script printed; with several instances, the latest of them."""
    moments = [float(line.split()[-1]) for line in output.splitlines() if "AT " in line]
    if len(moments) != instances:
        raise SystemExit(f"{len(moments)} instances instead of {instances} have printed a line:\n{output}")
    return max(moments)


def by_hand(python: Path, script: Path) -> float:
    """Return the seconds from the start of the process to the script's line."""
    begun = time.time()
    done = subprocess.run([python, script], capture_output=True, text=True, check=True)
    return moment(done.stdout) - begun


def by_fit(service: Service, script: Path, *, instances: int = 1) -> float:
    """Return the seconds from `fit()` until every instance has printed the script's line."""
    begun, output = fit(service, script, instances=instances)
    return moment(output, instances=instances) - begun


def rounds(count: int, *measures: Callable[[], float]) -> list[list[float]]:
    """Run each measurement once to warm up, then all of them in turn, ``count`` times."""
    for measure in measures:
        measure()
    return [list(values) for values in zip(*([m() for m in measures] for _ in range(count)), strict=True)]


def row(name: str, values: list[float]) -> str:
    """Return a line with the median, the minimum and the maximum."""
    return f"{name:34} median {statistics.median(values):6.3f} s  (min {min(values):.3f}, max {max(values):.3f})"


def compare(title: str, count: int, python: Path, script: Path, service: Service) -> None:
    """Print the times by hand and by `fit()`, their ratio and their difference."""
    hand, fit = rounds(count, lambda: by_hand(python, script), lambda: by_fit(service, script))
    added = statistics.median(fit) - statistics.median(hand)
    print(title)
    print(row("  by hand", hand))
    print(row("  by fit()", fit))
    print(f"  added {added:.3f} s, ratio {statistics.median(fit) / statistics.median(hand):.2f}")


def gangs(count: int, script: Path, service: Service, *, instances: int) -> None:
    """Print the times of one instance and of several, and how much each further instance adds."""
    one, several = rounds(count, lambda: by_fit(service, script), lambda: by_fit(service, script, instances=instances))
    added = (statistics.median(several) - statistics.median(one)) / (instances - 1)
    print("first line of the script, on every instance")
    print(row("  1 instance", one))
    print(row(f"  {instances} instances", several))
    print(f"  each further instance adds {added:.3f} s")


def await_warm(service: Service) -> None:
    """Wait until a process with TensorFlow imported is ready; jobs before that start cold."""
    deadline_s = time.monotonic() + 120
    while not list((service.state_dir / "warm").glob("*.sock")):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no process became warm within 120 s; its log is in {service.state_dir}/warm")
        time.sleep(0.1)


def cold(script: Path) -> None:
    """Print the time of a first job, which builds its environment."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {"environments_dir": Path(directory) / "environments"}
        with Service(state_dir=Path(directory) / "state", settings=settings) as service:
            print(f"cold, the environment is built first: {by_fit(service, script):.1f} s")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--instances", type=int, default=1, help="compare jobs of so many instances with jobs of one")
    options = parser.parse_args()
    environment = Environments(Settings().environments_dir).ensure(
        "tf-2.21", log=lambda line: print(line, file=sys.stderr)
    )
    python = environment.prefix / "bin/python"
    with tempfile.TemporaryDirectory() as directory:
        first, heavy = Path(directory) / "first.py", Path(directory) / "heavy.py"
        first.write_text(FIRST_LINE)
        heavy.write_text(WITH_TENSORFLOW)
        if options.instances > 1:
            settings = {"max_instances": options.instances}
            with Service(state_dir=Path(directory) / "state", settings=settings) as service:
                gangs(options.rounds, first, service, instances=options.instances)
            print(f"load average {os.getloadavg()[0]:.1f}")
            return
        with Service(state_dir=Path(directory) / "state") as service:
            compare("first line of the script", options.rounds, python, first, service)
            compare("first line after `import tensorflow`", options.rounds, python, heavy, service)
        with Service(state_dir=Path(directory) / "warm", settings={"warm": True}) as service:
            await_warm(service)
            compare("the same, TIDEMILL_WARM=1", options.rounds, python, heavy, service)
        if options.cold:
            cold(first)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
