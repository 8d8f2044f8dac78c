"""TensorFlow versions: which have an environment, for which Pythons, and which version a job runs on.

`FRAMEWORKS` is the only list of versions in the project: it determines which locks are compiled
(`requirements/compile_locks.py`), which environments are built and which requests are accepted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.core.images import DEFAULT_TENSORFLOW, Image, parse_image

__all__ = [
    "ENVIRONMENTS",
    "FRAMEWORKS",
    "MODEL_PARALLEL_SINCE",
    "MPI_SINCE",
    "Framework",
    "Selection",
    "environment_of",
    "select",
    "select_serving",
    "select_training",
]

MODEL_PARALLEL_SINCE = (2, 16)
"""The oldest version whose environment has `smdistributed.modelparallel.tensorflow` and `horovod`."""

MPI_SINCE = (2, 12)
"""The oldest version whose environment has mpirun and `mpi4py`."""

_GPU = "-gpu"
_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.\d+)*")
_PYTHON = re.compile(r"py([23])(\d*)")


@dataclass(frozen=True, slots=True)
class Framework:
    """A TensorFlow version that has an environment.

    Attributes:
        release: The release in the environment, e.g. ``2.15.1``.
        pythons: Pythons with a lock, oldest first, e.g. ``("3.9", "3.10", "3.11")``.
        older_pythons: Pythons that this TensorFlow supports but the environment does not; a job that requests one gets
            the oldest of ``pythons``.
        has_gpu_build: Whether it also has an environment with CUDA.
    """

    release: str
    pythons: tuple[str, ...]
    older_pythons: tuple[str, ...] = ()
    has_gpu_build: bool = False

    @property
    def version(self) -> str:
        """``major.minor``, e.g. ``2.15``."""
        return self.release.rpartition(".")[0]

    @property
    def environment(self) -> str:
        """Name of the environment and of its lock, e.g. ``tf-2.15``."""
        return f"tf-{self.version}"

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of all its environments: that for CPUs, and that for GPUs if there is one, e.g. ``tf-2.21-gpu``."""
        return (self.environment, f"{self.environment}{_GPU}") if self.has_gpu_build else (self.environment,)

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor version, for comparisons."""
        major, minor, _ = self.release.split(".")
        return int(major), int(minor)

    @property
    def has_model_parallelism(self) -> bool:
        """Whether its environment has `smdistributed` and `horovod`."""
        return self.number >= MODEL_PARALLEL_SINCE


FRAMEWORKS = {
    framework.version: framework
    for framework in (
        Framework("2.21.0", ("3.11", "3.12", "3.13"), ("3.10",), has_gpu_build=True),
        Framework("2.20.0", ("3.10", "3.11", "3.12", "3.13"), ("3.9",)),
        Framework("2.19.1", ("3.10", "3.11", "3.12"), ("3.9",)),
        Framework("2.18.1", ("3.10", "3.11", "3.12"), ("3.9",)),
        Framework("2.17.1", ("3.10", "3.11", "3.12"), ("3.9",)),
        Framework("2.16.2", ("3.10", "3.11", "3.12"), ("3.9",)),
        Framework("2.15.1", ("3.9", "3.10", "3.11")),
        Framework("2.12.1", ("3.9", "3.10", "3.11"), ("3.8",)),
        Framework("2.6.5", ("3.7", "3.8", "3.9"), ("3.6",)),
        Framework("2.4.4", ("3.7", "3.8"), ("3.6",)),
        Framework("1.15.5", ("3.7",), ("3.5", "3.6")),
    )
}
"""By ``major.minor``, newest first."""


ENVIRONMENTS = {name: framework for framework in FRAMEWORKS.values() for name in framework.environments}
"""The version of each environment, by its name."""


def environment_of(version: str, *, gpu: bool) -> str:
    """Return the name of the environment of ``major.minor``, for GPUs or for CPUs."""
    return f"tf-{version}{_GPU if gpu else ''}"


@dataclass(frozen=True, slots=True)
class Selection:
    """The framework and Python that a job runs on.

    Attributes:
        framework: The TensorFlow version.
        python: The requested Python, e.g. ``3.10``; None allows any of ``framework.pythons``.
        notices: Lines for the job's log, one for each difference from the request.
        uses_gpus: Whether it is the environment for GPUs.
    """

    framework: Framework
    python: str | None
    notices: tuple[str, ...] = ()
    uses_gpus: bool = False


def select(image: Image, *, model_parallel: bool = False, gpus: int = 0) -> Selection:
    """Return the environment for an image.

    A version without an environment runs on the nearest newer one of the same major version, else on the nearest older
    one; versions before all environments run on the oldest. An image without a version gets `DEFAULT_TENSORFLOW`.

    Args:
        image: The request. Its ``py_version`` may be unset or ``py3``; tidemill then chooses the Python version.
        model_parallel: Whether the job needs `smdistributed`, which old environments do not have.
        gpus: How many GPUs the job would get.

    Raises:
        ValueError: The version does not support the Python; the message names the supported ones.
    """
    notices = []
    asked = image.framework_version
    framework = _nearest(asked)
    exact = asked is None or _number(asked) == framework.number
    if not exact:
        notices.append(
            f"TensorFlow {asked} has no environment; running on {framework.release} instead"
            f" (available: {', '.join(FRAMEWORKS)})"
        )
    elif asked is not None and not _covers(asked, framework.release):
        notices.append(f"TensorFlow {asked} runs as {framework.release}, the newest release of {framework.version}")
    python, notice = _python(framework, image.py_version, strict=exact)
    if notice:
        notices.append(notice)
    if model_parallel and not framework.has_model_parallelism:
        newest = next(iter(FRAMEWORKS.values()))
        notices = [
            f"model parallelism is not in the environment of TensorFlow {framework.version}; running on"
            f" {newest.release} instead"
        ]
        framework, python = newest, None
    uses_gpus = image.device == "gpu" and gpus > 0 and framework.has_gpu_build
    if image.device == "gpu" and not uses_gpus:
        notices.append(f"the image is for GPUs; TensorFlow {framework.release} for CPUs runs instead")
    lines = tuple(f"tidemill: {notice}" for notice in notices)
    return Selection(framework, python, lines, uses_gpus=uses_gpus)


def select_training(request: Mapping[str, Any], *, gpus: int = 0) -> Selection:
    """Return the environment for a CreateTrainingJob request, by its ``TrainingImage`` and hyperparameters.

    Args:
        request: The request.
        gpus: How many GPUs its instances would get.

    Raises:
        ValueError: See `select`.
    """
    image = parse_image(request["AlgorithmSpecification"].get("TrainingImage", ""))
    return select(image, model_parallel="mp_parameters" in request.get("HyperParameters", {}), gpus=gpus)


def select_serving(image: Image) -> Selection:
    """Return the environment for an endpoint: that of `DEFAULT_TENSORFLOW`, the only one with the model server."""
    framework, asked = FRAMEWORKS[DEFAULT_TENSORFLOW], image.framework_version
    if asked is None or _number(asked) == framework.number:
        return Selection(framework, None)
    notice = f"tidemill: endpoints run on TensorFlow {framework.release}; {asked} was asked for"
    return Selection(framework, None, (notice,))


def _number(version: str) -> tuple[int, int] | None:
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _covers(asked: str, release: str) -> bool:
    """Return whether a version of the same minor version is this release or names none; 2.15.0 means 2.15."""
    match = _VERSION.fullmatch(asked)
    return match is not None and (match[3] or "0") in ("0", release.rpartition(".")[2])


def _nearest(version: str | None) -> Framework:
    number = None if version is None else _number(version)
    if number is None:
        return FRAMEWORKS[DEFAULT_TENSORFLOW]
    known = sorted(FRAMEWORKS.values(), key=lambda framework: framework.number)
    newer = [each for each in known if each.number >= number and each.number[0] == number[0]]
    older = [each for each in known if each.number < number]
    if newer:
        return newer[0]
    return older[-1] if older else known[0]


def _python(framework: Framework, py_version: str | None, *, strict: bool) -> tuple[str | None, str | None]:
    """Return the Python to run on (None for any), and a notice for the log (None if the request is met).

    Args:
        framework: The version to run on.
        py_version: See `Image.py_version`.
        strict: Whether to refuse an impossible Python instead of choosing another.

    Raises:
        ValueError: It is Python 2; or ``strict``, and the version does not support it.
    """
    match = _PYTHON.fullmatch(py_version or "py3")
    allowed = ", ".join("py" + python.replace(".", "") for python in framework.pythons)
    if match is None or match[1] == "2":
        why = "there is no Python 2 to run on; port the script" if match else "it is not a Python"
        raise ValueError(f"{py_version}: {why}; TensorFlow {framework.version} runs on {allowed}, or py3 for any")
    if not match[2]:
        return None, None
    python = f"{match[1]}.{match[2]}"
    if python in framework.pythons:
        return python, None
    if python in framework.older_pythons:
        oldest = framework.pythons[0]
        return oldest, f"Python {python} has no environment of TensorFlow {framework.version}; running on {oldest}"
    if strict:
        raise ValueError(
            f"TensorFlow {framework.version} does not run on Python {python}; it runs on {allowed}, or py3 for any"
        )
    return None, f"TensorFlow {framework.release} does not run on Python {python}; running on another one"
