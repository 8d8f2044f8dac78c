"""The in-job distributions, which tidemill adds to the environments of jobs.

An installed tidemill contains them as wheels, added by `hatch_build.py`. In a source checkout they are beside this
package, and environments refer to the checkout, so that changes take effect immediately.
"""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core.frameworks import Framework, runs_model_parallelism
from tidemill.core.images import DEFAULT_TENSORFLOW
from tidemill.errors import EnvironmentBuildError

DISTRIBUTIONS = (
    "tidemill-runtime",
    "tidemill-serving",
    "tidemill-pipemode",
    "tidemill-smp",
    "tidemill-horovod",
    "tidemill-tensorflow",
)

_EVERYWHERE = ("tidemill-runtime", "tidemill-pipemode")
_OF_ENDPOINTS = ("tidemill-serving",)
_FROM_2_6 = ("tidemill-tensorflow",)

_WHEELS = Path(__file__).parent / "payload"
_PACKAGES = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class RuntimeSource:
    """Source of the in-job distributions: either wheels or source directories, never both.

    Attributes:
        wheels: Wheel files to install.
        sources: Directories to add to the module search path.
        identity: Part of the environments' keys. If it changes, environments are built anew.
    """

    wheels: tuple[Path, ...]
    sources: tuple[Path, ...]
    identity: str

    @classmethod
    def find(cls, *, wheels: Path = _WHEELS, packages: Path = _PACKAGES) -> "RuntimeSource":
        """Return the payload of this installation.

        Args:
            wheels: Directory of the wheels of an installed tidemill.
            packages: Directory of the distributions of a source checkout.

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

    def of(self, framework: Framework, python: str) -> "RuntimeSource":
        """Return the part of the payload for the environment of a framework version, with the same identity.

        The runtime and Pipe mode run with all versions. Horovod needs TensorFlow, model parallelism a recent one,
        the S3 file system 2.6 or later, and the model server needs packages that only the lock of
        `DEFAULT_TENSORFLOW` has.

        Args:
            python: Major and minor version of the environment's Python.

        Returns:
            Fewer wheels or source directories.
        """
        names = set(_EVERYWHERE)
        if framework.has_mpi:
            names.add("tidemill-horovod")
        if framework.has_model_parallelism and runs_model_parallelism(python):
            names.add("tidemill-smp")
        if framework.family == "tf" and framework.number >= (2, 6):
            names.update(_FROM_2_6)
        if framework.environment == f"tf-{DEFAULT_TENSORFLOW}":
            names.update(_OF_ENDPOINTS)
        wheels = tuple(wheel for wheel in self.wheels if wheel.name.partition("-")[0].replace("_", "-") in names)
        omitted = set(DISTRIBUTIONS) - names
        return replace(self, wheels=wheels, sources=tuple(s for s in self.sources if s.parent.name not in omitted))
