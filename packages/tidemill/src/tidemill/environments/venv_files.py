"""The few files of a virtual environment above another one, written in less than a millisecond.

Packages of the upper environment come first; a ``.pth`` file adds those below, so that pip installs only missing or
different packages. `venv` and uv would take longer than a job needs to start.
"""

from pathlib import Path

from tidemill.environments.interpreters import FoundInterpreter
from tidemill.environments.layers import site_packages

# pip's own command would install into the environment of its interpreter. Not Python with "#!": the kernel limits
# that line to 255 bytes.
PIP = '#!/bin/sh\nexec "${0%/*}/python" -m pip "$@"\n'
"""The command ``pip`` of a virtual environment."""


def write_venv(prefix: Path, interpreter: FoundInterpreter, *, below: Path) -> None:
    """Create an empty virtual environment with ``python`` and ``pip``.

    Args:
        prefix: Its directory, which must be missing or empty; it may be moved.
        interpreter: The Python of the environment below.
        below: Package directory of the environment below.

    Raises:
        OSError: The directory cannot be written.
    """
    packages, commands, minor = site_packages(prefix, interpreter.minor), prefix / "bin", interpreter.minor
    packages.mkdir(parents=True)
    commands.mkdir()
    # addsitedir, not a bare path: the .pth files of the environment below must work as well.
    (packages / "tidemill-base.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
    for name in ("python", "python3", f"python{minor}"):
        (commands / name).symlink_to(interpreter.executable)
    for name in ("pip", "pip3", f"pip{minor}"):
        (commands / name).write_text(PIP)
        (commands / name).chmod(0o755)
    # Last: without it, the directory is no environment.
    home, version = interpreter.executable.parent, interpreter.version
    (prefix / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\nversion = {version}\n")
