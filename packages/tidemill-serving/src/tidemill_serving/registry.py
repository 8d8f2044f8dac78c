"""The models that are served: name to versions, each with its signatures ready to run."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidemill_serving.batching import DEFAULT_MAX_ROWS, BatchThreads, Runner
from tidemill_serving.engine import Engine, LoadedModel
from tidemill_serving.engine.placement import measure
from tidemill_serving.errors import not_found
from tidemill_serving.models import ModelVersion

__all__ = ["Registry", "Servable", "load_all"]


@dataclass(frozen=True, slots=True)
class Servable:
    """One loaded version. ``runners`` has the keys of ``model.signatures``."""

    version: ModelVersion
    model: LoadedModel
    runners: Mapping[str, Runner]
    load_s: float

    @property
    def version_header(self) -> bytes:
        """The number of the version, as it stands in reply headers."""
        return b"%d" % self.version.version


class Registry:
    """Finds servables by name and version.

    Args:
        servables: All loaded versions.
        default_name: The model of requests that name none.
    """

    def __init__(self, servables: Sequence[Servable], *, default_name: str) -> None:
        self.default_name = default_name
        self._models: dict[str, dict[int, Servable]] = {}
        for servable in sorted(servables, key=lambda item: item.version, reverse=True):
            self._models.setdefault(servable.version.name, {})[servable.version.version] = servable

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all models, sorted."""
        return tuple(sorted(self._models))

    def find(self, name: str, version: int | None) -> Servable:
        """The version asked for, else the highest one.

        Raises:
            RequestError: NOT_FOUND.
        """
        versions = self._models.get(name, {})
        if version is None and versions:
            return next(iter(versions.values()))
        found = versions.get(-1 if version is None else version)
        if found is None:
            which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise not_found(f"Servable not found for request: {which}")
        return found

    def versions(self, name: str, version: int | None) -> list[Servable]:
        """All versions of a model, newest first, or the one asked for.

        Raises:
            RequestError: NOT_FOUND.
        """
        versions = self._models.get(name)
        if versions is None:
            raise not_found(f"Could not find any versions of model {name}")
        if version is None:
            return list(versions.values())
        if version not in versions:
            raise not_found(f"Could not find version {version} of model {name}")
        return [versions[version]]

    def close(self) -> None:
        """Free all models."""
        for versions in self._models.values():
            for servable in versions.values():
                servable.model.close()


def load_all(
    versions: Sequence[ModelVersion],
    *,
    engine: Engine,
    threads: BatchThreads,
    loop: asyncio.AbstractEventLoop,
    max_rows: int = DEFAULT_MAX_ROWS,
    loaded: Callable[[Servable], None],
) -> list[Servable]:
    """Load and warm up every version.

    Args:
        versions: What was found.
        engine: What loads them.
        threads: Slots for longer runs.
        loop: Where requests will come from.
        max_rows: Most rows in a shared run.
        loaded: Told of each version when it is ready.

    Raises:
        StartFailed: A version cannot be loaded.
    """
    servables = []
    for version in versions:
        begin = time.monotonic()
        model = engine.load(version.path)
        runners = {
            key: Runner(
                model,
                signature,
                placement=measure(model, signature),
                threads=threads,
                loop=loop,
                max_rows=max_rows,
            )
            for key, signature in model.signatures.items()
        }
        servables.append(Servable(version, model, runners, time.monotonic() - begin))
        loaded(servables[-1])
    return servables
