"""The distributions that tidemill itself puts into every environment of a job.

An installed tidemill carries them as wheels (`hatch_build.py` puts them there). In a source checkout they lie beside
this package, and environments see the checkout: a change there is in force at once.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import EnvironmentBuildError

__all__ = ["DISTRIBUTIONS", "Payload"]

DISTRIBUTIONS = ("tidemill-runtime", "tidemill-serving", "tidemill-pipemode")

_WHEELS = Path(__file__).parent / "payload"
_PACKAGES = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class Payload:
    """Where the in-job distributions come from: either wheels or source directories, never both.

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
