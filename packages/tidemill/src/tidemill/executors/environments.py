"""Environments of jobs and endpoints: one virtual environment per lock file, built by uv on first use.

An environment is never changed once it is complete; what a job brings in its requirements goes into an overlay above
it (`overlays.py`). The key holds everything that went in, so that an upgrade builds anew instead of mending.
"""

import hashlib
import json
import platform
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import EnvironmentBuildError
from tidemill.executors.build_lock import Built
from tidemill.executors.overlays import Overlays
from tidemill.executors.payload import Payload
from tidemill.executors.uv_command import find_uv, run_command

__all__ = ["Environment", "EnvironmentChoice", "Environments", "choose"]

_LOCKS = Path(__file__).parent / "locks"
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")

# A .pth line must be one line that begins with "import"; without the guard a missing module would print a traceback
# at every start of the interpreter.
_STARTUP = 'import sys; exec("try:\\n import tidemill_runtime.startup\\nexcept ImportError:\\n pass")\n'


@dataclass(frozen=True, slots=True)
class EnvironmentChoice:
    """Which environment stands in for a requested TensorFlow version.

    Attributes:
        name: Name of the environment, e.g. ``tf-2.21``.
        notice: A line for the job's log where the version is not the one asked for.
    """

    name: str
    notice: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A complete environment.

    Attributes:
        name: E.g. ``tf-2.21``.
        key: Of everything that went in.
        prefix: The virtual environment.
        lock_sha256: Digest of the lock file, hexadecimal.
        read_only_paths: Everything that must be visible for it to work: itself, its Python, a checkout's sources.
    """

    name: str
    key: str
    prefix: Path
    lock_sha256: str
    read_only_paths: tuple[Path, ...]

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.prefix / "lib" / f"python{_minor()}" / "site-packages"


def choose(framework_version: str | None, *, locks: Path = _LOCKS) -> EnvironmentChoice:
    """The environment for a TensorFlow version: its own one, else the newest there is.

    Args:
        framework_version: ``major.minor`` with an optional patch number; None takes the newest without a word.
        locks: Directory of the lock files.
    """
    known = _known(locks)
    newest = max(known)
    match = _VERSION.fullmatch(framework_version or "")
    if match and (asked := (int(match[1]), int(match[2]))) in known:
        return EnvironmentChoice(known[asked], None)
    if framework_version is None:
        return EnvironmentChoice(known[newest], None)
    had = ", ".join(f"{major}.{minor}" for major, minor in sorted(known))
    notice = (
        f"tidemill: TensorFlow {framework_version} is not available here; running on {newest[0]}.{newest[1]} instead"
        f" (available: {had})"
    )
    return EnvironmentChoice(known[newest], notice)


class Environments:
    """The environments below one directory. Several services and shims may share it.

    Args:
        directory: Where environments are built; made when first needed.
        locks: Directory of the lock files.
        payload: The in-job distributions; found where not given.
    """

    def __init__(self, directory: Path, *, locks: Path = _LOCKS, payload: Payload | None = None) -> None:
        self._directory = directory
        self._locks = locks
        self._payload = payload

    def describe(self, name: str) -> Environment:
        """What the environment ``name`` is or will be, without building it.

        Raises:
            EnvironmentBuildError: There is no lock file of that name.
        """
        lock = self._locks / f"{name}.txt"
        if not lock.is_file():
            had = ", ".join(sorted(self._known_names()))
            raise EnvironmentBuildError(f"there is no environment named {name!r}; available are {had}")
        lock_sha256 = hashlib.sha256(lock.read_bytes()).hexdigest()
        payload = self._payload or Payload.find()
        parts = [lock_sha256, payload.identity, platform.python_version(), platform.machine(), str(_base_python())]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
        prefix = self._directory / f"{name}-{key}"
        return Environment(
            name=name,
            key=key,
            prefix=prefix,
            lock_sha256=lock_sha256,
            read_only_paths=(prefix, Path(sys.base_prefix).resolve(), *payload.sources),
        )

    def ensure(self, name: str, *, log: Callable[[str], None], poll: Callable[[], None] = lambda: None) -> Environment:
        """The environment ``name``, built if need be.

        Args:
            name: E.g. ``tf-2.21``.
            log: Is called with lines that tell of the build.
            poll: Is called several times a second meanwhile; what it raises ends the build.

        Raises:
            EnvironmentBuildError: uv failed; the text carries its last lines.
        """
        environment = self.describe(name)
        built = Built(environment.prefix)
        if built.marker:
            return environment
        with built.locked(
            poll=poll, waiting=lambda: log(f"tidemill: waiting for environment {name}, which is being built")
        ) as lock_fd:
            if not built.marker:
                log(f"tidemill: building environment {name} (first use)")
                started_s = time.monotonic()
                built.clear()
                try:
                    self._build(environment, log=log, poll=poll, lock_fd=lock_fd)
                except BaseException:
                    built.clear()
                    raise
                built.complete(
                    {
                        "name": name,
                        "key": environment.key,
                        "lock_sha256": environment.lock_sha256,
                        "python": sys.version,
                    }
                )
                log(f"tidemill: environment {name} is ready after {time.monotonic() - started_s:.0f} s")
        return environment

    def built(self) -> list[Environment]:
        """Every complete environment of the directory, also those of other versions of tidemill."""
        found = []
        for marker in sorted(self._directory.glob("*.json")):
            prefix = marker.with_name(marker.name.removesuffix(".json"))
            record = Built(prefix).marker
            if record and "lock_sha256" in record:
                found.append(
                    Environment(
                        name=record["name"],
                        key=record["key"],
                        prefix=prefix,
                        lock_sha256=record["lock_sha256"],
                        read_only_paths=(prefix,),
                    )
                )
        return found

    def remove(self, key: str) -> None:
        """Remove the environment ``key`` and the overlays above it. A job that runs in it will fail.

        Raises:
            EnvironmentBuildError: There is none with that key.
        """
        for environment in self.built():
            if environment.key == key:
                built = Built(environment.prefix)
                with built.locked(poll=lambda: None):
                    built.clear()
                Overlays(self._directory / "overlays").remove_above(key)
                return
        had = ", ".join(f"{each.key} ({each.name})" for each in self.built()) or "none"
        raise EnvironmentBuildError(f"there is no environment with key {key!r}; built are: {had}")

    def _build(
        self, environment: Environment, *, log: Callable[[str], None], poll: Callable[[], None], lock_fd: int
    ) -> None:
        uv = find_uv()
        payload = self._payload or Payload.find()

        def run(*arguments: str) -> None:
            run_command([uv, *arguments], log=log, poll=poll, cwd=self._directory, inherit=(lock_fd,))

        _make_venv(environment.prefix, run=run)
        python = str(environment.python)
        install = ("pip", "install", "--quiet", "--python", python, "--compile-bytecode")
        run(*install, "--require-hashes", "-r", str(self._locks / f"{environment.name}.txt"))
        if payload.wheels:
            run(*install, "--no-deps", "--no-index", *map(str, payload.wheels))
        else:
            lines = "".join(f"{source}\n" for source in payload.sources)
            (environment.site_packages / "tidemill-checkout.pth").write_text(lines)
        (environment.site_packages / "tidemill.pth").write_text(_STARTUP)

    def _known_names(self) -> list[str]:
        return [path.stem for path in self._locks.glob("*.txt")]


def _make_venv(prefix: Path, *, run: Callable[..., None]) -> None:
    """An empty virtual environment on this very Python, without links into places that a sandbox hides."""
    base = _base_python()
    run("venv", "--quiet", "--no-project", "--python", str(base), str(prefix))
    python = prefix / "bin" / "python"
    if python.readlink() != base:
        python.unlink()
        python.symlink_to(base)


def _base_python() -> Path:
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def _minor() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _known(locks: Path) -> dict[tuple[int, int], str]:
    known = {}
    for path in locks.glob("tf-*.txt"):
        match = _VERSION.fullmatch(path.stem.removeprefix("tf-"))
        if match:
            known[int(match[1]), int(match[2])] = path.stem
    return known
