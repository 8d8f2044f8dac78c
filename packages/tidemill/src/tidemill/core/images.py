"""Image URIs, with which clients name framework, Python version and device. Images are never pulled.

SageMaker identifies a framework version by its container image, and AWS's clients parse version and Python from the tag
when they attach to a job. So an image here stands for three facts: the TensorFlow version, the device and the Python
version. `parse_image` reads every form that AWS has used for TensorFlow. Images of other frameworks cannot run here; an
image of the user's own stands for what its tag says.
"""

import re
from dataclasses import dataclass

from tidemill.core.names import ACCOUNT_ID, DEFAULT_REGION

DEFAULT_TENSORFLOW = "2.21"
"""Version, ``major.minor``, of jobs and endpoints that name none. Its environment must have a lock file."""

LEGACY_REPOSITORY = "sagemaker-tensorflow"
"""Images of training jobs in legacy mode, whose module is not a script, and of endpoints with Python handlers."""

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_VERSION_OF_OWN = re.compile(r"(?:tf|tensorflow)?([0-9]+\.[0-9]+(?:\.[0-9]+)*)")
_PYTHON = re.compile(r"py[0-9]+")
_BASE_PYTHON = re.compile(r"sagemaker-base-python-([0-9]+)")
"""Image of a remote function whose client names none: its name has the client's Python, its tag another version."""
_WORDS = re.compile(r"[-_.]")
_OF_AWS = re.compile(
    r"(sagemaker-)?tensorflow-(training|inference|scriptmode|serving)(-eia)?|sagemaker-tensorflow(-eia)?"
    r"|huggingface-tensorflow(-trcomp)?-(training|inference)"
)
_OTHER_FRAMEWORKS = {
    "mxnet": "MXNet",
    "pytorch": "PyTorch",
    "torch": "PyTorch",
    "chainer": "Chainer",
    "sklearn": "scikit-learn",
    "scikit": "scikit-learn",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "autogluon": "AutoGluon",
    "spark": "Spark",
    "djl": "DJL",
    "tritonserver": "Triton",
}
"""By a word of a repository's name: a framework that has no environment here."""

_BUILT_IN = frozenset(
    (
        *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification", "ipinsights"),
        *("kmeans", "knn", "lda", "linear-learner", "ntm", "object-detection", "object2vec", "pca"),
        *("randomcutforest", "semantic-segmentation", "seq2seq"),
    )
)
"""Repositories of SageMaker's built-in algorithms."""
_GPU_INSTANCE = re.compile(r"(ml\.)?(p\d|g\d)[a-z0-9]*\..*|local_gpu")


@dataclass(frozen=True, slots=True)
class Image:
    """The facts in an image URI.

    Attributes:
        repository: Name without registry and tag, e.g. ``tensorflow-training``.
        framework_version: Version in the tag, e.g. ``2.21.0``; None if the tag names none.
        device: ``cpu`` or ``gpu``; ``cpu`` if the tag names neither.
        py_version: E.g. ``py311``; None if the tag names no Python.
        is_of_aws: Whether it is one of AWS's TensorFlow images, or no image is named. What another image contains is
            unknown.
        other: The framework or algorithm of an image without TensorFlow; empty if the name tells none.
    """

    repository: str
    framework_version: str | None
    device: str
    py_version: str | None
    is_of_aws: bool = True
    other: str = ""

    @property
    def tensorflow_version(self) -> str | None:
        """The version, if the name says that it is one of TensorFlow."""
        return self.framework_version if "tensorflow" in self.repository else None

    @property
    def serves_python_handlers(self) -> bool:
        """Whether an endpoint with this image runs Python handlers; all other images run TensorFlow Serving's kind."""
        return self.repository == LEGACY_REPOSITORY


def parse_image(uri: str) -> Image:
    """Parse an image URI.

    Example:
        >>> parse_image("000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311")
        Image(repository='tensorflow-training', framework_version='2.21.0', device='cpu', py_version='py311', \
is_of_aws=True, other='')
    """
    name, _, tag = _split(uri)
    words = tag.split("-")
    python = next((word for word in words if _PYTHON.fullmatch(word)), None)
    device = "gpu" if "gpu" in words else "cpu"
    base = _BASE_PYTHON.fullmatch(name)
    if base:
        return Image(name, None, device, f"py{base[1]}", is_of_aws=False)
    if "tensorflow" in name:
        version = words[0] if _VERSION.fullmatch(words[0]) else None
        return Image(name, version, device, python, is_of_aws=_OF_AWS.fullmatch(name) is not None)
    version = next((match[1] for word in words if (match := _VERSION_OF_OWN.fullmatch(word))), None)
    return Image(name, version, device, python, is_of_aws=not uri, other=_other_framework(uri, name))


def _other_framework(uri: str, name: str) -> str:
    if name in _BUILT_IN and ".dkr.ecr." in uri:
        return f"SageMaker's built-in algorithm {name}"
    return next((_OTHER_FRAMEWORKS[word] for word in _WORDS.split(name.lower()) if word in _OTHER_FRAMEWORKS), "")


def training_image(version: str, py_version: str, region: str = DEFAULT_REGION, *, device: str = "cpu") -> str:
    """Return the URI of the image that trains with TensorFlow ``version``; ``2.21`` means ``2.21.0``.

    Args:
        version: ``2.21`` or ``2.21.0``.
        py_version: For example ``py311``.
        region: AWS region of the registry.
        device: ``cpu`` or ``gpu``.
    """
    return f"{_registry(region)}/tensorflow-training:{_full(version)}-{device}-{py_version}"


def scikit_learn_image(version: str, region: str = DEFAULT_REGION) -> str:
    """Return the URI of the image with scikit-learn ``version``, e.g. ``1.2-1``.

    Args:
        version: Version of scikit-learn, which may have a number of the image.
        region: AWS region of the registry.
    """
    return f"{_registry(region)}/sagemaker-scikit-learn:{version}-cpu-py3"


def inference_image(version: str, region: str = DEFAULT_REGION, *, device: str = "cpu") -> str:
    """Return the URI of the image whose endpoint has TensorFlow Serving's REST API.

    Args:
        version: ``2.21`` or ``2.21.0``.
        region: AWS region of the registry.
        device: ``cpu`` or ``gpu``.
    """
    return f"{_registry(region)}/tensorflow-inference:{_full(version)}-{device}"


def python_inference_image(version: str, py_version: str, region: str = DEFAULT_REGION, *, device: str = "cpu") -> str:
    """Return the URI of the image whose endpoint calls ``input_fn``, ``output_fn`` or ``transform_fn`` of a script.

    Args:
        version: ``2.21`` or ``2.21.0``.
        py_version: For example ``py311``.
        region: AWS region of the registry.
        device: ``cpu`` or ``gpu``.
    """
    return f"{_registry(region)}/{LEGACY_REPOSITORY}:{_full(version)}-{device}-{py_version}"


def device_of(instance_type: str) -> str:
    """Return ``gpu`` for instance families with a GPU, else ``cpu``: the rule by which AWS's clients choose a tag.

    Args:
        instance_type: For example ``ml.p3.2xlarge``.
    """
    return "gpu" if _GPU_INSTANCE.fullmatch(instance_type) else "cpu"


def _registry(region: str) -> str:
    return f"{ACCOUNT_ID}.dkr.ecr.{region}.amazonaws.com"


def _full(version: str) -> str:
    if not _VERSION.fullmatch(version):
        raise ValueError(f"framework_version {version!r} is not a version; expected numbers and dots, e.g. '2.21'")
    return version if version.count(".") >= 2 else f"{version}.0"


def _split(uri: str) -> tuple[str, str, str]:
    """Return repository, separator and tag. A registry may have a port, so only the last path segment is searched."""
    name = uri.partition("@")[0]
    return name.rpartition("/")[2].partition(":")
