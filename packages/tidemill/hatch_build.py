"""Renew the copies of shared source, and put the in-job distributions into tidemill's own wheel, as wheels.

The wheels are `tidemill/environments/payload/*.whl`: environments of jobs are made by an installed tidemill, which may
have no checkout beside it and no registry that knows the in-job distributions. A source distribution carries their
sources below ``payload-src/`` for the same reason. The examples are in both, for `tidemill examples get`. So is the
page that browsers see: it is built here in a checkout with Node.js, and a source distribution has the built files.
With `TIDEMILL_REQUIRE_PAGE` in the environment, a page that is not built is an error.
"""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([])

PACKAGE = ROOT / "src" / "tidemill"
sys.path.insert(0, str(PACKAGE))  # imports what is shared without the package, whose dependencies a build does not have
from _shared.native_build import compiling, wheel  # noqa: E402

sys.path.remove(str(PACKAGE))

IN_JOB = (
    "tidemill-runtime",
    "tidemill-serving",
    "tidemill-pipemode",
    "tidemill-smp",
    "tidemill-horovod",
    "tidemill-tensorflow",
)

PARTS = ("README.md", "hatch_build.py", "pyproject.toml", "src")
"""What a distribution is built from; its tests stay in the checkout."""


class PayloadHook(wheel.NativeLibraryHook):
    """Builds the sibling packages with hatchling, in the interpreter of the build itself, and the feeder's library."""

    libraries = (compiling.NativeSources("feeder", PACKAGE / "shim/feeder/native"),)

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library and the payload. An editable install has none: it sees the checkout."""
        if version == "editable":
            return
        super().initialize(version, build_data)
        self._build_page()
        sources = {name: self._source(name) for name in IN_JOB}
        examples = self._examples()
        into = "payload-src/examples" if self.target_name == "sdist" else "tidemill/examples"
        for file in examples.glob("*/*.py"):
            build_data["force_include"][str(file)] = f"{into}/{file.relative_to(examples)}"
        if self.target_name == "sdist":
            for name, path in sources.items():
                parts = [path / part for part in PARTS if (path / part).exists()]
                build_data["force_include"].update({str(part): f"payload-src/{name}/{part.name}" for part in parts})
            return
        self._payload = tempfile.TemporaryDirectory(prefix="tidemill-payload-")
        for source in sources.values():
            self._build(source, Path(self._payload.name))
        wheels = sorted(Path(self._payload.name).glob("*.whl"))
        for path in wheels:
            build_data["force_include"][str(path)] = f"tidemill/environments/payload/{path.name}"
        # Native libraries tie the whole to their platform: to the newest C library that one of them needs.
        tags = [path.stem for path in wheels] + [build_data.get("tag", "any")]
        platforms = {tag.rpartition("-")[2] for tag in tags} - {"any"}
        if platforms:
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{max(platforms, key=_numbers)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary files."""
        super().finalize(version, build_data, artifact_path)
        if hasattr(self, "_payload"):
            self._payload.cleanup()

    def _build_page(self) -> None:
        root = Path(self.root)
        checkout, make = root.parents[1], shutil.which("make")
        if make is not None and (checkout / "Makefile").is_file() and (root / "page/package.json").is_file():
            subprocess.run([make, "--no-print-directory", "-C", checkout, "page-where-node"], check=True)
        if os.environ.get("TIDEMILL_REQUIRE_PAGE") and not (root / "src/tidemill/page/index.html").is_file():
            raise RuntimeError("the page is not built: it needs Node.js 20.19 or later, with npm (make page)")

    def _source(self, name: str) -> Path:
        root = Path(self.root)
        for candidate in (root.parent / name, root / "payload-src" / name):
            if (candidate / "pyproject.toml").is_file():
                return candidate
        raise FileNotFoundError(
            f"the in-job distribution {name} lies neither in {root.parent / name} nor in {root / 'payload-src' / name};"
            " build tidemill from a complete checkout or from its source distribution"
        )

    def _examples(self) -> Path:
        root = Path(self.root)
        in_checkout = root.parents[1] / "examples"
        return in_checkout if in_checkout.is_dir() else root / "payload-src" / "examples"

    def _build(self, source: Path, target: Path) -> None:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
        # The isolated build environment is on this interpreter's path, not always in its prefix.
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        result = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"building {source.name} failed: {result.stderr.strip() or result.stdout.strip()}")


def _numbers(platform: str) -> list[int]:
    """Those of ``manylinux_2_17_x86_64``; those of a plain ``linux_x86_64``, which promises nothing, are larger."""
    return [int(number) for number in re.findall(r"\d+", platform)]
