"""How much of one rank's memory each of several ranks needs, for a model that is nearly all weights.

    .venvs/tf-2.21/bin/python benchmarks/smp_memory.py

8 dense layers of 2048 x 2048 in float32 (134 MB) train for 3 steps of 4 rows with Adam. The peak of the resident memory
is counted from what the process had when TensorFlow was imported and warm. Beside it stands the share that would be
ideal, 1/P. Weights and slots are three quarters of what is needed; the rest, gradients, is divided as they are.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages" / "tidemill-smp" / "tests"))

import memory
import ranks

WIDTH = 2048


def main() -> None:
    print(f"weights {memory.weights_bytes(WIDTH) / 1e6:.0f} MB")
    print("ranks  peak MB of each            largest of one rank's  1/P   goal")
    alone = 0
    for count in (1, 2, 4):
        with ranks.Job(count, {"partitions": count, **memory.MANUAL}) as job:
            results = job.call(memory.train, WIDTH, 3)
        broken = [result.trace for result in results if isinstance(result, ranks.Failure)]
        if broken:
            raise SystemExit(broken[0])
        peaks = [result["peak"] for result in results]
        alone = alone or peaks[0]
        each = " ".join(f"{peak / 1e6:.0f}" for peak in peaks)
        share, ideal = max(peaks) / alone, 1 / count
        verdict = "" if count == 1 else f"<= {ideal + 0.10:.2f} {'met' if share <= ideal + 0.10 else 'MISSED'}"
        print(f"{count:5}  {each:26} {share:20.2f}  {ideal:.2f}  {verdict}")


if __name__ == "__main__":
    main()
