"""Registry of served models: the versions of each name, with their state and, if loaded, their runners.

Only the event loop changes the registry. Other threads may read it: shared mappings are replaced, never changed in
place, and a version used outside the loop is leased, so that it is not freed meanwhile.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from tidemill_serving.batching import Runner
from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.engine.twin import Twin
from tidemill_serving.errors import Code, invalid, not_found
from tidemill_serving.models import ModelVersion

_KEPT_ENDED = 8
_Value = TypeVar("_Value")


class VersionState(StrEnum):
    """States of a version, by TF Serving's names."""

    START = "START"
    LOADING = "LOADING"
    AVAILABLE = "AVAILABLE"
    UNLOADING = "UNLOADING"
    END = "END"


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """Reported status of one version.

    Attributes:
        state: State in TF Serving's life cycle.
        code: OK, or the status code of the failed load.
        message: Reason of the failure; empty if OK.
    """

    version: int
    state: VersionState
    code: Code = Code.OK
    message: str = ""


class Leases:
    """Counts the threads that use a version, and signals when the last one has left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._on_idle: Callable[[], object] | None = None

    def enter(self) -> None:
        """Begin to use the version."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """End the use; once for each `enter`."""
        with self._lock:
            self._count -= 1
            on_idle = self._on_idle if not self._count else None
        if on_idle is not None:
            on_idle()

    async def ended(self) -> None:
        """Wait until no thread uses the version; called when it can no longer be found."""
        loop = asyncio.get_running_loop()
        idle = asyncio.Event()
        with self._lock:
            if not self._count:
                return
            self._on_idle = lambda: loop.call_soon_threadsafe(idle.set)
        await idle.wait()


class Recorder(Protocol):
    """Records a part of the requests of a model, with their answers. Its methods do not raise."""

    def record_run(
        self, verb: str, servable: "Servable", signature: Signature, feeds: Sequence[Array], outputs: Sequence[Array]
    ) -> None:
        """Record a request of REST.

        Args:
            verb: ``predict``, ``classify`` or ``regress``.
            servable: The version that answered.
            signature: The signature that ran.
            feeds: Arrays in the order of its inputs.
            outputs: Arrays in the order of its outputs.
        """

    def record_call(self, method: str, servable: "Servable", request: Any, response: Any) -> None:
        """Record a call of gRPC.

        Args:
            method: e.g. ``Predict``.
            servable: The version that answered.
            request: Message of the request.
            response: Message of the answer.
        """


@dataclass(slots=True, eq=False)
class Servable:
    """One loaded version.

    Attributes:
        version: Model name, version number and directory.
        model: The model in memory.
        runners: Runner per key of ``model.signatures``.
        load_s: Seconds that loading and warm-up took.
        leases: Counter of the threads that use the version.
        recorder: Records requests; None if the model's configuration does not ask for it.
        twin: The second session of the model; None if there can be none.
    """

    version: ModelVersion
    model: LoadedModel
    runners: Mapping[str, Runner]
    load_s: float = 0.0
    leases: Leases = field(default_factory=Leases)
    recorder: Recorder | None = None
    twin: Twin | None = None

    async def free(self) -> None:
        """Free the model when its last run has ended; called when it can no longer be found."""
        await self.leases.ended()
        for runner in self.runners.values():
            await runner.drained()
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Free the model. No run may be in progress; waits for a session that is being loaded."""
        if self.twin is not None:
            self.twin.close()
        self.model.close()


@dataclass(frozen=True, slots=True)
class _Model:
    """Versions of one model, newest first."""

    servables: Mapping[int, Servable] = field(default_factory=dict)
    statuses: Mapping[int, VersionStatus] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)


class Registry:
    """Finds servables by name and version.

    Args:
        servables: Initially loaded versions.
        default_name: Model for requests that name no model.
    """

    def __init__(self, servables: Sequence[Servable], *, default_name: str) -> None:
        self.default_name = default_name
        self._models: dict[str, _Model] = {}
        self.watchers: list[Callable[[], None]] = []
        """Called after a version was added, has changed its state, or was removed."""
        self.add(servables)

    def add(self, servables: Sequence[Servable]) -> None:
        """Add loaded versions in state AVAILABLE.

        Args:
            servables: Loaded versions of one or several models; a version that is there already is replaced.
        """
        for servable in servables:
            name, number = servable.version.name, servable.version.version
            model = self._models.get(name, _Model())
            loaded = _newest_first({**model.servables, number: servable})
            self._models[name] = replace(model, servables=loaded)
            self.note(name, VersionStatus(number, VersionState.AVAILABLE))

    def note(self, name: str, status: VersionStatus) -> None:
        """Set the state of a version; only the last few ended versions are kept.

        Args:
            status: Replaces the status of its version.
        """
        model = self._models.get(name, _Model())
        statuses = _newest_first({**model.statuses, status.version: status})
        ended = [number for number, each in statuses.items() if each.state is VersionState.END]
        for number in ended[_KEPT_ENDED:]:
            del statuses[number]
        self._models[name] = replace(model, statuses=statuses)
        self._changed()

    def withdraw(self, name: str, version: int) -> Servable | None:
        """Remove one version, which is UNLOADING until its end is noted; the caller must free it.

        Returns:
            The version, or None if it is not loaded. Runs in progress may still use it.
        """
        model = self._models.get(name, _Model())
        if version not in model.servables:
            return None
        left = {number: each for number, each in model.servables.items() if number != version}
        self._models[name] = replace(model, servables=left)
        self.note(name, VersionStatus(version, VersionState.UNLOADING))
        return model.servables[version]

    def remove(self, name: str) -> list[Servable]:
        """Remove a model and return its versions; the caller must free them.

        Returns:
            Loaded versions, newest first.
        """
        servables = list(self._models.pop(name, _Model()).servables.values())
        self._changed()
        return servables

    def forget(self, name: str) -> None:
        """Forget a model whose versions were all withdrawn."""
        self._models.pop(name, None)
        self._changed()

    def label(self, name: str, labels: Mapping[str, int]) -> None:
        """Replace the labels of a model.

        Args:
            labels: Version by label, e.g. ``{"stable": 2}``; replaces all labels.
        """
        self._models[name] = replace(self._models.get(name, _Model()), labels=dict(labels))

    def labels(self, name: str) -> Mapping[str, int]:
        """Return the version by label of a model; a version that is labeled ahead may not be loaded."""
        return self._models.get(name, _Model()).labels

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all models, sorted."""
        return tuple(sorted(self._models))

    def find(self, name: str, version: int | None, *, label: str | None = None) -> Servable:
        """Return the version with that number or label; by default the highest loaded one.

        Raises:
            RequestError: NOT_FOUND, or INVALID_ARGUMENT for a label that no version has.
        """
        model = self._models.get(name)
        if label is not None:
            version = self._labeled(model, name, label)
        if model is not None and model.servables:
            if version is None:
                return next(iter(model.servables.values()))
            found = model.servables.get(version)
            if found is not None:
                return found
        which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise not_found(f"Servable not found for request: {which}")

    def lease(self, name: str, version: int | None, *, label: str | None = None) -> Servable:
        """Find a version for a thread other than the loop's; it is not freed before ``leases.leave`` is called.

        Raises:
            RequestError: As `find`.
        """
        while True:
            servable = self.find(name, version, label=label)
            servable.leases.enter()
            model = self._models.get(name)
            if model is not None and model.servables.get(servable.version.version) is servable:
                return servable
            servable.leases.leave()  # withdrawn between find and enter: may be freed already

    def versions(self, name: str, version: int | None, *, label: str | None = None) -> list[VersionStatus]:
        """Return the status of all versions of a model, newest first, or of the one given by number or label.

        Raises:
            RequestError: NOT_FOUND, or INVALID_ARGUMENT for a label that no version has.
        """
        model = self._models.get(name)
        if label is not None:
            version = self._labeled(model, name, label)
        if model is None or not model.statuses:
            raise not_found(f"Could not find any versions of model {name}")
        if version is None:
            return list(model.statuses.values())
        if version not in model.statuses:
            raise not_found(f"Could not find version {version} of model {name}")
        return [model.statuses[version]]

    def loaded(self, name: str) -> Mapping[int, Servable]:
        """Return the loaded versions of a model, newest first; empty if no version is loaded."""
        return self._models.get(name, _Model()).servables

    def _changed(self) -> None:
        for watcher in self.watchers:
            watcher()

    def _labeled(self, model: _Model | None, name: str, label: str) -> int:
        if model is None:
            raise not_found(f"Servable not found for request: Latest({name})")
        if label not in model.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return model.labels[label]


def _newest_first(versions: Mapping[int, _Value]) -> dict[int, _Value]:
    return {number: versions[number] for number in sorted(versions, reverse=True)}
