"""Load and unload versions according to the configuration and the model directories.

A new version is loaded and warmed up while the old one serves, and then replaces it; the old one is freed when its last
run has ended. If the new version does not load, the old one keeps serving.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill_serving.errors import Code, RequestError, ServingError, StartFailed, failed_precondition, not_found
from tidemill_serving.loading import Loader
from tidemill_serving.models import MODEL_FILES, ModelVersion
from tidemill_serving.options import ManagedModels
from tidemill_serving.registry import Registry, Servable, VersionState, VersionStatus
from tidemill_serving.versions.config import ModelConfig, read_config_file, read_configs
from tidemill_serving.versions.request_log import RequestRecorder
from tidemill_serving.versions.source import ModelSource, open_source


@dataclass(frozen=True, slots=True)
class _Failure:
    """Failed attempts to load a version. ``due_s`` is the time of the next attempt, if any."""

    tries: int
    due_s: float | None
    message: str


class ModelManager:
    """Loads and unloads versions.

    Args:
        registry: Holds the loaded versions.
        settings: See `ManagedModels`.
        event: Writes an event with its fields to the log.
    """

    def __init__(
        self, registry: Registry, loader: Loader, *, settings: ManagedModels, event: Callable[..., None]
    ) -> None:
        self._registry = registry
        self._loader = loader
        self._settings = settings
        self._event = event
        self._configs: dict[str, ModelConfig] = {}
        self._failures: dict[tuple[str, int], _Failure] = {}
        self._unreadable: dict[str, str] = {}
        self._file_configs: Sequence[ModelConfig] = ()
        self._refused = ""
        self._awaited: set[str] = set()
        self._recorders: dict[str, RequestRecorder] = {}
        self._sources: dict[str, ModelSource] = {}
        self._sources_of: dict[Servable, ModelSource] = {}
        self._lock = asyncio.Lock()
        self._freeing: set[asyncio.Task[None]] = set()
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the models, and start polling for new versions.

        Raises:
            StartFailed: The configuration cannot be read, no version of a model loads, or a label has no version.
        """
        configs = self._file_configs = self._first_configs()
        try:
            await self._apply(configs)
            while (missing := self._missing(configs)) and (pause_s := self._wait_s(missing)) is not None:
                await asyncio.sleep(pause_s)
                await self._reconcile()
            self._check_available(configs, missing)
            self._label(configs)
            self._registry.default_name = self._registry.default_name or next(iter(self._configs), "")
        except RequestError as error:
            raise StartFailed(error.message) from error
        self._polling = asyncio.ensure_future(self._poll())

    async def reload(self, message: Any) -> None:
        """Serve the models of a ModelServerConfig message in place of the current ones.

        Returns after each version was loaded or has failed once.

        Raises:
            RequestError: The message contains an unsupported model, a new model did not load, or a label's version is
                not loaded. All other models of the message are served.
        """
        configs = read_configs(message)
        await self._replace(configs)

    async def close(self) -> None:
        """Stop polling for new versions."""
        tasks = [*self._freeing, *([self._polling] if self._polling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for recorder in self._recorders.values():
            recorder.close()
        for source in self._sources.values():
            await asyncio.to_thread(source.close)

    def _wait_s(self, missing: Sequence[str]) -> float | None:
        """Return the time to wait at the start for missing models, or None if waiting is of no use."""
        failed = {name for name, _version in self._failures}
        empty = [name for name in missing if name not in failed]
        if empty and self._settings.waits and self._settings.poll_s > 0:
            paths = {name: config.base_path for name, config in self._configs.items()}
            for name in empty:
                if name not in self._awaited:
                    self._awaited.add(name)
                    self._event("model.awaited", name=name, reason=self._reason(name, paths[name]))
            return self._pause_s()
        due_s = self._next_try_s()
        return None if due_s is None else max(0.0, due_s - time.monotonic())

    def _first_configs(self) -> Sequence[ModelConfig]:
        if self._settings.config_file is not None:
            return read_config_file(self._settings.config_file)
        assert self._settings.base_path is not None  # the settings have a config file or a base path
        return (ModelConfig(self._settings.name, self._settings.base_path),)

    async def _replace(self, configs: Sequence[ModelConfig]) -> None:
        before = set(self._configs)
        for config in configs:
            try:
                await asyncio.to_thread(self._source(config).find, config.name)
            except OSError as error:
                raise not_found(
                    f"Could not find base path {config.base_path} for servable {config.name}: {error.strerror}"
                ) from error
        await self._apply(configs)
        self._check_available(configs, [name for name in self._missing(configs) if name not in before])
        self._label(configs)

    async def _apply(self, configs: Sequence[ModelConfig]) -> None:
        self._record(configs)
        self._configs = {config.name: config for config in configs}
        await self._reconcile()

    def _record(self, configs: Sequence[ModelConfig]) -> None:
        """Record the requests of the models as the configuration says; unchanged recorders go on with their files."""
        before = self._recorders
        recorders: dict[str, RequestRecorder] = {}
        for config in configs:
            kept = before.get(config.name)
            if kept is not None and kept.targets == config.logs:
                recorders[config.name] = kept
            elif config.logs:
                metrics = self._loader.metrics
                made = RequestRecorder(config.logs, model=config.name, metrics=metrics, event=self._event)
                recorders[config.name] = made
        self._recorders = recorders
        for name in self._registry.names:
            for servable in self._registry.loaded(name).values():
                servable.recorder = recorders.get(name)
        for name, recorder in before.items():
            if recorders.get(name) is not recorder:
                recorder.close()

    async def _poll(self) -> None:
        looked_s = time.monotonic()
        while True:
            await asyncio.sleep(self._pause_s())
            settings = self._settings
            if settings.config_poll_s > 0 and time.monotonic() - looked_s >= settings.config_poll_s:
                looked_s = time.monotonic()
                await self._look_at_config()
            try:
                await self._reconcile()
            except Exception as error:  # noqa: BLE001  # an error must not end the polling
                self._event("models.poll_failed", reason=f"{type(error).__name__}: {error}")

    def _pause_s(self) -> float:
        """Return the time until the next poll or the next attempt to load a version."""
        due_s = self._next_try_s()
        pauses = [each for each in (self._settings.poll_s, self._settings.config_poll_s) if each > 0]
        if due_s is not None:
            pauses.append(max(0.0, due_s - time.monotonic()))
        return min(pauses, default=3600.0)

    async def _look_at_config(self) -> None:
        assert self._settings.config_file is not None  # only called if there is a config file
        try:
            configs = await asyncio.to_thread(read_config_file, self._settings.config_file)
            if configs != self._file_configs:  # changes by a reload request remain until the file changes
                await self._replace(configs)
                self._file_configs = configs
                self._event("config.read", file=self._settings.config_file, models=len(configs))
            self._refused = ""
        except ServingError as error:
            if str(error) != self._refused:  # logged once instead of at each poll
                self._refused = str(error)
                self._event("config.refused", file=self._settings.config_file, reason=self._refused)

    async def _reconcile(self) -> None:
        """For each model, load missing versions and unload versions that are no longer configured."""
        async with self._lock:
            configs = self._configs
            for name in self._registry.names:
                if name not in configs:
                    self._unload(name, list(self._registry.loaded(name)))
                    self._registry.forget(name)
            self._failures = {key: each for key, each in self._failures.items() if key[0] in configs}
            for config in configs.values():
                await self._reconcile_model(config)

    async def _reconcile_model(self, config: ModelConfig) -> None:
        found = await self._find(config)
        if found is None:
            return
        wanted = config.policy.choose(found)
        for key in [key for key in self._failures if key[0] == config.name and key[1] not in wanted]:
            del self._failures[key]
        for number in wanted:
            if number not in self._registry.loaded(config.name) and self._is_due(config.name, number):
                await self._load(found[number], self._source(config))
        loaded = self._registry.loaded(config.name)
        if not wanted or any(number in loaded for number in wanted):
            self._unload(config.name, sorted(number for number in loaded if number not in wanted))

    async def _find(self, config: ModelConfig) -> Mapping[int, ModelVersion] | None:
        try:
            found = await asyncio.to_thread(self._source(config).find, config.name)
        except OSError as error:
            reason = f"Could not find base path {config.base_path} for servable {config.name}: {error.strerror}"
            if self._unreadable.get(config.name) != reason:
                self._unreadable[config.name] = reason  # logged once instead of at each poll
                self._event("model.unreadable", name=config.name, reason=reason)
            return None
        self._unreadable.pop(config.name, None)
        return {version.version: version for version in found}

    def _source(self, config: ModelConfig) -> ModelSource:
        if config.base_path not in self._sources:
            self._sources[config.base_path] = open_source(config.base_path, name=config.name)
        return self._sources[config.base_path]

    async def _load(self, version: ModelVersion, source: ModelSource) -> None:
        name, number = version.name, version.version
        self._registry.note(name, VersionStatus(number, VersionState.LOADING))
        try:
            loaded = await self._loader.load_beside([version], load=functools.partial(self._fetched, source))
            for servable in loaded:
                servable.recorder = self._recorders.get(name)
            self._registry.add(loaded)
        except Exception as error:  # noqa: BLE001  # shown in the status of the version
            self._failed(version, error)
        else:
            self._failures.pop((name, number), None)

    def _fetched(self, source: ModelSource, version: ModelVersion) -> Servable:
        """Fetch and load a version, on a thread."""
        fetched = source.fetch(version)
        try:
            servable = self._loader.load(fetched)
        except BaseException:
            source.discard(fetched)
            raise
        self._sources_of[servable] = source
        return servable

    def _failed(self, version: ModelVersion, error: Exception) -> None:
        key = (version.name, version.version)
        tries = self._failures[key].tries + 1 if key in self._failures else 1
        again = tries <= self._settings.retries
        message = str(error) or type(error).__name__
        self._failures[key] = _Failure(tries, time.monotonic() + self._settings.retry_s if again else None, message)
        code = Code.RESOURCE_EXHAUSTED if isinstance(error, MemoryError) else Code.UNKNOWN
        state = VersionState.LOADING if again else VersionState.END
        self._registry.note(version.name, VersionStatus(version.version, state, code, message))
        self._event(
            "model.failed", name=version.name, version=version.version, again=str(again).lower(), reason=message
        )

    def _unload(self, name: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            servable = self._registry.withdraw(name, number)
            if servable is not None:
                task = asyncio.ensure_future(self._free(servable))
                self._freeing.add(task)
                task.add_done_callback(self._freeing.discard)

    async def _free(self, servable: Servable) -> None:
        name, number = servable.version.name, servable.version.version
        await servable.free()
        await asyncio.to_thread(self._sources_of.pop(servable).discard, servable.version)
        if name in self._configs and number not in self._registry.loaded(name):
            self._registry.note(name, VersionStatus(number, VersionState.END))
        self._event("model.unloaded", name=name, version=number)

    def _label(self, configs: Sequence[ModelConfig]) -> None:
        for config in configs:
            for number in config.labels.values():
                if number not in self._registry.loaded(config.name) and not self._settings.labels_ahead:
                    raise failed_precondition(
                        f"Request to assign label to version {number} of model {config.name}, which is not currently"
                        " available for inference"
                    )
        for config in configs:
            self._registry.label(config.name, config.labels)

    def _missing(self, configs: Sequence[ModelConfig]) -> list[str]:
        return [config.name for config in configs if not self._registry.loaded(config.name)]

    def _check_available(self, configs: Sequence[ModelConfig], missing: Sequence[str]) -> None:
        if not missing:
            return
        paths = {config.name: config.base_path for config in configs}
        reasons = [f"{{{name}: {self._reason(name, paths[name])}}}" for name in missing]
        message = f"{len(missing)} servable(s) did not become available: {', '.join(reasons)}"
        raise RequestError(Code.FAILED_PRECONDITION, message)

    def _reason(self, name: str, path: str) -> str:
        failures = [f"version {key[1]}: {each.message}" for key, each in self._failures.items() if key[0] == name]
        if failures:
            return "; ".join(failures)
        return self._unreadable.get(name) or f"No versions of servable {name} found under base path {path}{_hint(path)}"

    def _is_due(self, name: str, number: int) -> bool:
        failure = self._failures.get((name, number))
        return failure is None or (failure.due_s is not None and time.monotonic() >= failure.due_s)

    def _next_try_s(self) -> float | None:
        return min((each.due_s for each in self._failures.values() if each.due_s is not None), default=None)


def _hint(base_path: str) -> str:
    """Return what to do if a base path is not the directory of versions, but has a model itself."""
    directory = Path(base_path)
    if not any((directory / name).is_file() for name in MODEL_FILES):
        return ""
    is_version = directory.name.isascii() and directory.name.isdigit()
    wanted = f"give the directory above it, {directory.parent}" if is_version else f"move it to {directory / '1'}"
    return f": it holds a model itself, but versions are numbered directories below the base path; {wanted}"
