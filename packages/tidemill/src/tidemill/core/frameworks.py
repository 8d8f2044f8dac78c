"""TensorFlow versions: which have an environment, for which Pythons, and which version a job runs on.

`FRAMEWORKS` and `SCIKIT_LEARN` are the only lists of versions in the project: they determine which locks are compiled
(`requirements/compile_locks.py`), which environments are built and which requests are accepted.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from tidemill.core.images import DEFAULT_TENSORFLOW, Image, parse_image
from tidemill.core.remotes import pattern_for

MODEL_PARALLEL_SINCE = (2, 12)
"""The oldest version whose environment has `smdistributed.modelparallel.tensorflow`."""

MODEL_PARALLEL_PYTHON = (3, 10)
"""The oldest Python that `smdistributed.modelparallel.tensorflow` runs on."""

PYTHON_2_RELEASE = "1.15.0"
"""The release of TensorFlow in the packages for Python 2.7; none was published later for 1.15."""

_GPU = "-gpu"
_TENSORFLOW = "tf"
_UNMAPPED = "the setting images can select another environment"
_VERSION = re.compile(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:\.\d+)*", re.ASCII)
_PYTHON = re.compile(r"py([23])(\d*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Framework:
    """A version of TensorFlow, or of scikit-learn, that has an environment.

    Attributes:
        release: The release in the environment, e.g. ``2.15.1``.
        pythons: Pythons with a lock, oldest first, e.g. ``("3.9", "3.10", "3.11")``.
        older_pythons: Pythons that this TensorFlow supports but the environment does not; a job that requests one gets
            the oldest of ``pythons``.
        has_gpu_build: Whether it also has an environment with CUDA.
        title: Name of the framework, for messages.
        family: First part of the name of its environment.
        script_pythons: Pythons on which only the script runs, with packages of its own; the runtime runs on one of
            ``pythons``.
    """

    release: str
    pythons: tuple[str, ...]
    older_pythons: tuple[str, ...] = ()
    has_gpu_build: bool = False
    title: str = "TensorFlow"
    family: str = _TENSORFLOW
    script_pythons: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """``major.minor``, e.g. ``2.15``."""
        return self.release.rpartition(".")[0]

    @property
    def environment(self) -> str:
        """Name of the environment and of its lock, e.g. ``tf-2.15``."""
        return environment_of(self.version, gpu=False, family=self.family)

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
    def has_mpi(self) -> bool:
        """Whether its environment has mpirun and `horovod`."""
        return self.family == _TENSORFLOW

    @property
    def has_model_parallelism(self) -> bool:
        """Whether its environments have `smdistributed`, on a Python that it runs on."""
        return self.family == _TENSORFLOW and self.number >= MODEL_PARALLEL_SINCE


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
        Framework("1.15.5", ("3.7",), ("3.5", "3.6"), script_pythons=("2.7",)),
    )
}
"""By ``major.minor``, newest first."""


def environment_of(version: str, *, gpu: bool, family: str = _TENSORFLOW) -> str:
    """Return the name of the environment of ``major.minor``, for GPUs or for CPUs.

    Args:
        version: For example ``2.21``.
        family: See `Framework.family`. Default: that of TensorFlow.

    Returns:
        For example ``tf-2.21-gpu``.
    """
    return f"{family}-{version}{_GPU if gpu else ''}"


SCIKIT_LEARN = Framework("1.9.1", ("3.11", "3.12", "3.13"), title="scikit-learn", family="sklearn")
"""The version on which processing jobs with images of scikit-learn run, whatever version they name."""

ENVIRONMENTS = {name: each for each in (*FRAMEWORKS.values(), SCIKIT_LEARN) for name in each.environments}
"""The framework of each environment, by its name."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The framework and Python that a job runs on.

    Attributes:
        framework: The TensorFlow version.
        python: The requested Python, e.g. ``3.10``; None allows any of ``framework.pythons``. One of
            ``framework.script_pythons`` is for the script alone.
        notices: Lines for the job's log, one for each difference from the request.
        uses_gpus: Whether it is the environment for GPUs.
    """

    framework: Framework
    python: str | None
    notices: tuple[str, ...] = ()
    uses_gpus: bool = False


@dataclass(frozen=True, slots=True)
class MappedImage:
    """The environment in which scripts for an image run (setting ``images``).

    Attributes:
        environment: Name of the environment, e.g. ``tf-2.15`` or ``tf-2.21-gpu``.

    Raises:
        ValueError: There is no such environment.
    """

    environment: str

    __pydantic_config__: ClassVar = {"extra": "forbid"}  # a misspelt member of the settings is an error

    def __post_init__(self) -> None:
        known = [name for name, each in ENVIRONMENTS.items() if each.family == _TENSORFLOW]
        if self.environment not in known:
            raise ValueError(f"there is no environment {self.environment!r}; expected one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Frameworks:
    """Selects the environment of a request.

    Attributes:
        images: The setting: by image name or pattern, the environment that runs instead of the image.
    """

    images: Mapping[str, MappedImage] = field(default_factory=dict)

    def of_training(self, request: Mapping[str, Any], *, gpus: int = 0) -> Selection:
        """Return the environment for a CreateTrainingJob request, by its ``TrainingImage`` and hyperparameters.

        Args:
            gpus: How many GPUs its instances would get.

        Raises:
            ValueError: See `select`.
        """
        uri = request["AlgorithmSpecification"].get("TrainingImage", "")
        image, line = self._image(uri)
        if image.other == SCIKIT_LEARN.title:
            return _scikit_learn(parse_image(uri))
        found = select(image, model_parallel="mp_parameters" in request.get("HyperParameters", {}), gpus=gpus)
        return found if line is None else _introduced(found, line)

    def of_serving(self, uri: str) -> Selection:
        """Return the environment for an endpoint: that of `DEFAULT_TENSORFLOW`, the only one with the model server.

        Args:
            uri: The image of the container.

        Raises:
            ValueError: The image is of another framework, or of a TensorFlow version that does not exist.
        """
        image, line = self._image(uri)
        _check_image(image)
        framework, asked = FRAMEWORKS[DEFAULT_TENSORFLOW], image.framework_version
        found = Selection(framework, None)
        if asked is not None and _number(asked) != framework.number:
            notice = f"tidemill: endpoints run on TensorFlow {framework.release}; {asked} was asked for"
            found = replace(found, notices=(notice,))
        return found if line is None else _introduced(found, line)

    def _image(self, uri: str) -> tuple[Image, str | None]:
        """Return what an image stands for, and how the log explains that it is not run; None if nobody expects that."""
        image = parse_image(uri)
        pattern = None
        if self.images:
            pattern = pattern_for(uri.rpartition("/")[2], self.images) or pattern_for(uri, self.images)
        if pattern is not None:
            environment = self.images[pattern].environment
            device = "gpu" if environment.endswith(_GPU) else "cpu"
            mapped = Image(image.repository, ENVIRONMENTS[environment].version, device, image.py_version)
            return mapped, f"the setting images selects {environment}"
        if image.is_of_aws:
            return image, None
        version = image.framework_version
        if version is not None and image.tensorflow_version is None and not _is_tensorflows(version):
            image = replace(image, framework_version=None)  # the image's own version
        return image, _UNMAPPED


@dataclass(frozen=True, slots=True)
class ProcessingFrameworks(Frameworks):
    """Selects the environment of a processing job: unknown images have none."""

    def of_training(self, request: Mapping[str, Any], *, gpus: int = 0) -> Selection:
        """Return the environment for the request of a processing job, by the member names of CreateTrainingJob.

        Args:
            gpus: How many GPUs its instances would get.

        Raises:
            ValueError: See `select`; or the image is neither of TensorFlow nor of scikit-learn.
        """
        uri = request["AlgorithmSpecification"]["TrainingImage"]
        image, line = self._image(uri)
        exists = f"processing jobs run on images of TensorFlow ({', '.join(FRAMEWORKS)}) and of scikit-learn"
        if image.other not in ("", SCIKIT_LEARN.title):
            raise ValueError(f"it is an image of {image.other}, and images are not run here: {exists}")
        if not image.is_of_aws and not image.other and line == _UNMAPPED:
            raise ValueError(
                f"what it holds is unknown, and images are not run here: {exists}. Name one of those, or map the name"
                " of yours to an environment by the setting images"
            )
        return Frameworks.of_training(self, request, gpus=gpus)


def _scikit_learn(image: Image) -> Selection:
    found, asked = Selection(SCIKIT_LEARN, None), image.framework_version
    if asked is not None and _number(asked) == SCIKIT_LEARN.number:
        return found
    named = f"scikit-learn {asked} was asked for" if asked else "the image names no version"
    return replace(found, notices=(f"tidemill: running on scikit-learn {SCIKIT_LEARN.release}; {named}",))


def _introduced(found: Selection, line: str) -> Selection:
    first = f"tidemill: the image of the request is not run; TensorFlow {found.framework.release} runs instead ({line})"
    return replace(found, notices=(first, *found.notices))


def select(image: Image, *, model_parallel: bool = False, gpus: int = 0) -> Selection:
    """Return the environment for an image.

    A version without an environment runs on the nearest newer one of the same major version, else on the nearest older
    one; versions before all environments run on the oldest. An image without a version gets `DEFAULT_TENSORFLOW`, or
    the newest version for its Python.

    Args:
        image: The request. Its ``py_version`` may be unset or ``py3``; tidemill then chooses the Python version.
        model_parallel: Whether the job needs `smdistributed`, which old environments and Pythons do not have.
        gpus: How many GPUs the job would get.

    Raises:
        ValueError: The image is of another framework, the version is newer than all environments, or it does not
            support the Python; the message names what is supported.
    """
    _check_image(image)
    notices = []
    asked = image.framework_version
    framework = _nearest(asked, image.py_version)
    exact = asked is None or _number(asked) == framework.number
    if not exact:
        notices.append(
            f"TensorFlow {asked} has no environment; running on {framework.release} instead"
            f" (available: {', '.join(FRAMEWORKS)})"
        )
    elif asked is not None and not _covers(asked, framework.release):
        notices.append(f"TensorFlow {asked} runs as {framework.release}, the newest release of {framework.version}")
    if image.repository.startswith("huggingface-"):
        notices.append("the image brings transformers, this environment does not; name them in requirements.txt")
    python, notice = _python(framework, image.py_version, strict=exact)
    if notice:
        notices.append(notice)
    if model_parallel and python in framework.script_pythons:
        raise ValueError(f"{image.py_version}: model parallelism needs Python 3; port the script, and ask for py3")
    if model_parallel and not framework.has_model_parallelism:
        *_, oldest = (each for each in FRAMEWORKS.values() if each.has_model_parallelism)
        notices = [
            f"model parallelism is not in the environment of TensorFlow {framework.version}; running on"
            f" {oldest.release} instead"
        ]
        framework, python = oldest, None
    if model_parallel and python is not None and not runs_model_parallelism(python):
        newer = next(each for each in framework.pythons if runs_model_parallelism(each))
        notices.append(f"model parallelism does not run on Python {python}; running on {newer} instead")
        python = newer
    uses_gpus = image.device == "gpu" and gpus > 0 and framework.has_gpu_build
    if image.device == "gpu" and not uses_gpus:
        notices.append(f"the image is for GPUs; TensorFlow {framework.release} for CPUs runs instead")
    lines = tuple(f"tidemill: {notice}" for notice in notices)
    return Selection(framework, python, lines, uses_gpus=uses_gpus)


def runs_model_parallelism(python: str) -> bool:
    """Return whether `smdistributed.modelparallel.tensorflow` runs on a Python.

    Args:
        python: Major and minor version, e.g. ``3.10``.
    """
    major, minor = python.split(".")
    return (int(major), int(minor)) >= MODEL_PARALLEL_PYTHON


def _check_image(image: Image) -> None:
    """Raise ValueError for what no environment comes near to."""
    newest = next(iter(FRAMEWORKS.values()))
    if image.other:
        raise ValueError(
            f"it is an image of {image.other}, and images are not run here: there are environments of TensorFlow"
            f" {', '.join(FRAMEWORKS)}. Name one by a tensorflow-training image or framework_version; for an image of"
            " your own with TensorFlow, map its name to an environment by the setting images"
        )
    number = None if image.framework_version is None else _number(image.framework_version)
    if number is not None and number > newest.number:
        raise ValueError(
            f"there is no TensorFlow {image.framework_version} here; the newest is {newest.version}: ask for"
            f" framework_version {newest.version!r} (available: {', '.join(FRAMEWORKS)})"
        )


def _is_tensorflows(version: str) -> bool:
    """Return whether a version in the tag of an unknown image is one of TensorFlow, from the oldest to the newest."""
    numbers = [framework.number for framework in FRAMEWORKS.values()]
    number = _number(version)
    return number is not None and min(numbers) <= number <= max(numbers)


def _number(version: str) -> tuple[int, int] | None:
    match = _VERSION.fullmatch(version)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _covers(asked: str, release: str) -> bool:
    """Return whether a version of the same minor version is this release or names none; 2.15.0 means 2.15."""
    match = _VERSION.fullmatch(asked)
    return match is not None and (match[3] or "0") in ("0", release.rpartition(".")[2])


def _nearest(version: str | None, py_version: str | None) -> Framework:
    number = None if version is None else _number(version)
    if number is None:
        if _is_python_2(py_version):
            return next(each for each in FRAMEWORKS.values() if each.script_pythons)
        fitting = [each for each in FRAMEWORKS.values() if py_version in [_py_version(one) for one in each.pythons]]
        default = FRAMEWORKS[DEFAULT_TENSORFLOW]
        return fitting[0] if fitting and default not in fitting else default
    known = sorted(FRAMEWORKS.values(), key=lambda framework: framework.number)
    newer = [each for each in known if each.number >= number and each.number[0] == number[0]]
    older = [each for each in known if each.number < number]
    if newer:
        return newer[0]
    return older[-1] if older else known[0]


def _is_python_2(py_version: str | None) -> bool:
    match = _PYTHON.fullmatch(py_version or "")
    return match is not None and match[1] == "2"


def _py_version(python: str) -> str:
    return "py" + python.replace(".", "")


def _python(framework: Framework, py_version: str | None, *, strict: bool) -> tuple[str | None, str | None]:
    """Return the Python to run on (None for any), and a notice for the log (None if the request is met).

    Args:
        framework: The version to run on.
        py_version: See `Image.py_version`.
        strict: Whether to refuse an impossible Python instead of choosing another.

    Raises:
        ValueError: It is Python 2, and the version has none; or ``strict``, and the version does not support it.
    """
    match = _PYTHON.fullmatch(py_version or "py3")
    allowed = ", ".join(map(_py_version, framework.pythons))
    if match is None:
        raise ValueError(
            f"{py_version}: it is not a Python; TensorFlow {framework.version} runs on {allowed}, or py3 for any"
        )
    if match[1] == "2":
        return _python_2(framework, py_version)
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


def _python_2(framework: Framework, py_version: str | None) -> tuple[str, str]:
    """Return the Python 2 of a version, and a notice about its release.

    Raises:
        ValueError: The version has none.
    """
    found = [each for each in framework.script_pythons if py_version in ("py2", _py_version(each))]
    if not found:
        having = ", ".join(each.version for each in FRAMEWORKS.values() if each.script_pythons)
        allowed = ", ".join(map(_py_version, framework.pythons))
        raise ValueError(
            f"{py_version}: there is no Python 2 for TensorFlow {framework.version}; ask for framework_version"
            f" {having!r} with py27, or port the script: this version runs on {allowed}, or py3 for any"
        )
    return found[0], (
        f"the script runs on Python {found[0]}, with the last release of TensorFlow {framework.version} for it"
        f" ({PYTHON_2_RELEASE})"
    )
