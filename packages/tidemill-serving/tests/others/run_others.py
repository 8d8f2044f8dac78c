"""Compare models of others with Python's TensorFlow: ``python run_others.py PYTHON...``; ``make matrix-models``.

Makes models by this Python (`current_models`) and by the Pythons of old versions of TensorFlow (`old_models`), serves
all of them by one server, compares the answers, and prints a table. The exit status is 1 if a model cannot be served or
answers otherwise.
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


def main(pythons: list[str]) -> int:
    """Make, serve and compare the models; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="tidemill-others-") as name:
        directory = Path(name)
        subprocess.run([sys.executable, str(HERE / "current_models.py"), name], check=True)
        for python in pythons:
            subprocess.run([python, str(HERE / "old_models.py"), name], check=True)
        return compare_all(directory)


def compare_all(directory: Path) -> int:
    """Compare the recorded models of a directory, print the table, and return the exit status."""
    server = ServerProcess(directory, arguments=("--grpc-port", "0")).start()
    failures = 0
    print(f"| model | made by | {' | '.join(WAYS)} |\n|---|---|{'---|' * len(WAYS)}")
    try:
        for file in sorted(directory.glob("*.npz")):
            recorded = Recorded.read(file)
            try:
                found = compare(server, recorded)
                cells = [str(found.get(way, "")) for way in WAYS]
            except Exception as error:  # noqa: BLE001 - the other models are compared all the same
                failures += 1
                cells = [f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"]
            print(f"| {recorded.name} | {recorded.made_by} | {' | '.join(cells)} |", flush=True)
    finally:
        server.terminate()
    print(f"{failures} of {len(list(directory.glob('*.npz')))} models differ")
    return 1 if failures else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compare"]:
        sys.exit(compare_all(Path(sys.argv[2])))
    sys.exit(main(sys.argv[1:]))
