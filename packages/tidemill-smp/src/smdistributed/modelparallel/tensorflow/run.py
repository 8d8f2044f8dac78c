"""Start the ranks of a job on this machine: `python -m smdistributed.modelparallel.tensorflow.run -n 2 script.py`."""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
import tempfile

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the job, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m smdistributed.modelparallel.tensorflow.run", description=__doc__)
    parser.add_argument("-n", "--ranks", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="smp-run-") as directory:
        ranks = []
        secret = secrets.token_hex(32)
        for rank in range(options.ranks):
            environment = {
                **os.environ,
                "SMP_RANK": str(rank),
                "SMP_SIZE": str(options.ranks),
                "SMP_LOCAL_RANK": str(rank),
                "SMP_LOCAL_SIZE": str(options.ranks),
                "SMP_STORE": directory,
                "SMP_SECRET": secret,
            }
            ranks.append(subprocess.Popen([sys.executable, *options.command], env=environment))
        return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
