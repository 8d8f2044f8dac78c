"""What the metrics cost each request: CPU time of counting it, and of a trace's span, beside a loop that does neither.

    .venv/bin/python benchmarks/request_observation.py

The loops run in turn, so that the load of the machine is the same for all. Prints the median and the greatest of the
rounds, in microseconds of CPU.
"""

import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidemill.core.spans import Span
from tidemill.wire.observer import RequestObserver

ROUNDS = 15
REQUESTS = 20_000
OPERATIONS = [("sagemaker", f"Operation{number}", status) for number in range(50) for status in (200, 400)]


class _Dropped:
    def note(self, span: Span) -> None:
        pass


def cpu_us(observer: RequestObserver | None) -> float:
    """Return the CPU time of a request in microseconds."""
    request: Any = SimpleNamespace(headers={})
    begun_s = time.process_time()
    for number in range(REQUESTS):
        service, operation, status = OPERATIONS[number % len(OPERATIONS)]
        if observer is not None:
            began_s = time.perf_counter()
            span = observer.begin_span(request) if observer.traces else None
            observer.end(began_s, service, operation, status, span=span, request_id="id")
    return (time.process_time() - begun_s) / REQUESTS * 1e6


def main() -> None:
    """Print the costs."""
    cases: dict[str, Callable[[], RequestObserver | None]] = {
        "loop": lambda: None,
        "counted": lambda: RequestObserver(),
        "counted and traced": lambda: RequestObserver(_Dropped()),
    }
    rounds = [{name: cpu_us(make()) for name, make in cases.items()} for _ in range(ROUNDS)]
    for name in list(cases)[1:]:
        costs = [each[name] - each["loop"] for each in rounds]
        print(f"{name}: {statistics.median(costs):.2f} us, at most {max(costs):.2f} us")


if __name__ == "__main__":
    main()
