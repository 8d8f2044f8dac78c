"""Compare models of others with Python's TensorFlow: ``python run_others.py PYTHON...``; ``make matrix-models``.

Makes models by this Python (`current_models`) and by the Pythons of old versions of TensorFlow (`old_models`), serves
all of them by one server, compares the answers, and prints a table and the counts. The exit status is 1 if a model
cannot be made or served, answers otherwise, or if fewer than `LEAST` models are equal.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]  # the fixtures of all tests, and then `comparison`

from comparison import Recorded, compare  # noqa: E402

from conftest import ServerProcess  # noqa: E402

WAYS = ("gRPC", "JSON columns", "JSON rows", "npy")
LEAST = 40
"""How many models must be equal, so that a run which makes few models does not pass."""


def main(pythons: list[str]) -> int:
    """Make, serve and compare the models; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="tidemill-others-") as name:
        makers = [(sys.executable, "current_models.py"), *((python, "old_models.py") for python in pythons)]
        failed = [python for python, file in makers if subprocess.run([python, str(HERE / file), name]).returncode]
        compared = compare_all(Path(name))
        for python in failed:
            print(f"not all models were made by {python}: see above")
        return 1 if failed else compared


def compare_all(directory: Path) -> int:
    """Compare the recorded models of a directory, print the table, and return the exit status."""
    server = ServerProcess(directory, arguments=("--grpc-port", "0")).start()
    equal = differ = 0
    print(f"| model | made by | {' | '.join(WAYS)} |\n|---|---|{'---|' * len(WAYS)}")
    try:
        for file in sorted(directory.glob("*.npz")):
            recorded = Recorded.read(file)
            try:
                found = compare(server, recorded)
                cells = [str(found.get(way, "")) for way in WAYS]
                equal += 1
            except Exception as error:  # noqa: BLE001 - the other models are compared all the same
                differ += 1
                cells = [f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"]
            print(f"| {recorded.name} | {recorded.made_by} | {' | '.join(cells)} |", flush=True)
    finally:
        server.terminate()
    print(f"{equal} models are equal (at least {LEAST} must be), {differ} differ or cannot be served")
    return 1 if differ or equal < LEAST else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        sys.exit(compare_all(Path(sys.argv[2])))
    sys.exit(main(sys.argv[1:]))
