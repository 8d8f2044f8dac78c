"""Run the tests of tidemill-pipemode on several TensorFlow releases, with one wheel for all.

    python run_matrix.py UV ENVIRONMENT...

Builds the wheel once, installs it in each environment, replacing an installed one, and runs the whole suite in each.
Fails unless all tests passed everywhere, none was skipped, and all environments ran the same number.
"""

import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
LIMIT_S = 1800
"""Time limit of a suite in seconds: pytest-xdist waits forever after one of its workers has aborted."""
TENSORFLOW = "import tensorflow; print(tensorflow.__version__)"


def build(uv: str, python: str, target: Path) -> Path:
    """Return the wheel, built from the sdist as an installer would."""
    command = [uv, "build", "-q", "--no-build-isolation", "-p", python, "-o", str(target), str(PACKAGE)]
    subprocess.run(command, check=True)
    (wheel,) = target.glob("*.whl")
    return wheel


def run(python: str, report: Path) -> Counter[str]:
    """Return the number of tests by outcome."""
    command = [python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", f"--junitxml={report}", "tests"]
    suite = subprocess.Popen(command, cwd=PACKAGE, start_new_session=True)
    try:
        suite.wait(LIMIT_S)
    except BaseException as error:
        os.killpg(suite.pid, signal.SIGKILL)
        suite.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        print(f"the suite was ended after {LIMIT_S} s: a test hangs, or its process aborted", file=sys.stderr)
        return Counter(unfinished=1)
    outcomes: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        outcomes[next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")] += 1
    return outcomes


def main(uv: str, environments: list[str]) -> int:
    """Run the tests and return the exit status."""
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="tidemill-matrix-") as directory:
        pythons = [str(Path(environment).absolute() / "bin" / "python") for environment in environments]
        wheel = build(uv, pythons[-1], Path(directory))
        print(f"{wheel.name}: {wheel.stat().st_size} bytes", flush=True)
        for python in pythons:
            subprocess.run([uv, "pip", "install", "-q", "-p", python, "--no-deps", "--reinstall", wheel], check=True)
            version = subprocess.run([python, "-c", TENSORFLOW], check=True, capture_output=True, text=True).stdout
            print(f"--- TensorFlow {version.strip()}", flush=True)
            counts[version.strip()] = run(python, Path(directory) / "report.xml")
    for version, outcomes in counts.items():
        print(f"TensorFlow {version}: " + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))
    numbers = {outcomes["passed"] for outcomes in counts.values()}
    if len(numbers) == 1 and numbers != {0} and all(set(outcomes) == {"passed"} for outcomes in counts.values()):
        return 0
    print(
        "the wheel does not do the same everywhere: each release must pass every test, skipping none", file=sys.stderr
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
