"""The error tree of the runtime.

    RuntimeFailure                  everything that ends a job before or instead of its script
    ├── ConfigurationError          what the platform handed over cannot be used
    ├── EntryPointNotFound          the entry point is not a file of the submitted code
    ├── InstallModuleError          pip could not install the submitted package
    ├── InstallRequirementsError    pip could not install requirements.txt
    ├── InvalidArchive              an archive is broken, too big, or reaches out of its directory
    └── LaunchError                 the operating system refused to start the script

The class name is the first word of ``output/failure``, so it is part of what users see.
"""

from __future__ import annotations

__all__ = [
    "ConfigurationError",
    "EntryPointNotFound",
    "InstallModuleError",
    "InstallRequirementsError",
    "InvalidArchive",
    "LaunchError",
    "RuntimeFailure",
]


class RuntimeFailure(Exception):
    """Root of every error that the runtime raises on purpose."""


class ConfigurationError(RuntimeFailure):
    """Configuration files, variables or hyperparameters cannot be used as they are."""


class EntryPointNotFound(RuntimeFailure):
    """The entry point is not a file of the submitted code."""


class InstallRequirementsError(RuntimeFailure):
    """pip could not install the packages of requirements.txt.

    Args:
        message: What pip said last.
        exit_code: Exit status of pip.
        command: The pip command line.
    """

    def __init__(self, message: str, *, exit_code: int, command: tuple[str, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.command = command


class InstallModuleError(InstallRequirementsError):
    """pip could not install the submitted code itself, which has a setup.py."""


class InvalidArchive(RuntimeFailure):
    """An archive is broken, too big, or has a member that reaches out of its directory."""


class LaunchError(RuntimeFailure):
    """The operating system refused to start the script."""
