"""The gRPC server. The event loop processes small predict calls; threads process all other calls.

For a small call, a thread costs more than the call's own work, because the thread waits for the interpreter's lock.
Calls that arrive in one turn of the event loop share a run of the model (`batching`).
"""

import asyncio
import concurrent.futures
import functools
import time
from collections.abc import Callable
from contextlib import suppress

from tidemill_serving.batching import Job
from tidemill_serving.engine import Array
from tidemill_serving.errors import Code, RequestError
from tidemill_serving.grpc_api.call import TOO_LATE, Call, status_of
from tidemill_serving.grpc_api.health import WATCH_PATH, Health
from tidemill_serving.grpc_api.listener import GrpcListener, bind_all
from tidemill_serving.grpc_api.lookup import lease, parsed, target
from tidemill_serving.grpc_api.methods import PREDICT_PATH, Answer, Reload, UnaryMethods
from tidemill_serving.grpc_api.prediction import Prepared, num_values, prepare, respond
from tidemill_serving.grpc_api.profiler import PROFILE_PATH, REMOTE, Profiler
from tidemill_serving.grpc_api.reflection import REFLECTION_PATHS, Reflection
from tidemill_serving.grpc_api.refusals import why_unimplemented
from tidemill_serving.grpc_api.settings import GrpcSettings
from tidemill_serving.grpc_api.streaming import StreamedCalls
from tidemill_serving.grpc_api.traffic import GrpcTraffic
from tidemill_serving.messages.definitions import messages
from tidemill_serving.metrics import Metrics
from tidemill_serving.registry import Registry, Servable

# Larger requests would block the event loop too long, so threads process them.
_HERE_BYTES = 16_384
_HERE_VALUES = 16_384

_CLOCK_S = 0.001  # how finely the event loop's clock counts: less time than this is none


class GrpcServer:
    """Serves a registry's models over gRPC.

    Args:
        metrics: Records the calls.
        loop: The running event loop.
        settings: See `GrpcSettings`.
        reload: Answers HandleReloadConfigRequest; None refuses such requests.

    Raises:
        StartFailed: None of the ports is free, or the path of the unix socket cannot be used.
    """

    def __init__(
        self,
        registry: Registry,
        metrics: Metrics,
        *,
        loop: asyncio.AbstractEventLoop,
        settings: GrpcSettings,
        reload: Reload | None,
    ) -> None:
        messages()  # creates the message classes before threads use them
        self._registry = registry
        self._metrics = metrics
        self._loop = loop
        self._settings = settings
        self._threads = concurrent.futures.ThreadPoolExecutor(settings.threads, thread_name_prefix="grpc")
        self._in_progress = 0
        self._health = Health(registry)
        unary = UnaryMethods(
            *(registry, metrics), loop=loop, health=self._health, as_content=settings.as_content, reload=reload
        )
        self._methods = unary.by_path
        if settings.profiler:
            self._methods[PROFILE_PATH] = Profiler().profile
        dialogs = dict.fromkeys(REFLECTION_PATHS, Reflection) | {WATCH_PATH: self._health.watch}
        self._streams = StreamedCalls(loop, dialogs)
        registry.watchers.append(self._streams.wake)
        streamed = dict.fromkeys(dialogs, self._streams)
        traffic = GrpcTraffic(loop, settings.limits, self._on_call, streamed, settings.channel)
        self._listener = GrpcListener(traffic)
        self.port, self._socks = bind_all(settings.host, settings.ports, settings.socket_path)

    async def start(self) -> None:
        """Start accepting calls."""
        for sock in self._socks:
            await self._listener.open(sock, tls=self._settings.tls)

    async def drain(self, *, timeout_s: float) -> bool:
        """Refuse new calls and wait for calls in progress; return whether all of them ended in time.

        Args:
            timeout_s: Longest wait in seconds.
        """
        self._health.stopping = True
        self._streams.close()
        in_time = await self._listener.drain(timeout_s=timeout_s)
        self._threads.shutdown(wait=False, cancel_futures=True)
        return in_time

    def _on_call(self, call: Call) -> None:
        """Start to process a complete call."""
        if call.head.timeout_fault:
            call.fail(Code.INVALID_ARGUMENT, f"grpc-timeout {call.head.timeout_fault!r} is no time")
            return
        method = self._methods.get(call.head.path)
        if method is None:
            call.fail(Code.UNIMPLEMENTED, why_unimplemented(call.head.path))
            return
        if call.head.path == PROFILE_PATH and not call.connection.is_local:
            call.fail(Code.PERMISSION_DENIED, REMOTE)
            return
        if self._in_progress >= self._settings.threads + self._settings.waiting:
            call.fail(Code.UNAVAILABLE, f"{self._in_progress} calls are in progress; try again later")
            return
        if self._left_s(call) <= 0:
            call.fail(Code.DEADLINE_EXCEEDED, TOO_LATE)
            return
        small = call.size_bytes <= _HERE_BYTES and not call.is_compressed
        if call.head.path != PREDICT_PATH:
            self._in_thread(call, functools.partial(self._called, method, call))
        elif not (small and self._predict_here(call)):
            self._in_progress += 1
            self._threads.submit(self._read_predict, call, time.perf_counter())

    # --- on the event loop ----------------------------------------------------------------------------------------

    def _predict_here(self, call: Call) -> bool:
        """Start a predict call on the event loop. Return False if the call may block the loop too long."""
        begin_s = time.perf_counter()
        servable: Servable | None = None
        try:
            request = parsed("PredictRequest", call.message(limit_bytes=self._settings.limits.body_bytes))
            name, version, label = target(request)
            servable = self._registry.find(name, version, label=label)
            if servable.recorder is not None:  # `UnaryMethods` records it
                return False
            if num_values(request) > _HERE_VALUES:
                return False
            prepared = prepare(request, servable)
        except Exception as error:  # noqa: BLE001  # an error of one call must not stop the server
            self._fail(call, error, servable, begin_s)
            return True
        self._submit_predict(call, servable, prepared, begin_s)
        return True

    def _submit_predict(self, call: Call, servable: Servable, prepared: Prepared, begin_s: float) -> None:
        """Run a predict call that was read."""
        self._in_progress += 1
        timer: asyncio.TimerHandle | None = None

        def done(outputs: list[Array] | RequestError) -> None:
            self._in_progress -= 1
            if timer is not None:
                timer.cancel()
            self._predicted(call, servable, prepared, job, outputs, begin_s)

        job = Job(prepared.feeds, done, lambda: call.is_over)
        runner = servable.runners[prepared.signature.key]
        if not runner.takes_here(job):  # the call can be over only if its run leaves the loop
            timer = self._loop.call_later(self._left_s(call), self._fail, call, TimeoutError(), servable, begin_s)
        runner.submit(job)

    def _predicted(
        self,
        call: Call,
        servable: Servable,
        prepared: Prepared,
        job: Job,
        outputs: list[Array] | RequestError,
        begin_s: float,
    ) -> None:
        """Answer a predict call after its run."""
        version = servable.version
        latency_s = time.perf_counter() - begin_s
        self._metrics.run(version.name, "Predict", rows=(job.rows,), latency_s=latency_s)
        if call.is_over:
            return
        if isinstance(outputs, RequestError):
            self._fail(call, outputs, servable, begin_s)
            return
        self._metrics.request(version.name, "Predict", "GRPC", status="OK", latency_s=latency_s)

        def answer() -> bytes:
            response = respond(prepared, servable, outputs, as_content=self._settings.as_content)
            return bytes(response.SerializeToString())

        if sum([array.nbytes for array in outputs]) > _HERE_BYTES:
            self._in_thread(call, answer)
            return
        try:
            call.answer(self._packed(call, answer()))
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(call, error, None, begin_s)

    def _fail(self, call: Call, error: Exception, servable: Servable | None, begin_s: float) -> None:
        """Answer a call with an error. Record the error in the metrics if the call's model version is known."""
        status = status_of(error)
        if servable is not None and not call.is_over:
            latency_s = time.perf_counter() - begin_s
            name = servable.version.name
            self._metrics.request(name, "Predict", "GRPC", status=status.code.name, latency_s=latency_s)
        call.fail(status.code, status.message)

    def _was_read(self, call: Call, servable: Servable, prepared: Prepared, begin_s: float) -> None:
        """Run a predict call that a thread has read. The run, once submitted, keeps the model version loaded."""
        self._in_progress -= 1
        try:
            if not call.is_over:
                self._submit_predict(call, servable, prepared, begin_s)
        finally:
            servable.leases.leave()

    def _was_not_read(self, call: Call, error: Exception, servable: Servable | None, begin_s: float) -> None:
        self._in_progress -= 1
        self._fail(call, error, servable, begin_s)

    # --- in threads -----------------------------------------------------------------------------------------------

    def _in_thread(self, call: Call, work: Callable[[], bytes]) -> None:
        self._in_progress += 1
        self._threads.submit(self._work, call, work)

    def _read_predict(self, call: Call, begin_s: float) -> None:
        """Read a predict call, which then waits for its run on the event loop, where it takes no thread."""
        servable: Servable | None = None
        conclude: Callable[[], None]
        try:
            if self._left_s(call) <= _CLOCK_S:
                raise TimeoutError
            request = parsed("PredictRequest", call.message(limit_bytes=self._settings.limits.body_bytes))
            servable = lease(request, self._registry)
            if servable.recorder is not None:  # `UnaryMethods` records it
                servable.leases.leave()
                self._work(call, functools.partial(self._called, self._methods[PREDICT_PATH], call))
                return
            prepared = prepare(request, servable)
            conclude = functools.partial(self._was_read, call, servable, prepared, begin_s)
        except Exception as error:  # noqa: BLE001  # as above
            if servable is not None:
                servable.leases.leave()
            conclude = functools.partial(self._was_not_read, call, error, servable, begin_s)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(conclude)

    def _work(self, call: Call, work: Callable[[], bytes]) -> None:
        answer: bytes | RequestError = b""
        try:
            if not call.is_over:
                answer = self._packed(call, work())
        except Exception as error:  # noqa: BLE001  # as above
            answer = status_of(error)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._worked, call, answer)

    def _worked(self, call: Call, answer: bytes | RequestError) -> None:
        self._in_progress -= 1
        if isinstance(answer, RequestError):
            call.fail(answer.code, answer.message)
        else:
            call.answer(answer)

    def _called(self, method: Answer, call: Call) -> bytes:
        left_s = self._left_s(call)
        if left_s <= _CLOCK_S:
            raise TimeoutError
        message = call.message(limit_bytes=self._settings.limits.body_bytes)
        return bytes(method(message, left_s).SerializeToString())

    def _packed(self, call: Call, message: bytes) -> bytes:
        """Return an answer as it is sent.

        Raises:
            RequestError: It is larger than answers may be.
        """
        channel = self._settings.channel
        if len(message) > channel.send_bytes:
            text = f"Sent message larger than max ({len(message)} vs. {channel.send_bytes})"
            raise RequestError(Code.RESOURCE_EXHAUSTED, text)
        return call.compressed(message, default=channel.compression)

    def _left_s(self, call: Call) -> float:
        """Return the time until a call's deadline, in seconds."""
        limit_s = self._settings.timeout_s
        if call.head.timeout_s is not None:
            limit_s = min(limit_s, call.head.timeout_s)
        return call.begin_s + limit_s - self._loop.time()
