"""The error tree of the runtime.

    RuntimeFailure                  any error that ends a job before or instead of its script
    ├── ConfigurationError          the input from the platform cannot be used
    ├── EntryPointNotFound          the entry point is not a file of the submitted code
    ├── InstallModuleError          pip could not install the submitted package
    ├── InstallRequirementsError    pip could not install requirements.txt
    ├── InvalidArchive              an archive is broken, too large, or has a member outside its directory
    └── LaunchError                 the operating system refused to start the script

The class name is the first word of ``output/failure``, so users see it.
"""

from __future__ import annotations


class RuntimeFailure(Exception):
    """Base class of all errors that the runtime raises deliberately."""


class ConfigurationError(RuntimeFailure):
    """Configuration files, variables or hyperparameters are invalid."""


class EntryPointNotFound(RuntimeFailure):
    """The entry point is not a file of the submitted code."""


class InstallRequirementsError(RuntimeFailure):
    """pip could not install the packages of requirements.txt.

    Args:
        message: The last lines of pip's output.
        exit_code: Exit status of pip.
        command: The pip command line.
    """

    def __init__(self, message: str, *, exit_code: int, command: tuple[str, ...]) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.command = command


class InstallModuleError(InstallRequirementsError):
    """pip could not install the submitted code, which has a setup.py."""


class InvalidArchive(RuntimeFailure):
    """An archive is broken, too large, or has a member outside its directory."""


class LaunchError(RuntimeFailure):
    """The operating system refused to start the script."""
