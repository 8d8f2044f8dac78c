"""Load versions into memory and warm them up."""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidemill_serving.batch_queue import BatchingParameters, BatchQueue
from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.batching import DEFAULT_MAX_ROWS, Runner
from tidemill_serving.engine import Engine, LoadedModel
from tidemill_serving.engine.placement import Placement, initial_placement
from tidemill_serving.engine.twin import Twin, new_twin
from tidemill_serving.metrics import Metrics
from tidemill_serving.models import ModelVersion
from tidemill_serving.registry import Servable


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads versions.

    Attributes:
        engine: Loads SavedModels.
        threads: Slots for longer runs.
        loop: The event loop that receives requests.
        max_rows: Maximum rows of a shared run.
        batching: Returns a version's batching parameters, if any.
        warm_up: Replays a version's recorded warm-up requests; raises StartFailed if one fails.
        loaded: Called with each loaded version, on the thread that loaded it.
        unshared: Called once for each signature that cannot be batched, with the version, the signature's key and the
            reason, on any thread.
        placed: Called when the thread of a signature changes, with the version, the signature's key and the placement.
        scheduled: Called when another choice for a signature changes, with the version, the signature's key, and the
            name and the fields of the event.
        twinned: Called when a model has a second session, or cannot have it, with the version and the reason, on the
            thread that loaded it.
        metrics: Records batches.
    """

    engine: Engine
    threads: BatchThreads
    loop: asyncio.AbstractEventLoop
    max_rows: int = DEFAULT_MAX_ROWS
    batching: Callable[[ModelVersion], BatchingParameters | None]
    warm_up: Callable[[Servable], None]
    loaded: Callable[[Servable], None]
    unshared: Callable[[ModelVersion, str, str], None]
    placed: Callable[[ModelVersion, str, Placement], None]
    scheduled: Callable[[ModelVersion, str, str, Mapping[str, object]], None]
    twinned: Callable[[ModelVersion, Exception | None], None]
    metrics: Metrics

    def load(self, version: ModelVersion) -> Servable:
        """Load a version on the calling thread.

        Raises:
            StartFailed: The version cannot be loaded, or one of its warm-up requests fails.
        """
        begin = time.monotonic()
        try:
            model = self.engine.load(version.path)
        except BaseException:
            self.metrics.load(version.place, status="fail", latency_s=time.monotonic() - begin)
            raise
        self.metrics.load(version.place, status="success", latency_s=time.monotonic() - begin)
        try:
            batching = self.batching(version)
            twin = self._twin(version, model) if batching is None else None
            runners = {key: self._runner(version, model, key, batching, twin) for key in model.signatures}
            servable = Servable(version, model, runners, twin=twin)
            self.warm_up(servable)
        except BaseException:
            model.close()
            raise
        servable.load_s = time.monotonic() - begin
        self.loaded(servable)
        return servable

    def _twin(self, version: ModelVersion, model: LoadedModel) -> Twin | None:
        if not self.engine.has_narrow_sessions:
            return None
        return new_twin(self.engine, version.path, model, loaded=functools.partial(self.twinned, version))

    def _runner(
        self,
        version: ModelVersion,
        model: LoadedModel,
        key: str,
        batching: BatchingParameters | None,
        twin: Twin | None,
    ) -> Runner:
        signature = model.signatures[key]
        model.prepare(signature)
        placement, trial = initial_placement(signature)
        unshared = functools.partial(self.unshared, version, key)
        placed = functools.partial(self.placed, version, key)
        kind: Callable[..., Runner] = functools.partial(
            Runner, max_rows=self.max_rows, twin=twin, only_narrow=self.engine.is_narrow(model)
        )
        if batching is not None and signature.batchable:
            kind = functools.partial(BatchQueue, parameters=batching, metrics=self.metrics)
        return kind(
            model,
            signature,
            placement=placement,
            trial=trial,
            threads=self.threads,
            loop=self.loop,
            unshared=unshared,
            placed=placed,
            report=functools.partial(self.scheduled, version, key),
        )

    async def load_beside(
        self, versions: Sequence[ModelVersion], *, load: Callable[[ModelVersion], Servable] | None = None
    ) -> list[Servable]:
        """Load versions on a thread while the server serves others.

        The server does not wait for the thread at shutdown; versions loaded after a cancellation are freed.

        Args:
            load: Loads one version on the thread. Default: `load`.

        Raises:
            StartFailed: As for `load`; versions loaded before the failed one are freed.
        """
        result: asyncio.Future[list[Servable]] = self.loop.create_future()

        def conclude(loaded: list[Servable], error: BaseException | None) -> None:
            if error is None and not result.done():
                result.set_result(loaded)
                return
            for servable in loaded:
                servable.close()
            if error is not None and not result.done():
                result.set_exception(error)

        def load_all() -> None:
            loaded: list[Servable] = []
            failure: BaseException | None = None
            try:
                loaded.extend(map(load or self.load, versions))  # also keeps versions loaded before one that fails
            except BaseException as error:  # noqa: BLE001  # it is raised by the await of the versions
                failure = error
            self.loop.call_soon_threadsafe(conclude, loaded, failure)

        threading.Thread(target=load_all, name="load", daemon=True).start()
        return await result
