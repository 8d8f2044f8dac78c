"""The distributions that tidemill itself puts into every environment of a job.

An installed tidemill carries them as wheels (`hatch_build.py` puts them there). In a source checkout they are beside
this package, and environments refer to the checkout: a change takes effect at once.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core.frameworks import Framework
from tidemill.core.images import DEFAULT_TENSORFLOW
from tidemill.errors import EnvironmentBuildError

__all__ = ["DISTRIBUTIONS", "Payload"]

DISTRIBUTIONS = (
    "tidemill-runtime",
    "tidemill-serving",
    "tidemill-pipemode",
    "tidemill-smp",
    "tidemill-horovod",
    "tidemill-tensorflow",
)

_EVERYWHERE = ("tidemill-runtime", "tidemill-pipemode")
_WITH_MODEL_PARALLELISM = ("tidemill-smp", "tidemill-horovod")
_OF_ENDPOINTS = ("tidemill-serving",)
_FROM_2_12 = ("tidemill-tensorflow",)

_WHEELS = Path(__file__).parent / "payload"
_PACKAGES = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class Payload:
    """Source of the in-job distributions: either wheels or source directories, never both.

    Attributes:
        wheels: Files to install.
        sources: Directories to put on the path.
        identity: Changes whenever an environment has to be built anew.
    """

    wheels: tuple[Path, ...]
    sources: tuple[Path, ...]
    identity: str

    @classmethod
    def find(cls, *, wheels: Path = _WHEELS, packages: Path = _PACKAGES) -> "Payload":
        """The payload of this installation.

        Raises:
            EnvironmentBuildError: There is neither a wheel nor a source directory for one of the distributions.
        """
        files = tuple(sorted(wheels.glob("*.whl")))
        if files:
            digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
            return cls(files, (), f"wheels {' '.join(digests)}")
        sources = tuple(packages / name / "src" for name in DISTRIBUTIONS)
        for source in sources:
            if not source.is_dir():
                raise EnvironmentBuildError(
                    f"tidemill is installed without its in-job distributions: {wheels} holds no wheel and {source} is"
                    " not a directory; reinstall tidemill from a wheel or from a complete checkout"
                )
        return cls((), sources, f"checkout {' '.join(map(str, sources))}")

    def of(self, framework: Framework) -> "Payload":
        """Return the part of the payload that goes into the environment of a version; the identity stays.

        The runtime and Pipe mode run everywhere. Model parallelism and Horovod need today's TensorFlow, the file system
        of S3 one from 2.12 on, and the model server packages that only the lock of `DEFAULT_TENSORFLOW` names.
        """
        names = set(_EVERYWHERE)
        if framework.has_model_parallelism:
            names.update(_WITH_MODEL_PARALLELISM)
        if framework.number >= (2, 12):
            names.update(_FROM_2_12)
        if framework.version == DEFAULT_TENSORFLOW:
            names.update(_OF_ENDPOINTS)
        wheels = tuple(wheel for wheel in self.wheels if wheel.name.partition("-")[0].replace("_", "-") in names)
        foreign = set(DISTRIBUTIONS) - names
        return replace(self, wheels=wheels, sources=tuple(s for s in self.sources if s.parent.name not in foreign))
