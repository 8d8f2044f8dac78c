"""Find the user code in a model archive, and the Python and packages to run it with."""

import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill_serving.errors import StartFailed
from tidemill_serving.handlers.wire import PYTHON, TENSORFLOW_SERVING

ENVIRONMENT_VARIABLE = "TIDEMILL_ENVIRONMENT"
"""Prefix of the virtual environment of the user's code."""
OVERLAY_VARIABLE = "TIDEMILL_OVERLAY"
"""Set if the packages of the code's requirements.txt are installed in that environment, or below it."""
INFERENCE_SCRIPT = "inference.py"
_PROGRAM = "SAGEMAKER_PROGRAM"
_REQUIREMENTS = "SAGEMAKER_REQUIREMENTS"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCode:
    """The user's module and the environment that it runs in.

    Attributes:
        kind: Kind of endpoint, as in `WorkerSetup`.
        script: The user's module; None for a ``python`` endpoint without a script.
        paths: Directories to put at the front of ``sys.path``.
        requirements: A requirements.txt to install, or None.
        python: Path of the workers' interpreter.
    """

    kind: str
    script: Path | None
    paths: tuple[Path, ...]
    requirements: Path | None = None
    python: str = sys.executable


def locate_code(
    kind: str, model_dir: Path, code_dir: Path, environment: Mapping[str, str], *, note: Callable[[str], None]
) -> UserCode | None:
    """Find the code of an endpoint; return None if it answers without user code.

    Args:
        model_dir: Directory of the unpacked archive.
        code_dir: Directory of the submitted code of a Python-based endpoint.
        environment: As for `find_python_code`.
        note: Writes a warning to the log.

    Raises:
        StartFailed: A named file does not exist.
    """
    if kind == PYTHON:
        return find_python_code(code_dir, environment)
    return find_inference_code(model_dir / "code", note=note)


def find_inference_code(directory: Path, *, note: Callable[[str], None]) -> UserCode | None:
    """Find the code of a TensorFlow-Serving-based endpoint.

    Args:
        directory: ``code`` of the archive.
        note: Writes a warning to the log.

    Returns:
        The code, or None if there is no ``inference.py``: the server then answers without user code.
    """
    script = directory / INFERENCE_SCRIPT
    if not script.is_file():
        return None
    library, requirements = directory / "lib", directory / "requirements.txt"
    found: Path | None = requirements if requirements.is_file() else None
    paths: tuple[Path, ...] = (directory,)
    if library.is_dir():
        paths = (directory, library)
        if found is not None:
            note(f"handler.requirements_ignored file={requirements} reason=code/lib has the packages")
            found = None
    return UserCode(kind=TENSORFLOW_SERVING, script=script, paths=paths, requirements=found)


def find_python_code(directory: Path, environment: Mapping[str, str]) -> UserCode:
    """Find the script of a Python-based endpoint; an endpoint without a script is valid.

    Args:
        directory: Directory of the unpacked user code.
        environment: ``SAGEMAKER_PROGRAM`` names the script; ``SAGEMAKER_REQUIREMENTS`` names a requirements.txt if it
            is not the one beside the script.

    Raises:
        StartFailed: A named file does not exist.
    """
    named = environment.get(_PROGRAM, "")
    script = _inside(directory, named, variable=_PROGRAM) if named else None
    wanted = environment.get(_REQUIREMENTS, "")
    requirements = _inside(directory, wanted, variable=_REQUIREMENTS) if wanted else directory / "requirements.txt"
    paths = (directory, directory / "lib") if (directory / "lib").is_dir() else (directory,)
    return UserCode(
        kind=PYTHON, script=script, paths=paths, requirements=requirements if requirements.is_file() else None
    )


def _inside(directory: Path, name: str, *, variable: str) -> Path:
    file = directory / name
    if ".." in file.parts or not file.is_relative_to(directory) or not file.is_file():
        listed = ", ".join(sorted(each.name for each in directory.iterdir())[:20]) if directory.is_dir() else "nothing"
        raise StartFailed(f"{variable}={name!r} names no file of the submitted code; it holds: {listed or 'nothing'}")
    return file


def python_of(environment: Mapping[str, str]) -> str:
    """Return the workers' interpreter: that of the environment for the user's code, if any, or this process's.

    Args:
        environment: Variables of the server's process.

    Returns:
        Path of the interpreter.
    """
    prefix = environment.get(ENVIRONMENT_VARIABLE)
    return f"{prefix}/bin/python" if prefix else sys.executable


def required_packages(code: UserCode) -> Path | None:
    """Return the requirements.txt of the code if it names any packages.

    Args:
        code: The submitted code.

    Returns:
        None without a file, or if it has only comments.
    """
    return code.requirements if code.requirements is not None and names_packages(code.requirements) else None


def with_packages(code: UserCode, environment: Mapping[str, str]) -> UserCode:
    """Return the code with an interpreter that has its packages.

    Args:
        code: The code that was found.
        environment: Environment variables of the server. If `OVERLAY_VARIABLE` is among them, the starter of the server
            has installed the packages. If not, they are installed here.

    Raises:
        StartFailed: The packages cannot be installed; pip's output is in the log.
    """
    requirements = required_packages(code)
    if requirements is None or environment.get(OVERLAY_VARIABLE):
        return replace(code, python=python_of(environment))
    return replace(code, python=install_packages([requirements]))


def install_packages(files: Sequence[Path]) -> str:
    """Install packages into a new environment above the server's; return its interpreter.

    Args:
        files: Each a requirements.txt. A later one may replace packages of an earlier one.

    Raises:
        StartFailed: The packages cannot be installed; pip's output is in the log.
    """
    prefix = _new_environment()
    python = f"{prefix}/bin/python"
    command = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "-r"]
    for file in files:
        try:
            subprocess.run([*command, str(file)], check=True)  # its output goes to the log
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(prefix, ignore_errors=True)
            raise StartFailed(
                f"the packages of {file} could not be installed: {error}; see the lines above, or ship the packages in"
                " code/lib"
            ) from error
    return python


def _new_environment() -> Path:
    """Create a virtual environment above the one of this process, and return its directory."""
    prefix = Path(tempfile.mkdtemp(prefix="tidemill-packages-"))
    venv.EnvBuilder(symlinks=True, with_pip=False).create(prefix)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(prefix), "platbase": str(prefix)}))
    # addsitedir, not a bare path: the .pth files of the environment below must work as well.
    lines = [f"import site; site.addsitedir({directory!r})\n" for directory in site.getsitepackages()]
    (packages / "tidemill-base.pth").write_text("".join(lines))
    return prefix


def names_packages(file: Path) -> bool:
    """Return whether a requirements.txt exists and names any packages.

    Args:
        file: Path of a requirements.txt; it need not exist.
    """
    if not file.is_file():
        return False
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(line.split("#")[0].strip() for line in lines)
