"""Compile the locks of the environments of jobs from the list of versions in `tidemill.core.frameworks`.

    .venv/bin/python requirements/compile_locks.py             # every version
    .venv/bin/python requirements/compile_locks.py 2.15 1.15   # these

Each lock holds the packages of `tf-VERSION.in` and the TensorFlow release of the list, with hashes, for every Python
of the list and every platform.
"""

import subprocess
import sys
from pathlib import Path

from tidemill.core.frameworks import FRAMEWORKS, Framework
from tidemill.environments.uv_command import find_uv

HERE = Path(__file__).resolve().parent
LOCKS = HERE.parent / "packages/tidemill/src/tidemill/environments/locks"
CPU_WHEELS_SINCE = (2, 4)
ARM_WHEELS_SINCE = (2, 12)


def tensorflow(framework: Framework) -> list[str]:
    """Return the requirement: the build for CPUs where there is one, and never two packages beside each other."""
    if framework.number < CPU_WHEELS_SINCE:
        return [f"tensorflow=={framework.release}"]
    if framework.number < ARM_WHEELS_SINCE:
        return [f"tensorflow-cpu=={framework.release}"]
    return [
        f'tensorflow-cpu=={framework.release} ; platform_machine == "x86_64"',
        f'tensorflow=={framework.release} ; platform_machine != "x86_64"',
    ]


def compile_lock(framework: Framework) -> None:
    """Write the lock of one version.

    Raises:
        subprocess.CalledProcessError: uv found no solution.
    """
    subprocess.run(
        [
            *(find_uv(), "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--upgrade"),
            *("--python-version", framework.pythons[0], "--override", "requirements/tf-overrides.txt"),
            *(f"requirements/{framework.environment}.in", "-"),
            *("-o", str((LOCKS / f"{framework.environment}.txt").relative_to(HERE.parent))),
        ],
        input="\n".join(tensorflow(framework)),
        cwd=HERE.parent,
        text=True,
        check=True,
    )


def main(versions: list[str]) -> None:
    """Compile the locks of ``versions``, or all of them."""
    for version in versions or FRAMEWORKS:
        if version not in FRAMEWORKS:
            raise SystemExit(f"no version {version!r}; the list has {', '.join(FRAMEWORKS)}")
        compile_lock(FRAMEWORKS[version])


if __name__ == "__main__":
    main(sys.argv[1:])
