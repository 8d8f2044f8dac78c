"""The load generator of the benchmarks of serving: HTTP/1.1 over connections that stay open, in this process.

`closed_loop` has a number of connections that each send a request when the answer to the one before has arrived.
`open_loop` sends requests at random times (Poisson), whether or not earlier ones were answered; the latency counts from
the intended time, so that a server that stalls is charged for all requests that would have arrived meanwhile.
"""

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvloop

__all__ = ["Load", "closed_loop", "open_loop", "request_of"]

PATIENCE_S = 60
MOST_CONNECTIONS = 512


@dataclass(frozen=True)
class Load:
    """What clients saw.

    Attributes:
        requests: Number of requests, all of them answered with status 200.
        seconds: Time from the first request to the last answer.
        p50_ms: Median of the latencies.
        p99_ms: 99th percentile of the latencies.
    """

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float

    @property
    def rps(self) -> float:
        """Answers per second."""
        return self.requests / self.seconds


def request_of(target: str, body: bytes, content_type: str = "application/json") -> bytes:
    """Return a POST request, head and body."""
    head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def closed_loop(port: int, requests: Sequence[bytes], *, connections: int, seconds: float, least: int = 1) -> Load:
    """Send requests over a number of connections, each of them busy all the time.

    Args:
        port: Port of the server on 127.0.0.1.
        requests: Sent in turn; the connections begin at different ones.
        connections: Number of connections.
        seconds: No connection sends after this time. All answers are waited for.
        least: Number of requests that each connection sends in any case.

    Raises:
        RuntimeError: An answer was not of status 200.
    """
    return uvloop.run(_closed_loop(port, requests, connections, seconds, least))


def open_loop(port: int, requests: Sequence[bytes], *, rate: float, seconds: float, seed: int) -> Load:
    """Send requests at random times, on as many connections as are needed.

    With more than 512 requests on their way, further ones wait here, which their latencies include.

    Args:
        port: Port of the server on 127.0.0.1.
        requests: Sent in turn.
        rate: Mean number of requests per second.
        seconds: Time of the arrivals. All answers are waited for.
        seed: Determines the times, so that contenders get the same ones.

    Raises:
        RuntimeError: An answer was not of status 200.
    """
    return uvloop.run(_open_loop(port, requests, rate, seconds, seed))


class Client(asyncio.Protocol):
    """A connection with at most one request on its way.

    Args:
        answered: Called with the client after each answer.
        failed: Called with the error if the answer is not of status 200, or the connection ends before it.
    """

    def __init__(self, answered: Callable[["Client"], None], failed: Callable[[Exception], None]) -> None:
        self.answered, self.failed = answered, failed
        self.buffer = b""
        self.missing: int | None = None
        self.begin_s = 0.0
        self.sent = 0
        self.turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: bytes, begin_s: float) -> None:
        """Send a request whose latency counts from ``begin_s``, a time of `time.perf_counter`."""
        self.begin_s = begin_s
        self.sent += 1
        self.transport.write(request)  # type: ignore[attr-defined]  # pyrefly: ignore[missing-attribute]

    def data_received(self, data: bytes) -> None:
        if self.missing is None:
            self.buffer += data
            head, found, body = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            if not head.startswith(b"HTTP/1.1 200") or not length:
                self.failed(RuntimeError(self.buffer[:500].decode(errors="replace")))
                return
            self.missing = int(length) - len(body)
        else:
            self.missing -= len(data)
        if self.missing <= 0:
            self.buffer, self.missing = b"", None
            self.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.begin_s:
            self.failed(exc or RuntimeError("the server closed the connection"))


async def _closed_loop(port: int, requests: Sequence[bytes], connections: int, seconds: float, least: int) -> Load:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    times_s: list[float] = []
    busy, count = connections, len(requests)

    def answered(client: Client) -> None:
        nonlocal busy
        now_s = time.perf_counter()
        times_s.append(now_s - client.begin_s)
        if now_s < until_s or client.sent < least:
            client.turn = (client.turn + 1) % count
            client.send(requests[client.turn], now_s)
            return
        client.begin_s = 0.0
        busy -= 1
        if not busy:
            done.set_result(None)

    clients = [await _connect(port, answered, done) for _ in range(connections)]
    begin_s = time.perf_counter()
    until_s = begin_s + seconds
    for index, client in enumerate(clients):
        client.turn = index % count
        client.send(requests[client.turn], time.perf_counter())
    await asyncio.wait_for(done, seconds + PATIENCE_S)
    elapsed_s = time.perf_counter() - begin_s
    for client in clients:
        client.transport.close()
    return _summary(times_s, elapsed_s)


async def _open_loop(port: int, requests: Sequence[bytes], rate: float, seconds: float, seed: int) -> Load:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    arrivals_s = _arrivals(rate, seconds, seed)
    times_s: list[float] = []
    waiting: deque[tuple[bytes, float]] = deque()
    turns = itertools.cycle(requests)

    def answered(client: Client) -> None:
        times_s.append(time.perf_counter() - client.begin_s)
        client.begin_s = 0.0
        if waiting:
            client.send(*waiting.popleft())
        else:
            idle.append(client)
        if len(times_s) == len(arrivals_s) and not done.done():
            done.set_result(None)

    idle = [await _connect(port, answered, done) for _ in range(32)]
    clients = list(idle)
    begin_s = time.perf_counter()
    for arrival_s in arrivals_s:
        due_s = begin_s + arrival_s
        if (pause_s := due_s - time.perf_counter()) > 0:
            await asyncio.to_thread(time.sleep, pause_s)  # the loop's own timers count whole milliseconds
        if not idle and len(clients) < MOST_CONNECTIONS:
            clients.append(await _connect(port, answered, done))
            idle.append(clients[-1])
        if idle:
            idle.pop().send(next(turns), due_s)
        else:
            waiting.append((next(turns), due_s))
    await asyncio.wait_for(done, seconds + PATIENCE_S)
    elapsed_s = time.perf_counter() - begin_s
    for client in clients:
        client.transport.close()
    return _summary(times_s, elapsed_s)


def _arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    generator = random.Random(seed)
    gaps = iter(lambda: generator.expovariate(rate), None)
    times = list(itertools.takewhile(lambda time_s: time_s < seconds, itertools.accumulate(gaps)))
    return times or [0.0]


async def _connect(port: int, answered: Callable[[Client], None], done: asyncio.Future[None]) -> Client:
    def failed(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: Client(answered, failed), "127.0.0.1", port)
    return client


def _summary(times_s: list[float], elapsed_s: float) -> Load:
    times_s.sort()
    p50_s, p99_s = (times_s[int(len(times_s) * part)] for part in (0.5, 0.99))
    return Load(len(times_s), elapsed_s, p50_s * 1e3, p99_s * 1e3)
