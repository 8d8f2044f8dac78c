"""Compile the locks of the environments of jobs, listed in `tidemill.core.frameworks`, and those of tools.

    .venv/bin/python requirements/compile_locks.py             # all
    .venv/bin/python requirements/compile_locks.py tf-2.15 tf-2.21-gpu dev   # these

The lock of an environment holds the packages of `tf-VERSION.in` or `sklearn-VERSION.in` and the release of the list,
with hashes, for every Python of the list and every platform. That of an environment for GPUs has TensorFlow's CUDA
wheels, too. All others hold what the file with their name lists, e.g. `dev.in`.
"""

import subprocess
import sys
from pathlib import Path

from tidemill.core.frameworks import ENVIRONMENTS, SCIKIT_LEARN, Framework
from tidemill.environments.uv_command import find_uv

HERE = Path(__file__).resolve().parent
LOCKS = HERE.parent / "packages/tidemill/src/tidemill/environments/locks"
CPU_WHEELS_SINCE = (2, 4)
ARM_WHEELS_SINCE = (2, 12)
COMPILE = ("pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-header", "--upgrade")
TOOLS = {
    "aws-cli": LOCKS / "aws-cli.txt",
    "virtualenv": LOCKS / "virtualenv.txt",
    "tf-1.15-py27": LOCKS / "tf-1.15-py27.txt",
    **{
        file.stem: file
        for file in sorted(HERE.glob("*.txt"))
        if file.with_suffix(".in").exists() and not file.is_symlink() and not file.stem.startswith("bench-")
    },
}
"""Lock by name, of what is no environment of jobs. The releases that benchmarks compare with stay."""

PYTHONS = {"sdk-v1": "3.7", "tf-1.15-py27": "3.7"}
"""Python of a lock of tools, if it is not that of the stack."""


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


def compile_environment(name: str) -> None:
    """Write the lock of one environment of jobs.

    Raises:
        subprocess.CalledProcessError: uv found no solution.
    """
    framework = ENVIRONMENTS[name]
    own = [] if framework is SCIKIT_LEARN else tensorflow(framework, gpu=name != framework.environment)
    subprocess.run(
        [
            *(find_uv(), *COMPILE),
            *("--python-version", framework.pythons[0], "--override", "requirements/tf-overrides.txt"),
            *(f"requirements/{framework.environment}.in", "-"),
            *("-o", str((LOCKS / f"{name}.txt").relative_to(HERE.parent))),
        ],
        input="\n".join(own or [f"scikit-learn=={framework.release}"]),
        cwd=HERE.parent,
        text=True,
        check=True,
    )


def compile_tools(name: str) -> None:
    """Write the lock of tools.

    Raises:
        subprocess.CalledProcessError: uv found no solution.
    """
    # tf_keras and tensorflow-serving-api ask for tensorflow, which must not lie beside tensorflow-cpu: the Makefile
    # installs the rest without their dependencies.
    without = ("--no-emit-package", "tensorflow") if name.endswith("-test") else ()
    if name.endswith("-py27"):
        without = ("--no-deps",)  # uv would take what Python 3 needs
    source, output = f"requirements/{name}.in", str(TOOLS[name].relative_to(HERE.parent))
    python = PYTHONS.get(name, "3.11")
    command = [find_uv(), *COMPILE, "--python-version", python, *without, source, "-o", output]
    subprocess.run(command, cwd=HERE.parent, check=True)


def main(names: list[str]) -> None:
    """Compile the named locks, or all of them."""
    known = [*ENVIRONMENTS, *TOOLS]
    if "dev" in names and "ray" not in names:
        names = [*names, "ray"]  # the two are installed into one environment
    for name in names or known:
        if name not in known:
            raise SystemExit(f"no lock {name!r}; the list has {', '.join(known)}")
        (compile_environment if name in ENVIRONMENTS else compile_tools)(name)


if __name__ == "__main__":
    main(sys.argv[1:])
