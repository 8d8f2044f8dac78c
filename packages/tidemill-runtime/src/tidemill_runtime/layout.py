"""The paths below /opt/ml, or below the directory that SAGEMAKER_BASE_DIR names instead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Layout:
    """The directories and files of one job.

    Attributes:
        base: ``/opt/ml`` or its replacement.
    """

    base: Path

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Layout:
        """Return the layout for the container's variables.

        Raises:
            ConfigurationError: There is no such directory.
        """
        base = Path(variables.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
        if not base.is_dir():
            raise ConfigurationError(
                f"no directory {base}: a job needs /opt/ml, or SAGEMAKER_BASE_DIR set to the directory that replaces it"
            )
        return cls(base)

    @property
    def code(self) -> Path:
        """User code, and the working directory of the script."""
        return self.base / "code"

    @property
    def model(self) -> Path:
        """Content of model.tar.gz."""
        return self.base / "model"

    @property
    def input(self) -> Path:
        """Configuration and channels."""
        return self.base / "input"

    @property
    def config(self) -> Path:
        """The platform's JSON files."""
        return self.base / "config" if self.is_processing else self.input / "config"

    @property
    def is_processing(self) -> bool:
        """Whether the job is a processing job, which gets inputs and outputs below ``processing``."""
        return (self.base / "config" / "processingjobconfig.json").is_file()

    @property
    def output(self) -> Path:
        """Failure report, and content of output.tar.gz."""
        return self.base / "output"

    @property
    def output_data(self) -> Path:
        """Content of output.tar.gz."""
        return self.output / "data"

    @property
    def output_intermediate(self) -> Path:
        """Files that are uploaded while the job runs."""
        return self.output / "intermediate"

    @property
    def failure(self) -> Path:
        """The report of a failure."""
        return self.output / "failure"

    @property
    def success(self) -> Path:
        """Empty file: the script exited with status 0."""
        return self.output / "success"

    @property
    def private(self) -> Path:
        """Files that shim and runtime exchange."""
        return self.base / ".tidemill"

    @property
    def submitted_code(self) -> Path:
        """The archive that the client uploaded."""
        return self.private / "sourcedir.tar.gz"

    @property
    def reports(self) -> Path:
        """Reports of uncaught exceptions, ``PID.json``."""
        return self.private / "reports"

    @property
    def peers(self) -> Path:
        """Addresses and secret of the job's instances, if they run on several machines."""
        return self.private / "peers.json"

    def channel(self, name: str) -> Path:
        """Return the directory of an input channel; in Pipe mode the first part of the paths of its FIFOs."""
        return self.input / "data" / name

    def create(self) -> None:
        """Create the directories that a script may rely on."""
        for directory in (self.code, self.model, self.output_data, self.reports):
            directory.mkdir(parents=True, exist_ok=True)
