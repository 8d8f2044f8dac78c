"""Call a method of a model for one request: read the body, submit the job, and answer with its outputs.

Large bodies are read on threads. A megabyte of text takes tens of milliseconds, for which an event loop that reads it
would delay all other requests. Small ones are read in less time than a hand-over to a thread takes.
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from tidemill_serving.batching import Job
from tidemill_serving.engine import Array, LoadedModel, Signature
from tidemill_serving.errors import Code, RequestError
from tidemill_serving.http.message import JSON_TYPE, HttpRequest, Reply, Response, error_response
from tidemill_serving.metrics import Metrics
from tidemill_serving.processors import num_processors
from tidemill_serving.registry import Servable
from tidemill_serving.rest.examples import answer_examples, read_examples
from tidemill_serving.rest.predict import DEFAULT_SIGNATURE, PredictRequest, answer, read_request

_LOOP_BYTES = 65_536
_MAX_READERS = 4  # reading in Python holds the interpreter's lock most of the time
_CACHED_HEADERS = 512
_VERSION_HEADER = b"x-tidemill-model-version"
_OVER = RequestError(Code.CANCELLED, "the client did not wait for the answer")


class PredictFormat(NamedTuple):
    """The format of a predict request and of its answer.

    Attributes:
        read: Reads a body; raises RequestError. Bodies of more than 64 KiB are read on any thread.
        write: Writes the outputs; raises RequestError.
        content_type: MIME type of the answer.
    """

    read: Callable[[bytes, LoadedModel], PredictRequest]
    write: Callable[[PredictRequest, Sequence[Array]], bytes]
    content_type: bytes


JSON_FORMAT = PredictFormat(read_request, answer, JSON_TYPE)


class ModelCalls:
    """Calls methods of models. Used on the event loop.

    Args:
        metrics: Records the calls.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._readers = ThreadPoolExecutor(min(num_processors(), _MAX_READERS), thread_name_prefix="read")

    def call(
        self, servable: Servable, verb: str, request: HttpRequest, reply: Reply, *, form: PredictFormat = JSON_FORMAT
    ) -> None:
        """Call a method of a model; the answer may come after this returns.

        Args:
            servable: The version.
            verb: ``predict``, ``classify`` or ``regress``.
            request: Its body is JSON, unless ``form`` has another format.
            reply: Called with the answer.
            form: Format of predict requests; ``classify`` and ``regress`` have JSON.

        Raises:
            RequestError: The request is refused, or its body, if it is small, cannot be read.
        """
        call = _Call(servable, verb, request, reply, form, self._metrics, time.perf_counter())
        try:
            _refuse_unread(servable, request.body)
            if len(request.body) <= _LOOP_BYTES:
                call.submit(call.read())
                return
        except RequestError as error:
            call.record(error.code)
            raise
        servable.leases.enter()
        reading = asyncio.get_running_loop().run_in_executor(self._readers, call.read)
        reading.add_done_callback(call.submit_read)


class _Read(NamedTuple):
    """A request that was read.

    Attributes:
        to_body: Writes the outputs; raises RequestError.
        content_type: MIME type of the answer.
    """

    signature: Signature
    feeds: list[Array]
    to_body: Callable[[list[Array]], bytes]
    content_type: bytes


@dataclass(frozen=True, slots=True)
class _Call:
    servable: Servable
    verb: str
    request: HttpRequest
    reply: Reply
    form: PredictFormat
    metrics: Metrics
    begin_s: float

    def record(self, code: Code) -> None:
        """Record the answer."""
        name, latency_s = self.servable.version.name, time.perf_counter() - self.begin_s
        self.metrics.request(name, self.verb.capitalize(), "REST", status=code.name, latency_s=latency_s)

    def read(self) -> _Read:
        """Read the body, on any thread.

        Raises:
            RequestError: It cannot be read, or nobody waits for the answer any more.
        """
        body, model, form = self.request.body, self.servable.model, self.form
        if self.request.is_over():
            raise _OVER
        if self.verb == "predict":
            predict = form.read(body, model)
            return _Read(predict.signature, predict.feeds, partial(form.write, predict), form.content_type)
        examples = read_examples(body, model, verb=self.verb)
        return _Read(examples.signature, examples.feeds, partial(answer_examples, examples), JSON_TYPE)

    def submit_read(self, reading: "asyncio.Future[_Read]") -> None:
        """Submit what a thread has read, or answer with the error."""
        try:
            self.submit(reading.result())
        except RequestError as error:
            self.record(error.code)
            self.reply(error_response(error))
        except Exception as error:  # noqa: BLE001  # an error of one request must not stop the server
            self.record(Code.INTERNAL)
            self.reply(error_response(internal_error(error)))
        finally:
            self.servable.leases.leave()

    def submit(self, read: _Read) -> None:
        """Submit the job."""
        begin_s = time.perf_counter()
        servable, signature, feeds = self.servable, read.signature, read.feeds

        def done(result: list[Array] | RequestError) -> None:
            latency_s = time.perf_counter() - begin_s
            self.metrics.run(servable.version.name, self.verb.capitalize(), rows=(rows,), latency_s=latency_s)
            self.reply(self._response(result, read))
            if servable.recorder is not None and not isinstance(result, RequestError):
                servable.recorder.record_run(self.verb, servable, signature, feeds, result)

        job = Job(feeds, done, self.request.is_over)
        rows = job.rows  # if `done` referred to the job, each request would leave a cycle for the garbage collector
        servable.runners[signature.key].submit(job)

    def _response(self, result: list[Array] | RequestError, read: _Read) -> Response:
        if isinstance(result, RequestError):
            self.record(result.code)
            return error_response(result)
        try:
            headers = version_header(self.servable.version.version)
            response = Response(200, read.to_body(result), read.content_type, headers)
        except RequestError as error:
            self.record(error.code)
            return error_response(error)
        except Exception as error:  # noqa: BLE001  # an answer that cannot be written is one request's failure
            self.record(Code.INTERNAL)
            return error_response(internal_error(error))
        self.record(Code.OK)
        return response


def _refuse_unread(servable: Servable, body: bytes) -> None:
    """Refuse a request for the default signature during an overload, without reading its body.

    Raises:
        RequestError: UNAVAILABLE.
    """
    runner = servable.runners.get(DEFAULT_SIGNATURE)
    if runner is None or not runner.schedule.admission.is_overloaded or b"signature_name" in body:
        return
    refused = runner.refusal_unread()
    if refused is not None:
        raise refused


def internal_error(error: Exception) -> RequestError:
    """Log the traceback of a server error, and return the error for the client.

    Args:
        error: The exception.
    """
    traceback.print_exception(error, file=sys.stderr)
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")


@lru_cache(maxsize=_CACHED_HEADERS)
def version_header(version: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header that names the version which answered, as headers of an answer."""
    return ((_VERSION_HEADER, b"%d" % version),)
