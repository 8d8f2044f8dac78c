"""A small virtual environment on top of the environment of this interpreter, which stays read-only.

An overlay puts its own site-packages before those of the base environment. pip in the overlay therefore sees the base
packages as installed, and installs only missing or different packages into the overlay.
"""

from __future__ import annotations

import site
import sys
import sysconfig
import venv
from pathlib import Path

__all__ = ["create_overlay", "interpreter"]

LINK_NAME = "tidemill-base.pth"


def interpreter(prefix: str | Path) -> str:
    """Return the Python of an environment."""
    return str(Path(prefix) / "bin" / "python")


def create_overlay(overlay: Path) -> None:
    """Create an empty overlay; an existing one is not changed.

    Raises:
        OSError: The directory cannot be written.
    """
    if (overlay / "pyvenv.cfg").exists() and _link(overlay).exists():
        return
    venv.EnvBuilder(symlinks=True, with_pip=False).create(overlay)
    # addsitedir, not a bare path: the base environment's own .pth files must work as well.
    lines = [f"import site; site.addsitedir({directory!r})" for directory in _base_directories()]
    _link(overlay).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _link(overlay: Path) -> Path:
    tag = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return overlay / "lib" / tag / "site-packages" / LINK_NAME


def _base_directories() -> list[str]:
    """Return the package directories of the running environment, in the order of its sys.path."""
    paths = sysconfig.get_paths()
    found = [*site.getsitepackages([sys.prefix]), paths["purelib"], paths["platlib"]]
    return list(dict.fromkeys(str(Path(directory).absolute()) for directory in found if Path(directory).is_dir()))
