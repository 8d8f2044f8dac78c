"""Environments of jobs and endpoints, built by uv on first use, in layers.

The base contains the packages of a lock file: gigabytes that change seldom, shared by all checkouts and versions of
tidemill with the same lock and Python. A second shared layer contains the AWS CLI with its own packages, on tidemill's
own Python. The environment itself is small: the in-job distributions, a link to its base, and the command ``aws``.
Complete layers never change; the packages of a job's requirements go into an overlay above them (`overlays.py`). The
key of a layer is a hash of all its inputs, so that an upgrade builds a new layer instead of changing one.
"""

import contextlib
import hashlib
import json
import platform
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tidemill.core.frameworks import ENVIRONMENTS, Framework
from tidemill.environments.build_lock import Built
from tidemill.environments.changes import check_unchanged, state_of
from tidemill.environments.interpreters import (
    FoundInterpreter,
    available,
    fetch_interpreter,
    find_interpreter,
    preferred,
)
from tidemill.environments.layers import build_base, build_upper, site_packages
from tidemill.environments.overlays import Overlays
from tidemill.environments.payload import RuntimeSource
from tidemill.environments.python_2 import ScriptLayer, build_script_layer
from tidemill.environments.uv_command import BuildWatch
from tidemill.errors import EnvironmentBuildError, MissingInterpreterError

_LOCKS = Path(__file__).parent / "locks"
_AWS_CLI = "aws-cli"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnvironment:
    """An environment of this version's locks.

    Attributes:
        name: Name of the environment, e.g. ``tf-2.21``.
        key: Hash of all inputs: lock, in-job distributions, interpreter and machine type.
        prefix: Directory of the virtual environment.
        lock_sha256: Digest of the lock file, hexadecimal.
        aws_cli: Directory of the AWS CLI; None if the locks do not contain it.
        interpreter: The Python of environment and base.
        read_only_paths: Directories that a job must be able to read: all layers, their Pythons, and the sources if
            tidemill runs from a checkout.
        script: The packages of the script, if it runs on another Python. Default: it runs on that of the environment.
    """

    name: str
    key: str
    prefix: Path
    lock_sha256: str
    base: Path
    aws_cli: Path | None
    interpreter: FoundInterpreter
    read_only_paths: tuple[Path, ...]
    script: ScriptLayer | None = None

    @property
    def python(self) -> Path:
        """Path of the environment's Python, on which the runtime runs."""
        return self.prefix / "bin" / "python"

    @property
    def shared_layers(self) -> tuple[Path, ...]:
        """The layers below it, which other environments may share: base, AWS CLI, packages of the script."""
        layers = (self.base, self.aws_cli, self.script.prefix if self.script else None)
        return tuple(each for each in layers if each)

    @property
    def site_packages(self) -> Path:
        """Package directory of the environment, without its base."""
        return site_packages(self.prefix, self.interpreter.minor)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltEnvironment:
    """A complete environment of an environments directory, of this version of tidemill or another.

    Attributes:
        name: Name of the environment, e.g. ``tf-2.21``.
        key: Hash of all inputs.
        prefix: Directory of the virtual environment.
        shared_layers: As for `JobEnvironment`.
        python: Version of the Python with the patch number; empty if unknown.
        last_use_s: Time of the build or of the last job's start, in seconds since the epoch.
    """

    name: str
    key: str
    prefix: Path
    shared_layers: tuple[Path, ...]
    python: str
    last_use_s: float


class Environments:
    """The environments below one directory. Several services and shims may share it.

    Args:
        directory: Directory of the environments; created by the first build.
        locks: Directory of the lock files. Default: those of this distribution.
        payload: The in-job distributions. Default: `RuntimeSource.find`.
    """

    def __init__(self, directory: Path, *, locks: Path = _LOCKS, payload: RuntimeSource | None = None) -> None:
        self._directory = directory
        self._locks = locks
        self._payload = payload

    def describe(self, name: str, *, python: str | None = None) -> JobEnvironment:
        """Return the properties of the environment ``name``, whether it is built or not.

        Args:
            name: Name of the environment, e.g. ``tf-2.21``.
            python: Minor version of its Python, or of the script's. Default: the preferred one of this machine's.

        Raises:
            EnvironmentBuildError: There is no environment of that name, or it does not run on that Python.
            MissingInterpreterError: This machine has no Python that the environment runs on.
        """
        framework = self._framework(name)
        purpose = f"{framework.title} {framework.version}"
        script = self._script_layer(framework, python, purpose=purpose)
        interpreter = find_interpreter(_pythons(framework, None if script else python), purpose=purpose)
        payload = self._payload_of(framework, interpreter)
        lock_sha256 = _sha256(self._lock(name))
        parts = (lock_sha256, *_identity(interpreter))
        base = self._directory / f"{name}-base-{_key(*parts)}"
        aws_cli = self._aws_cli()
        added = [each.name for each in (aws_cli, script.prefix if script else None) if each]
        key = _key(*parts, payload.identity, *added)
        prefix = self._directory / f"{name}-{key}"
        return JobEnvironment(
            name=name,
            key=key,
            prefix=prefix,
            lock_sha256=lock_sha256,
            base=base,
            aws_cli=aws_cli,
            interpreter=interpreter,
            read_only_paths=(
                *(prefix, base, interpreter.prefix, *payload.sources),
                *((aws_cli, FoundInterpreter.own().prefix) if aws_cli else ()),
                *((script.prefix, script.interpreter.prefix) if script else ()),
            ),
            script=script,
        )

    def is_built(self, environment: JobEnvironment) -> bool:
        """Return whether an environment and all layers below it are complete."""
        return all(Built(each).marker for each in (*environment.shared_layers, environment.prefix))

    def ensure(
        self,
        name: str,
        *,
        log: Callable[[str], None],
        poll: Callable[[], None] = lambda: None,
        python: str | None = None,
        writable: bool = False,
    ) -> JobEnvironment:
        """Return the environment ``name``; build it and download its interpreter if they are missing.

        The environment is not removed as unused until this process ends.

        Args:
            name: Name of the environment, e.g. ``tf-2.21``.
            python: Minor version of its Python. Default: the preferred one of those on this machine.
            writable: Whether a job of this process can write to the environment; see `check_unchanged`. Default: false.
            log: Called with lines about the build. A line that ends with a carriage return is a progress state, which
                the next line replaces.
            poll: Called several times a second during the build; an exception ends the build.

        Raises:
            EnvironmentBuildError: uv failed; the message has the last lines of its output.
            MissingInterpreterError: No Python that the environment runs on was found or downloaded; the message names
                the command to install one.
        """
        watch = BuildWatch(log, poll)
        try:
            environment = self.describe(name, python=python)
        except MissingInterpreterError as missing:
            self._fetch_interpreter(name, python, missing, watch)
            environment = self.describe(name, python=python)
        built = Built(environment.prefix)
        for each in (*map(Built, environment.shared_layers), built):
            each.hold(poll=poll)  # before reading its marker, because a clean-up may remove it now
            check_unchanged(each, linked=True, writable=writable, watch=watch)
        if self.is_built(environment):
            return environment
        with contextlib.ExitStack() as locks:
            if environment.aws_cli:
                locks.enter_context(self._shared_layer(environment.aws_cli, _AWS_CLI, FoundInterpreter.own(), watch))
            locks.enter_context(self._shared_layer(environment.base, name, environment.interpreter, watch))
            if script := environment.script:
                lock = _script_lock(name, script.interpreter.minor)
                locks.enter_context(self._shared_layer(script.prefix, lock, script.interpreter, watch))
            lock_fd = locks.enter_context(built.locked(poll=poll))
            if not built.marker:
                self._build(built, environment, watch, lock_fd)
        return environment

    def current(self) -> list[JobEnvironment]:
        """Return the environments of this version's locks for each Python of this machine, built or not."""
        return [
            self.describe(name, python=python)
            for name, framework in ENVIRONMENTS.items()
            if self._lock(name).is_file()
            for python in available((*framework.pythons, *framework.script_pythons))
        ]

    def built(self) -> list[BuiltEnvironment]:
        """Return all complete environments of the directory, including those of other versions of tidemill."""
        found = []
        for marker in sorted(self._directory.glob("*.json")):
            built = Built(marker.with_name(marker.name.removesuffix(".json")))
            record = built.marker
            if record and "lock_sha256" in record:  # only bases lack it
                found.append(
                    BuiltEnvironment(
                        name=record["name"],
                        key=record["key"],
                        prefix=built.directory,
                        shared_layers=shared_layers(built.directory, record),
                        # "3.11.7", or sys.version as earlier versions wrote it
                        python=record.get("python", "").partition(" ")[0],
                        last_use_s=built.last_used_s or 0.0,
                    )
                )
        return found

    def remove(self, key: str) -> None:
        """Remove the environment ``key``, the overlays above it, and the layers below it that no other one uses.

        Jobs that run in the environment will fail.

        Raises:
            EnvironmentBuildError: No environment has that key.
        """
        environments = self.built()
        environment = next((each for each in environments if each.key == key), None)
        if environment is None:
            had = ", ".join(f"{each.key} ({each.name})" for each in environments) or "none"
            raise EnvironmentBuildError(f"there is no environment with key {key!r}; built are: {had}")
        built, below = Built(environment.prefix), [Built(each) for each in environment.shared_layers]
        with contextlib.ExitStack() as locks:
            for layer in below:  # first, as for building, so that no environment is built on it meanwhile
                locks.enter_context(layer.locked(poll=lambda: None))
            with built.locked(poll=lambda: None):
                built.clear()
            Overlays(self._directory / "overlays").remove_above(key)
            used = {each for other in self.built() for each in other.shared_layers}
            for layer in below:
                if layer.directory not in used:
                    layer.clear()

    @contextlib.contextmanager
    def _shared_layer(
        self, directory: Path, name: str, interpreter: FoundInterpreter, watch: BuildWatch
    ) -> Generator[None]:
        """Keep a layer from removal during the block. It is complete, built from the lock ``name`` if missing."""
        layer = Built(directory)
        wait = _BuildWait(layer, name, watch)
        with layer.locked(poll=wait.poll, waiting=wait.begin) as lock_fd:
            if layer.marker:
                wait.end()
            else:
                self._build_shared(layer, name, interpreter, watch, lock_fd)
            yield

    def _build_shared(
        self, layer: Built, name: str, interpreter: FoundInterpreter, watch: BuildWatch, lock_fd: int
    ) -> None:
        watch.log(f"tidemill: building environment {name} (first use)")
        started_s = time.monotonic()

        def show(line: str) -> None:
            if line.endswith("\r"):
                layer.share_progress(line)
            watch.log(line)

        with _building(layer, {"name": name, "python": interpreter.version}):
            if interpreter.number < (3,):
                script = ScriptLayer(layer.directory, interpreter)
                build_script_layer(script, self._lock(name), watch=watch, lock_fd=lock_fd)
                return
            build_base(
                *(layer.directory, self._lock(name), interpreter),
                name=name,
                watch=replace(watch, log=show),
                lock_fd=lock_fd,
                # A job that changed a file has changed it in the cache as well.
                use_cache=not layer.was_set_aside,
            )
        watch.log(f"tidemill: environment {name} is ready after {time.monotonic() - started_s:.0f} s")

    def _build(self, built: Built, environment: JobEnvironment, watch: BuildWatch, lock_fd: int) -> None:
        record = {
            "name": environment.name,
            "key": environment.key,
            "lock_sha256": environment.lock_sha256,
            "base": environment.base.name,
            "aws_cli": environment.aws_cli.name if environment.aws_cli else "",
            "script": environment.script.prefix.name if environment.script else "",
            "python": environment.interpreter.version,
        }
        with _building(built, record):
            payload = self._payload_of(self._framework(environment.name), environment.interpreter)
            build_upper(
                *(built.directory, environment.base, payload, environment.interpreter),
                aws_cli=environment.aws_cli,
                watch=watch,
                lock_fd=lock_fd,
            )

    def _fetch_interpreter(
        self, name: str, python: str | None, missing: MissingInterpreterError, watch: BuildWatch
    ) -> None:
        framework = self._framework(name)
        if python in framework.script_pythons:
            if not available((python,)):
                raise missing
            python = None
        try:
            fetch_interpreter(_pythons(framework, python), watch)
        except EnvironmentBuildError as error:
            raise missing from error

    def _aws_cli(self) -> Path | None:
        lock = self._lock(_AWS_CLI)
        if not lock.is_file():
            return None
        return self._directory / f"{_AWS_CLI}-{_key(_sha256(lock), *_identity(FoundInterpreter.own()))}"

    def _script_layer(self, framework: Framework, python: str | None, *, purpose: str) -> ScriptLayer | None:
        """Return the packages of scripts on `python`; None if the runtime runs on it, too."""
        if python not in framework.script_pythons:
            return None
        lock = _script_lock(framework.environment, python)
        interpreter = find_interpreter((python,), purpose=purpose)
        key = _key(_sha256(self._lock(lock)), *_identity(interpreter))
        return ScriptLayer(self._directory / f"{lock}-{key}", interpreter)

    def _payload_of(self, framework: Framework, interpreter: FoundInterpreter) -> RuntimeSource:
        return (self._payload or RuntimeSource.find()).of(framework, interpreter.minor)

    def _framework(self, name: str) -> Framework:
        framework = ENVIRONMENTS.get(name)
        if framework is None or not self._lock(name).is_file():
            known = [each for each in ENVIRONMENTS if self._lock(each).is_file()]
            raise EnvironmentBuildError(f"there is no environment named {name!r}; available are {', '.join(known)}")
        return framework

    def _lock(self, name: str) -> Path:
        return self._locks / f"{name}.txt"


class _BuildWait:
    """Wait for a layer that another process builds, and log the other process's progress."""

    def __init__(self, layer: Built, name: str, watch: BuildWatch) -> None:
        self._layer = layer
        self._name = name
        self._watch = watch
        self._waits = False
        self._shown = ""

    def begin(self) -> None:
        self._waits = True
        self._watch.log(f"tidemill: waiting for environment {self._name}, which another process is building")

    def poll(self) -> None:
        self._watch.poll()
        state = self._layer.shared_progress
        if state not in ("", self._shown):
            self._shown = state
            self._watch.log(state)

    def end(self) -> None:
        if self._waits:
            self._watch.log(f"tidemill: environment {self._name} is ready")


@contextlib.contextmanager
def _building(built: Built, record: dict[str, str]) -> Generator[None]:
    """Build in the block: start with an empty directory, and leave it complete with its marker, or remove it."""
    built.clear()
    try:
        yield
    except BaseException:
        built.clear()
        raise
    built.complete({**record, "state": state_of(built.directory, linked=True)})


def _pythons(framework: Framework, python: str | None) -> tuple[str, ...]:
    """Return the minor versions of Python to look for, in order."""
    if python is None:
        return preferred(framework.pythons)
    if python not in framework.pythons:
        raise EnvironmentBuildError(
            f"the environment {framework.environment} does not run on Python {python}; it runs on"
            f" {', '.join((*framework.pythons, *framework.script_pythons))}"
        )
    return (python,)


def shared_layers(prefix: Path, record: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the layers below a complete environment, by its marker. Environments of early versions have none.

    Args:
        prefix: Directory of the environment.
    """
    names = (record.get("base"), record.get("aws_cli"), record.get("script"))
    return tuple(prefix.with_name(name) for name in names if name)


def _script_lock(name: str, python: str) -> str:
    """Return the name of the lock of scripts on `python`, e.g. ``tf-1.15-py27``."""
    return f"{name}-py{python.replace('.', '')}"


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _identity(interpreter: FoundInterpreter) -> tuple[str, str, str]:
    return interpreter.version, platform.machine(), str(interpreter.executable)


def _key(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
