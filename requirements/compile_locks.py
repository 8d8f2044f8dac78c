"""Compile the locks of the environments of jobs from the list of versions in `tidemill.core.frameworks`.

    .venv/bin/python requirements/compile_locks.py             # every version
    .venv/bin/python requirements/compile_locks.py tf-2.15 tf-2.21-gpu   # these

Each lock holds the packages of `tf-VERSION.in` and the TensorFlow release of the list, with hashes, for every Python
of the list and every platform. That of an environment for GPUs has TensorFlow's CUDA wheels, too.
"""

import subprocess
import sys
from pathlib import Path

from tidemill.core.frameworks import ENVIRONMENTS, Framework
from tidemill.environments.uv_command import find_uv

HERE = Path(__file__).resolve().parent
LOCKS = HERE.parent / "packages/tidemill/src/tidemill/environments/locks"
CPU_WHEELS_SINCE = (2, 4)
ARM_WHEELS_SINCE = (2, 12)


def tensorflow(framework: Framework, *, gpu: bool) -> list[str]:
    """Return the requirement: the build for the device if there is one, and never two packages beside each other."""
    if framework.number < CPU_WHEELS_SINCE:
        return [f"tensorflow=={framework.release}"]
    if framework.number < ARM_WHEELS_SINCE:
        return [f"tensorflow-cpu=={framework.release}"]
    on_x86_64 = "tensorflow[and-cuda]" if gpu else "tensorflow-cpu"
    return [
        f'{on_x86_64}=={framework.release} ; platform_machine == "x86_64"',
        f'tensorflow=={framework.release} ; platform_machine != "x86_64"',
    ]


def compile_lock(name: str) -> None:
    """Write the lock of one environment.

    Raises:
        subprocess.CalledProcessError: uv found no solution.
    """
    framework = ENVIRONMENTS[name]
    subprocess.run(
        [
            *(find_uv(), "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--upgrade"),
            *("--python-version", framework.pythons[0], "--override", "requirements/tf-overrides.txt"),
            *(f"requirements/{framework.environment}.in", "-"),
            *("-o", str((LOCKS / f"{name}.txt").relative_to(HERE.parent))),
        ],
        input="\n".join(tensorflow(framework, gpu=name != framework.environment)),
        cwd=HERE.parent,
        text=True,
        check=True,
    )


def main(names: list[str]) -> None:
    """Compile the locks of the named environments, or all of them."""
    for name in names or ENVIRONMENTS:
        if name not in ENVIRONMENTS:
            raise SystemExit(f"no environment {name!r}; the list has {', '.join(ENVIRONMENTS)}")
        compile_lock(name)


if __name__ == "__main__":
    main(sys.argv[1:])
