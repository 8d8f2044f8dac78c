"""Request counts and latencies under TF Serving's metric names, in Prometheus's text format.

Any thread may record. Only existing models get series, so that clients cannot create an unlimited number of them.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence

DEFAULT_PATH = "/monitoring/prometheus/metrics"
"""Default path of TF Serving's metrics."""
PROMETHEUS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
_PREFIX = ":tensorflow:"
_LATENCY_BOUNDS = tuple(10 * 1.8**power for power in range(33))  # microseconds
_QUEUE_BOUNDS = tuple(100 * 1.2**power for power in range(52))  # microseconds
_EXAMPLE_BOUNDS = tuple(float(2**power) for power in range(15))
_RUNTIME = "TF1"
_COUNTERS = (
    "cc:saved_model:load_attempt_count",
    "cc:saved_model:load_latency",
    "serving:batching_session:wrapped_run_count",
    "serving:model_warmup_records_read",
    "serving:request_count",
    "serving:request_example_count_total",
    "serving:request_log_count",
)
_HISTOGRAMS = (
    "serving:batching_session:queuing_latency",
    "serving:model_warmup_latency",
    "serving:request_example_counts",
    "serving:request_latency",
    "serving:runtime_latency",
)
_Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class _Counter:
    """A counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class _Histogram:
    """Cumulative counts per bucket bound, and the sum of the values."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def lines(self, name: str, labels: _Labels) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f"{name}_bucket{_braces((*labels, ('le', bound)))} {total}"
        yield f"{name}_sum{_braces(labels)} {_number(self._sum)}"
        yield f"{name}_count{_braces(labels)} {total}"


class Metrics:
    """Records requests and renders what was recorded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # All names are there from the start: a monitor that finds none takes the server for another one.
        self._counters: dict[str, dict[_Labels, _Counter]] = {name: {} for name in _COUNTERS}
        self._histograms: dict[str, dict[_Labels, _Histogram]] = {name: {} for name in _HISTOGRAMS}
        # Caches the series of `request` and `run` by their arguments: both functions are called for each request.
        self._of_requests: dict[tuple[str, str, str, str], tuple[_Counter, _Histogram]] = {}
        self._of_runs: dict[tuple[str, str], tuple[_Histogram, _Histogram, _Counter]] = {}

    def request(self, model: str, api: str, entrypoint: str, *, status: str, latency_s: float, count: int = 1) -> None:
        """Record a request that was answered, or several that took the same time.

        Args:
            api: e.g. ``Predict``.
            entrypoint: ``REST`` or ``GRPC``.
            status: Name of a status code.
            latency_s: Time from the complete request to its answer.
        """
        series = self._of_requests.get((model, api, entrypoint, status)) or self._new_request(
            model, api, entrypoint, status
        )
        requests, latency = series
        with self._lock:
            requests.value += count
            latency.add(latency_s * 1e6, count)

    def run(self, model: str, api: str, *, rows: Sequence[int], latency_s: float) -> None:
        """Record a model run for one request or more, including the time they waited in a batch.

        Args:
            model: The model's name.
            api: e.g. ``Predict``.
            rows: Examples in each request.
            latency_s: Time from the complete feeds to the outputs.
        """
        latency, examples, total = self._of_runs.get((model, api)) or self._new_run(model, api)
        with self._lock:
            latency.add(latency_s * 1e6, len(rows))
            for each in rows:
                examples.add(each)
            total.value += sum(rows)

    def load(self, path: str, *, status: str, latency_s: float) -> None:
        """Record an attempt to load a version.

        Args:
            status: ``success`` or ``fail``.
            latency_s: Duration of the attempt.
        """
        model = ("model_path", path)
        with self._lock:
            self._counter("cc:saved_model:load_attempt_count", (model, ("status", status))).value += 1
            self._counter("cc:saved_model:load_latency", (model,)).value += round(latency_s * 1e6)

    def warm_up(self, path: str, *, requests: int, latency_s: float) -> None:
        """Record the warm-up of a version.

        Args:
            requests: Number of replayed requests.
            latency_s: Duration of the warm-up.
        """
        with self._lock:
            labels = (("model_path", path), ("status", "OK"))
            self._histogram("serving:model_warmup_latency", labels, _LATENCY_BOUNDS).add(latency_s * 1e6)
            self._counter("serving:model_warmup_records_read", (("model_path", path),)).value += requests

    def logged(self, model: str, *, status: str) -> None:
        """Record a request that was written to a log of requests, or could not be.

        Args:
            model: The model's name.
            status: Name of a status code.
        """
        with self._lock:
            self._counter("serving:request_log_count", (("model_name", model), ("status_code", status))).value += 1

    def batch(self, thread_pool: str, *, waits_s: Sequence[float]) -> None:
        """Record a batch that starts.

        Args:
            thread_pool: Name of the batching parameters' thread pool.
            waits_s: Time that each of its requests waited.
        """
        with self._lock:
            labels = (("thread_pool_name", thread_pool),)
            waits = self._histogram("serving:batching_session:queuing_latency", labels, _QUEUE_BOUNDS)
            for wait_s in waits_s:
                waits.add(wait_s * 1e6)

    def batch_run(self) -> None:
        """Record a run of a model for a batch, or for a part of one."""
        with self._lock:
            self._counter("serving:batching_session:wrapped_run_count", ()).value += 1

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        with self._lock:
            lines = [*self._counter_lines(), *self._histogram_lines()]
        return ("\n".join(lines) + "\n").encode()

    def _new_request(self, model: str, api: str, entrypoint: str, status: str) -> tuple[_Counter, _Histogram]:
        name = ("model_name", model)
        labels = (name, ("API", api), ("entrypoint", entrypoint))
        with self._lock:
            count = self._counter("serving:request_count", (name, ("status", status)))
            latency = self._histogram("serving:request_latency", labels, _LATENCY_BOUNDS)
            return self._of_requests.setdefault((model, api, entrypoint, status), (count, latency))

    def _new_run(self, model: str, api: str) -> tuple[_Histogram, _Histogram, _Counter]:
        name = ("model_name", model)
        labels = (name, ("API", api), ("runtime", _RUNTIME))
        with self._lock:
            latency = self._histogram("serving:runtime_latency", labels, _LATENCY_BOUNDS)
            examples = self._histogram("serving:request_example_counts", (name,), _EXAMPLE_BOUNDS)
            total = self._counter("serving:request_example_count_total", (name,))
            return self._of_runs.setdefault((model, api), (latency, examples, total))

    def _counter(self, name: str, labels: _Labels) -> _Counter:
        return self._counters[name].setdefault(labels, _Counter())

    def _histogram(self, name: str, labels: _Labels, bounds: tuple[float, ...]) -> _Histogram:
        return self._histograms[name].setdefault(labels, _Histogram(bounds))

    def _counter_lines(self) -> Iterator[str]:
        for name, series in sorted(self._counters.items()):
            yield f"# TYPE {_PREFIX}{name} counter"
            for labels, counter in sorted(series.items(), key=lambda item: item[0]):
                yield f"{_PREFIX}{name}{_braces(labels)} {counter.value}"

    def _histogram_lines(self) -> Iterator[str]:
        for name, series in sorted(self._histograms.items()):
            yield f"# TYPE {_PREFIX}{name} histogram"
            for labels, histogram in sorted(series.items(), key=lambda item: item[0]):
                yield from histogram.lines(_PREFIX + name, labels)


def _braces(labels: _Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels) + "}"


def _number(value: float) -> str:
    return f"{value:.10g}"
