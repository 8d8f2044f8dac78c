"""Measure the memory of each of several ranks, relative to that of one rank, for a model that is mostly weights.

    .venvs/tf-2.21/bin/python benchmarks/smp_memory.py --rounds 3

8 dense layers of 2048 x 2048 in float32 (134 MB) train for 3 steps of 4 rows with Adam. The peak of the resident memory
is counted from the memory of the process after TensorFlow was imported and warmed up. The ideal share, 1/P, is printed
beside it. Weights and slots are three quarters of the memory; the rest, gradients, is divided in the same way.

Freed memory that malloc keeps counts as well. With oneDNN, TensorFlow's default on newer CPUs, large tensors come from
TensorFlow's own pool. Without oneDNN, as on other CPUs, they come from malloc; this is measured once with the library's
settings of malloc and once with glibc's.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "packages" / "tidemill-smp" / "tests"))

import memory
import ranks

WIDTH = 2048
VARIANTS = {
    "without oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "0"},
    "without oneDNN, malloc as it is": {"TF_ENABLE_ONEDNN_OPTS": "0", "SMP_RETURN_MEMORY": "0"},
    "with oneDNN, if the CPU allows": {"TF_ENABLE_ONEDNN_OPTS": "1"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"weights {memory.weights_bytes(WIDTH) / 1e6:.0f} MB")
    print("ranks  peak MB of each            largest of one rank's  1/P   goal")
    for number in range(rounds):
        for variant, environment in VARIANTS.items():
            print(f"round {number + 1}, {variant}", flush=True)
            measure(environment)


def measure(environment: dict[str, str]) -> None:
    """Train on 1, 2 and 4 ranks."""
    alone = 0
    for count in (1, 2, 4):
        with ranks.Job(count, {"partitions": count, **memory.MANUAL}, environment) as job:
            results = job.call(memory.train, WIDTH, 3)
        broken = [result.trace for result in results if isinstance(result, ranks.Failure)]
        if broken:
            raise SystemExit(broken[0])
        peaks = [result["peak"] for result in results]
        alone = alone or peaks[0]
        each = " ".join(f"{peak / 1e6:.0f}" for peak in peaks)
        share, ideal = max(peaks) / alone, 1 / count
        goal = "" if count == 1 else f"<= {ideal + 0.10:.2f} {'met' if share <= ideal + 0.10 else 'MISSED'}"
        print(f"{count:5}  {each:26} {share:20.2f}  {ideal:.2f}  {goal}", flush=True)


if __name__ == "__main__":
    main()
