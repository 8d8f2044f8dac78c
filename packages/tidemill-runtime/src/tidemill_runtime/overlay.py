"""A small virtual environment on top of the one this interpreter runs in, which stays read-only.

An overlay has its own site-packages before those of the base environment, so pip in it sees the base packages as
installed and puts only what is missing or different into the overlay.
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
    """The Python of an environment."""
    return str(Path(prefix) / "bin" / "python")


def create_overlay(overlay: Path) -> None:
    """Make an empty overlay; one that is there already is left as it is.

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
    """Directories of packages of the running environment, in the order of its sys.path."""
    paths = sysconfig.get_paths()
    found = [*site.getsitepackages([sys.prefix]), paths["purelib"], paths["platlib"]]
    return list(dict.fromkeys(str(Path(directory).absolute()) for directory in found if Path(directory).is_dir()))
