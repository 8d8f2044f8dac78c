"""Put the in-job distributions into tidemill's own wheel, as wheels (`tidemill/executors/payload/*.whl`).

Environments of jobs are made by an installed tidemill, which may have no checkout beside it and no registry that knows
the in-job distributions. A source distribution carries their sources below ``payload-src/`` for the same reason.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

IN_JOB = ("tidemill-runtime", "tidemill-serving", "tidemill-pipemode")


class PayloadHook(BuildHookInterface):
    """Builds the sibling packages with hatchling, in the interpreter of the build itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the payload to what is built. An editable install has none: it sees the checkout."""
        if version == "editable":
            return
        sources = {name: self._source(name) for name in IN_JOB}
        if self.target_name == "sdist":
            build_data["force_include"].update({str(path): f"payload-src/{name}" for name, path in sources.items()})
            return
        self._directory = tempfile.TemporaryDirectory(prefix="tidemill-payload-")
        for source in sources.values():
            self._build(source, Path(self._directory.name))
        wheels = sorted(Path(self._directory.name).glob("*.whl"))
        for wheel in wheels:
            build_data["force_include"][str(wheel)] = f"tidemill/executors/payload/{wheel.name}"
        # A native library in the payload ties the whole to its platform.
        for platform in {wheel.stem.rpartition("-")[2] for wheel in wheels} - {"any"}:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary wheels."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _source(self, name: str) -> Path:
        root = Path(self.root)
        for candidate in (root.parent / name, root / "payload-src" / name):
            if (candidate / "pyproject.toml").is_file():
                return candidate
        raise FileNotFoundError(
            f"the in-job distribution {name} lies neither in {root.parent / name} nor in {root / 'payload-src' / name};"
            " build tidemill from a complete checkout or from its source distribution"
        )

    def _build(self, source: Path, target: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        # The isolated build environment is on this interpreter's path, not always in its prefix.
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        result = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"building {source.name} failed: {result.stderr.strip() or result.stdout.strip()}")
