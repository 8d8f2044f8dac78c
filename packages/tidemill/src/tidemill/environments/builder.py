"""Environments of jobs and endpoints, built by uv on first use, in two layers.

The base holds what a lock file names: gigabytes that change seldom, shared by every checkout and version of tidemill
with the same lock and Python. The environment itself is small: the in-job distributions, and a link to its base.
Neither is ever changed once it is complete; what a job brings in its requirements goes into an overlay above them
(`overlays.py`). The keys hold everything that went in, so that an upgrade builds anew instead of mending.
"""

import contextlib
import hashlib
import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.frameworks import ENVIRONMENTS, Framework
from tidemill.environments.build_lock import Built
from tidemill.environments.interpreters import Interpreter, available, fetch_interpreter, find_interpreter, preferred
from tidemill.environments.layers import build_base, build_upper, site_packages
from tidemill.environments.overlays import Overlays
from tidemill.environments.payload import Payload
from tidemill.errors import EnvironmentBuildError, MissingInterpreterError

__all__ = ["BuiltEnvironment", "Environment", "Environments"]

_LOCKS = Path(__file__).parent / "locks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A complete environment.

    Attributes:
        name: E.g. ``tf-2.21``.
        key: Of everything that went in.
        prefix: The virtual environment.
        lock_sha256: Digest of the lock file, hexadecimal.
        base: The virtual environment below it.
        interpreter: The Python that both are made of.
        read_only_paths: Everything that must be visible for it to work: both of them, their Python, a checkout's
            sources.
    """

    name: str
    key: str
    prefix: Path
    lock_sha256: str
    base: Path
    interpreter: Interpreter
    read_only_paths: tuple[Path, ...]

    @property
    def python(self) -> Path:
        return self.prefix / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return site_packages(self.prefix, self.interpreter.minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEnvironment:
    """A complete environment of an environments directory, of this version of tidemill or another.

    Attributes:
        name: E.g. ``tf-2.21``.
        key: Of everything that went in.
        prefix: The virtual environment.
        base: The virtual environment below it, which it may share.
        python: Version of its Python with the patch number; empty if nothing says.
        last_use_s: When it was built or a job last started in it, in seconds since the epoch.
    """

    name: str
    key: str
    prefix: Path
    base: Path
    python: str
    last_use_s: float


class Environments:
    """The environments below one directory. Several services and shims may share it.

    Args:
        directory: Where environments are built; made when first needed.
        locks: Directory of the lock files.
        payload: The in-job distributions; found if not given.
    """

    def __init__(self, directory: Path, *, locks: Path = _LOCKS, payload: Payload | None = None) -> None:
        self._directory = directory
        self._locks = locks
        self._payload = payload

    def describe(self, name: str, *, python: str | None = None) -> Environment:
        """What the environment ``name`` is or will be, without building it.

        Args:
            name: E.g. ``tf-2.21``.
            python: Minor version of its Python; None chooses among those that are on this machine.

        Raises:
            EnvironmentBuildError: There is no environment of that name, or not on that Python.
            MissingInterpreterError: No Python that it runs on is on this machine.
        """
        framework = self._framework(name)
        interpreter = find_interpreter(_pythons(framework, python), purpose=f"TensorFlow {framework.version}")
        lock_sha256 = hashlib.sha256(self._lock(name).read_bytes()).hexdigest()
        payload = self._payload_of(framework)
        parts = (interpreter.version, platform.machine(), str(interpreter.executable))
        base = self._directory / f"{name}-base-{_key(lock_sha256, *parts)}"
        key = _key(lock_sha256, *parts, payload.identity)
        prefix = self._directory / f"{name}-{key}"
        return Environment(
            name=name,
            key=key,
            prefix=prefix,
            lock_sha256=lock_sha256,
            base=base,
            interpreter=interpreter,
            read_only_paths=(prefix, base, interpreter.prefix, *payload.sources),
        )

    def is_built(self, environment: Environment) -> bool:
        """Return whether an environment and its base are complete."""
        return bool(Built(environment.base).marker and Built(environment.prefix).marker)

    def ensure(
        self,
        name: str,
        *,
        log: Callable[[str], None],
        poll: Callable[[], None] = lambda: None,
        python: str | None = None,
    ) -> Environment:
        """Return the environment ``name``; build it and download its interpreter if they are missing.

        Clean-ups leave it alone while this process lives.

        Args:
            name: E.g. ``tf-2.21``.
            python: Minor version of its Python; None chooses among those that are on this machine.
            log: Is called with lines that tell of the build. One that ends with a carriage return is a state of its
                progress, which the next line replaces.
            poll: Is called several times a second meanwhile; what it raises ends the build.

        Raises:
            EnvironmentBuildError: uv failed; the text carries its last lines.
            MissingInterpreterError: No Python that it runs on is here or can be had; names the command to install one.
        """
        try:
            environment = self.describe(name, python=python)
        except MissingInterpreterError as missing:
            self._fetch_interpreter(name, python, missing, log=log, poll=poll)
            environment = self.describe(name, python=python)
        base, built = Built(environment.base), Built(environment.prefix)
        for each in (base, built):  # before the look at its marker: a clean-up may be under way
            each.hold(poll=poll)
        if self.is_built(environment):
            return environment
        wait = _Wait(base, name, log=log, poll=poll)
        with base.locked(poll=wait.poll, waiting=wait.begin) as base_fd:
            if base.marker:
                wait.end()
            else:
                self._build_base(base, environment, log=log, poll=poll, lock_fd=base_fd)
            with built.locked(poll=poll) as lock_fd:
                if not built.marker:
                    self._build(built, environment, log=log, poll=poll, lock_fd=lock_fd)
        return environment

    def current(self) -> list[Environment]:
        """Return the environments of this version's locks for each Python of this machine, built or not."""
        return [
            self.describe(name, python=python)
            for name, framework in ENVIRONMENTS.items()
            if self._lock(name).is_file()
            for python in available(framework.pythons)
        ]

    def built(self) -> list[BuiltEnvironment]:
        """Every complete environment of the directory, also those of other versions of tidemill."""
        found = []
        for marker in sorted(self._directory.glob("*.json")):
            built = Built(marker.with_name(marker.name.removesuffix(".json")))
            record = built.marker
            if record and "lock_sha256" in record:  # not of a base
                prefix = built.directory
                found.append(
                    BuiltEnvironment(
                        name=record["name"],
                        key=record["key"],
                        prefix=prefix,
                        base=self._directory / record.get("base", prefix.name),
                        # "3.11.7", or sys.version as earlier versions wrote it
                        python=record.get("python", "").partition(" ")[0],
                        last_use_s=built.last_used_s or 0.0,
                    )
                )
        return found

    def remove(self, key: str) -> None:
        """Remove the environment ``key`` with the overlays above it, and its base if no other environment has it.

        A job that runs in it will fail.

        Raises:
            EnvironmentBuildError: No environment has that key.
        """
        for environment in self.built():
            if environment.key == key:
                built, base = Built(environment.prefix), Built(environment.base)
                # The base's lock first, as for building: no environment may be put on the base meanwhile.
                with base.locked(poll=lambda: None):
                    with built.locked(poll=lambda: None):
                        built.clear()
                    Overlays(self._directory / "overlays").remove_above(key)
                    if environment.base not in {each.base for each in self.built()}:
                        base.clear()
                return
        had = ", ".join(f"{each.key} ({each.name})" for each in self.built()) or "none"
        raise EnvironmentBuildError(f"there is no environment with key {key!r}; built are: {had}")

    def _build_base(
        self,
        base: Built,
        environment: Environment,
        *,
        log: Callable[[str], None],
        poll: Callable[[], None],
        lock_fd: int,
    ) -> None:
        name, interpreter = environment.name, environment.interpreter
        log(f"tidemill: building environment {name} (first use)")
        started_s = time.monotonic()

        def show(line: str) -> None:
            if line.endswith("\r"):
                base.share_progress(line)
            log(line)

        with _building(base, {"name": name, "python": interpreter.version}):
            build_base(base.directory, self._lock(name), interpreter, name=name, log=show, poll=poll, lock_fd=lock_fd)
        log(f"tidemill: environment {name} is ready after {time.monotonic() - started_s:.0f} s")

    def _build(
        self,
        built: Built,
        environment: Environment,
        *,
        log: Callable[[str], None],
        poll: Callable[[], None],
        lock_fd: int,
    ) -> None:
        record = {
            "name": environment.name,
            "key": environment.key,
            "lock_sha256": environment.lock_sha256,
            "base": environment.base.name,
            "python": environment.interpreter.version,
        }
        with _building(built, record):
            payload = self._payload_of(self._framework(environment.name))
            build_upper(
                *(built.directory, environment.base, payload, environment.interpreter),
                log=log,
                poll=poll,
                lock_fd=lock_fd,
            )

    def _fetch_interpreter(
        self,
        name: str,
        python: str | None,
        missing: MissingInterpreterError,
        *,
        log: Callable[[str], None],
        poll: Callable[[], None],
    ) -> None:
        try:
            fetch_interpreter(_pythons(self._framework(name), python), log=log, poll=poll)
        except EnvironmentBuildError as error:
            raise missing from error

    def _payload_of(self, framework: Framework) -> Payload:
        return (self._payload or Payload.find()).of(framework)

    def _framework(self, name: str) -> Framework:
        framework = ENVIRONMENTS.get(name)
        if framework is None or not self._lock(name).is_file():
            known = [each for each in ENVIRONMENTS if self._lock(each).is_file()]
            raise EnvironmentBuildError(f"there is no environment named {name!r}; available are {', '.join(known)}")
        return framework

    def _lock(self, name: str) -> Path:
        return self._locks / f"{name}.txt"


class _Wait:
    """Waiting for a base that another process builds, with that one's progress as if it were this one's."""

    def __init__(self, base: Built, name: str, *, log: Callable[[str], None], poll: Callable[[], None]) -> None:
        self._base = base
        self._name = name
        self._log = log
        self._poll = poll
        self._waits = False
        self._shown = ""

    def begin(self) -> None:
        self._waits = True
        self._log(f"tidemill: waiting for environment {self._name}, which another process is building")

    def poll(self) -> None:
        self._poll()
        state = self._base.shared_progress
        if state not in ("", self._shown):
            self._shown = state
            self._log(state)

    def end(self) -> None:
        if self._waits:
            self._log(f"tidemill: environment {self._name} is ready")


@contextlib.contextmanager
def _building(built: Built, record: dict[str, str]) -> Iterator[None]:
    """Start from nothing, and leave either a complete directory with its marker or nothing."""
    built.clear()
    try:
        yield
    except BaseException:
        built.clear()
        raise
    built.complete(record)


def _pythons(framework: Framework, python: str | None) -> tuple[str, ...]:
    """The Pythons to look for, in that order."""
    if python is None:
        return preferred(framework.pythons)
    if python not in framework.pythons:
        raise EnvironmentBuildError(
            f"the environment {framework.environment} does not run on Python {python}; it runs on"
            f" {', '.join(framework.pythons)}"
        )
    return (python,)


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
