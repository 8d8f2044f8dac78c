"""Build the layers of an environment: those from a lock file, and the in-job distributions above them.

All layers are virtual environments that uv creates and fills. Jobs start in the upper layer. Its packages come first;
a ``.pth`` file adds the packages of the base. The commands of the base are linked into the upper layer. Of the AWS CLI,
which has a base of its own, the upper layer has the command only.
"""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidemill.environments.interpreters import FoundInterpreter
from tidemill.environments.payload import RuntimeSource
from tidemill.environments.progress import BuildProgress
from tidemill.environments.uv_command import BuildWatch, find_uv, run_command
from tidemill.errors import EnvironmentBuildError

# A .pth line must be one line that begins with "import"; without the guard a missing module would print a traceback
# at every start of the interpreter.
_STARTUP = "".join(
    f'import sys; exec("try:\\n import {module}\\nexcept ImportError:\\n pass")\n'
    for module in ("tidemill_runtime.startup", "tidemill_tensorflow.startup")
)


# Isolated (-I), because PYTHONPATH and the working directory have modules of the script.
_AWS = '#!/bin/sh\nexec {prefix}/bin/python -I {prefix}/bin/aws "$@"\n'


def site_packages(prefix: Path, minor: str) -> Path:
    """Return the package directory of a virtual environment of Python ``minor``, e.g. ``3.11``.

    Args:
        minor: For example ``3.11``.
    """
    return prefix / "lib" / f"python{minor}" / "site-packages"


def build_base(
    prefix: Path,
    lock: Path,
    interpreter: FoundInterpreter,
    *,
    name: str,
    watch: BuildWatch,
    lock_fd: int,
    use_cache: bool = True,
) -> None:
    """Install the packages of a lock file, compile them to bytecode, and show the progress.

    Args:
        prefix: Directory of the virtual environment; must not exist.
        interpreter: The Python of the environment.
        name: Name of the environment in progress lines.
        lock_fd: File descriptor of the build lock, which uv keeps open.
        use_cache: Whether to link files of uv's cache. Default: true.

    Raises:
        EnvironmentBuildError: uv failed; the message names the lock file.
    """
    progress = BuildProgress(name, prefix=prefix, log=watch.log)

    def look() -> None:
        watch.poll()
        progress.poll()

    run = partial(run_command, cwd=prefix.parent, inherit=(lock_fd,))
    _make_venv(prefix, interpreter, run=partial(run, log=watch.log, poll=watch.poll))
    install = (find_uv(), "pip", "install", "--python", str(_python(prefix)), "--compile-bytecode")
    command = (*install, *(() if use_cache else ("--no-cache",)), "--require-hashes", "-r", str(lock))
    try:
        run(command, log=progress.line, poll=look, started=progress.started)
    except EnvironmentBuildError as error:  # uv does not name the file if a hash is damaged
        raise EnvironmentBuildError(f"the packages of {lock} cannot be installed: {error}") from error


def build_upper(
    prefix: Path,
    base: Path,
    payload: RuntimeSource,
    interpreter: FoundInterpreter,
    *,
    aws_cli: Path | None,
    watch: BuildWatch,
    lock_fd: int,
) -> None:
    """Install the in-job distributions above a base.

    Args:
        prefix: Directory of the virtual environment; must not exist.
        base: Directory of the complete base.
        interpreter: The Python of the base.
        aws_cli: Directory of the complete layer with the AWS CLI; None installs no ``aws``.
        lock_fd: File descriptor of the build lock, which uv keeps open.

    Raises:
        EnvironmentBuildError: uv failed.
    """
    run = partial(run_command, log=watch.log, poll=watch.poll, cwd=prefix.parent, inherit=(lock_fd,))
    _make_venv(prefix, interpreter, run=run)
    packages = site_packages(prefix, interpreter.minor)
    if payload.wheels:
        install = (find_uv(), "pip", "install", "--quiet", "--python", str(_python(prefix)), "--compile-bytecode")
        run((*install, "--no-deps", "--no-index", *map(str, payload.wheels)))
    else:
        (packages / "tidemill-checkout.pth").write_text("".join(f"{source}\n" for source in payload.sources))
    (packages / "tidemill.pth").write_text(_STARTUP)
    # addsitedir, not a bare path: the .pth files of packages in the base must work as well.
    below = str(site_packages(base, interpreter.minor))
    (packages / "tidemill-base.pth").write_text(f"import site; site.addsitedir({below!r})\n")
    if aws_cli:
        (prefix / "bin/aws").write_text(_AWS.format(prefix=shlex.quote(str(aws_cli))))
        (prefix / "bin/aws").chmod(0o755)
    for command in sorted((base / "bin").iterdir()):
        link = prefix / "bin" / command.name
        if not link.exists():
            link.symlink_to(command)


def _make_venv(prefix: Path, interpreter: FoundInterpreter, *, run: Callable[..., None]) -> None:
    """Create an empty virtual environment. Its Python links directly to the installation, which sandboxes show."""
    base = interpreter.executable
    run((find_uv(), "venv", "--quiet", "--no-project", "--python", str(base), str(prefix)))
    python = _python(prefix)
    if python.readlink() != base:
        python.unlink()
        python.symlink_to(base)


def _python(prefix: Path) -> Path:
    return prefix / "bin" / "python"
