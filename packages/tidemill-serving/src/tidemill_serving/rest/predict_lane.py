"""Predict requests that arrive in one turn of the event loop, read, run and answered together.

`batching` lets such requests share a run of the model. For a small model everything around the run costs more than the
run itself: calls into the native library, jobs, callbacks. A lane shares these too. It supports the common case:
numbers, for the default signature of a model that runs on the event loop. All other requests take the general way, and
so do all requests of a batch whose run failed, so that each error has one source.
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Sequence

from tidemill_serving.batching import DEFAULT_MAX_ROWS
from tidemill_serving.engine import Array
from tidemill_serving.errors import RequestError
from tidemill_serving.http.message import HttpRequest, Reply, Response
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry, Servable
from tidemill_serving.rest.batch_json import BatchJson, ReadBatch, reads_batches
from tidemill_serving.rest.native_library import load_native_json
from tidemill_serving.rest.predict import DEFAULT_SIGNATURE, answer_frame
from tidemill_serving.rest.target import ModelTarget

_BODY_BYTES = 16_384  # reading the values of a larger body could block the event loop too long
_API = "Predict"
_Waiting = list[tuple[HttpRequest, Reply]]
_Headers = tuple[tuple[bytes, bytes], ...]


class PredictLane:
    """Answers the predict requests of one request target.

    Args:
        target: The model, and the version if the target names one.
        metrics: Records the requests that the lane answers.
        general: Answers requests that the lane does not support.
        headers: Returns the headers of an answer, given the version's number.
    """

    def __init__(
        self,
        target: ModelTarget,
        registry: Registry,
        metrics: Metrics,
        *,
        loop: asyncio.AbstractEventLoop,
        general: Callable[[HttpRequest, Reply], None],
        headers: Callable[[int], _Headers],
    ) -> None:
        self._target = target
        self._registry = registry
        self._metrics = metrics
        self._loop = loop
        self._general = general
        self._headers = headers
        self._waiting: _Waiting = []
        self._is_bypassed = False
        self._seen = 0
        self._since_s = 0.0
        self._servable: Servable | None = None
        self._version: _Version | None = None

    def add(self, request: HttpRequest, reply: Reply) -> None:
        """Queue a POST request; it is answered after the loop has read everything that arrived in this turn.

        Requests that cannot be answered together, since the model runs on threads, take the general way at once.

        Args:
            reply: Gets the response, on the event loop.
        """
        if self._is_bypassed:
            self._is_bypassed = self._find() is None
            if self._is_bypassed:
                self._general(request, reply)
                return
        if not self._waiting:
            self._since_s = time.perf_counter()
            self._loop.call_soon(self._flush)
        self._waiting.append((request, reply))

    def _flush(self) -> None:
        waiting = self._waiting
        if 1 + self._seen < len(waiting) < DEFAULT_MAX_ROWS:
            # Clients that got their answers together also send their next requests together, in the next turn.
            self._seen = len(waiting)
            self._loop.call_soon(self._flush)
            return
        self._waiting = []
        self._seen = 0
        version = self._find()
        if version is None:
            self._is_bypassed = True
            self._pass_on(waiting)
            return
        small = [each for each in waiting if len(each[0].body) <= _BODY_BYTES]
        if len(small) < len(waiting):
            self._pass_on([each for each in waiting if len(each[0].body) > _BODY_BYTES])
        while small and version.is_open:
            looked_at, not_taken = self._answer(version, small)
            self._pass_on(not_taken)
            small = small[looked_at:]
        self._pass_on(small)

    def _answer(self, version: "_Version", waiting: _Waiting) -> tuple[int, _Waiting]:
        try:
            return version.answer(waiting, since_s=self._since_s)
        except Exception:  # noqa: BLE001  # a defect here must not leave requests without an answer
            traceback.print_exc(file=sys.stderr)
            return len(waiting), waiting  # a second answer to a request is ignored

    def _pass_on(self, waiting: _Waiting) -> None:
        for request, reply in waiting:
            self._general(request, reply)

    def _find(self) -> "_Version | None":
        """Return the version to call, if its requests can be answered together."""
        target = self._target
        try:
            servable = self._registry.find(target.name, target.version, label=target.label)
        except RequestError:
            self._servable = self._version = None
            return None
        if servable.recorder is not None:  # requests are recorded one by one
            return None
        if servable is not self._servable:
            self._servable = servable
            self._version = _version(servable, self._metrics, self._headers(servable.version.version))
        return self._version if self._version is not None and self._version.is_open else None


class _Version:
    """Answers requests with one loaded version."""

    def __init__(self, servable: Servable, json: BatchJson, metrics: Metrics, headers: _Headers) -> None:
        self._name = servable.version.name
        self._runner = servable.runners[DEFAULT_SIGNATURE]
        self._json = json
        self._metrics = metrics
        self._headers = headers

    @property
    def is_open(self) -> bool:
        """Whether requests share runs on the event loop; a signature that proves slow moves to other threads."""
        return self._runner.shared_rows > 0

    def answer(self, waiting: _Waiting, *, since_s: float) -> tuple[int, _Waiting]:
        """Answer the first requests.

        Args:
            waiting: At least one request.
            since_s: Time when the first request arrived.

        Returns:
            The number of examined requests, and those of them that have to take the general way.
        """
        max_rows = self._runner.shared_rows
        batch = self._json.read([request.body for request, _reply in waiting[:max_rows]], max_rows=max_rows)
        looked_at = waiting[: len(batch.rows)]
        taken = [each for each, rows in zip(looked_at, batch.rows, strict=True) if rows > 0]
        if batch.feeds is None or batch.num_rows > max_rows or not self._run(batch, batch.feeds, taken, since_s):
            return len(looked_at), looked_at
        if len(taken) == len(looked_at):
            return len(looked_at), []
        return len(looked_at), [each for each, rows in zip(looked_at, batch.rows, strict=True) if rows <= 0]

    def _run(self, batch: ReadBatch, feeds: list[Array], taken: _Waiting, since_s: float) -> bool:
        """Run the model and answer; return False if each request has to run separately to get its own error."""
        rows = [each for each in batch.rows if each > 0]
        begin_s = time.perf_counter()
        outputs = self._runner.run_shared(feeds)
        latency_s = time.perf_counter() - begin_s
        if outputs is None:
            return False
        head, tail = answer_frame(row_form=batch.row_form)
        texts = self._json.write(outputs[0], rows, head=head, tail=tail)
        if texts is None:
            return False
        headers = self._headers
        for (_, reply), text in zip(taken, texts, strict=True):
            reply(Response(200, text, headers=headers))
        self._record(rows, run_s=latency_s, request_s=time.perf_counter() - since_s)
        return True

    def _record(self, rows: Sequence[int], *, run_s: float, request_s: float) -> None:
        self._metrics.run(self._name, _API, rows=rows, latency_s=run_s)
        self._metrics.request(self._name, _API, "REST", status="OK", latency_s=request_s, count=len(rows))


def _version(servable: Servable, metrics: Metrics, headers: _Headers) -> _Version | None:
    signature = servable.model.signatures.get(DEFAULT_SIGNATURE)
    library = load_native_json()
    if signature is None or isinstance(library, str) or not reads_batches(signature):
        return None
    return _Version(servable, BatchJson(signature, library=library), metrics, headers)
