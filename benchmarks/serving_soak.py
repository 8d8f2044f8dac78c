"""Overload the model server again and again, and check that it recovers and that nothing grows.

    .venvs/tf-2.21/bin/python benchmarks/serving_soak.py [--seconds 1800]

``make soak-serving`` runs it. A model whose rows cost several milliseconds each is served. First eight clients ask,
which gives the capacity, and then one alone. After that these take turns: requests arrive at ten times the capacity for
some seconds, whatever the answers; and one client asks alone again.

The 99th percentile of the accepted requests of an overload, its beginning included, is compared with those of the
client alone before and after it. Clients run on the server's processors, so their latencies include the time until
they run themselves. The server's own times, from ``/monitoring/scheduling``, are shown beside them: the larger one of
two windows of 512 answers.

At the end the program prints a verdict for each goal, and exits with status 1 if one is missed: every answer is 200, or
503 with Retry-After; some are refused during each overload; the first second after each ends with an answer of 200, and
nothing is refused afterwards; the ratios' median is at most 2; and the server's memory and threads at the end are those
after the first turns.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

MODEL = """
import sys, tensorflow as tf
class Heavy(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.random.stateless_normal((192, 192), (1, 2)) * 0.07)
    @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
    def predict(self, x):
        rows = tf.reshape(tf.tile(x, [1, 24 * 192]), [-1, 192, 192])
        for _ in range(60):
            rows = tf.tanh(tf.matmul(rows, self.w))
        return {"y": tf.reduce_sum(rows, [1, 2])}
heavy = Heavy()
tf.saved_model.save(heavy, sys.argv[1] + "/heavy/1", signatures={"serving_default": heavy.predict})
"""
BODY = b'{"instances": [[1, 2, 3, 4, 5, 6, 7, 8]]}'
REQUEST = b"POST /v1/models/heavy:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
SHOW = b"GET /monitoring/scheduling HTTP/1.1\r\nHost: x\r\n\r\n"
LEARNING_S, ALONE_S, OVERLOAD_S, PAUSE_S, TURNS_BEFORE = 5.0, 10.0, 8.0, 10.0, 3
RECOVERY_S = 1.0
TIMES_CAPACITY = 10
GOAL = 2.0
MEMORY_RATIO, MEMORY_KB = 1.1, 20_000


class Missed(Exception):
    """An answer that no server should give, or none."""


@dataclass
class Answers:
    """Latencies of accepted requests in seconds, how late requests were sent, and the number of refused ones."""

    accepted_s: list[float] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    refused: int = 0

    def p99_ms(self) -> float:
        return p99_ms(self.accepted_s)


@dataclass
class Turn:
    """An overload, and the client alone after it."""

    ratio: float
    recovered_s: float
    memory_kb: int
    threads: int


class Client(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self) -> None:
        self.buffer = b""
        self.done: Callable[[bytes, bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, request: bytes, done: Callable[[bytes, bytes], None]) -> None:
        """Send a request; ``done`` gets head and body of the answer, or nothing if the connection ends."""
        self.done = done
        self.transport.write(request)  # type: ignore[attr-defined]  # pyrefly: ignore[missing-attribute]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        if found and len(body) >= (int(size[1]) if size else 0):
            self.buffer = b""
            self.finish(head, body)

    def connection_lost(self, exc: Exception | None) -> None:
        self.finish(b"", b"")

    def finish(self, head: bytes, body: bytes) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(head, body)


class Load:
    """Sends requests over connections that stay open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.free: list[Client] = []

    async def connect(self) -> Client:
        _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
        return client

    async def free_client(self) -> Client:
        """Return a client without a request, on a connection that the server has not closed as idle."""
        while self.free:
            client = self.free.pop()
            if not client.transport.is_closing():
                return client
        return await self.connect()

    async def ask(self, client: Client, request: bytes) -> tuple[bytes, bytes]:
        """Return head and body of the answer."""
        answer: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        client.send(request, lambda head, body: answer.set_result((head, body)))
        return await answer

    async def server_p99_ms(self) -> float:
        """Return the 99th percentile of the server's last answers."""
        client = await self.connect()
        _, body = await self.ask(client, SHOW)
        client.transport.close()
        (signature,) = json.loads(body)["signatures"]
        return float(signature["milliseconds_of_last_answers"]["p99"])

    async def closed(self, clients: int, seconds: float) -> Answers:
        """Let clients ask, each after its last answer."""
        answers, end_s = Answers(), time.perf_counter() + seconds

        async def run() -> None:
            client = await self.connect()
            while (begin_s := time.perf_counter()) < end_s:
                count(answers, begin_s, (await self.ask(client, REQUEST))[0])
            client.transport.close()

        await asyncio.gather(*(run() for _ in range(clients)))
        return answers

    async def arriving(self, rate: float, seconds: float) -> Answers:
        """Send requests at a rate, whatever the answers."""
        answers, busy = Answers(), set[Client]()
        failed: list[BaseException] = []

        def send(client: Client) -> None:
            begin_s = time.perf_counter()

            def done(head: bytes, _: bytes) -> None:
                busy.discard(client)
                self.free.append(client)
                try:
                    count(answers, begin_s, head)
                except Missed as error:
                    failed.append(error)

            busy.add(client)
            client.send(REQUEST, done)

        first_s, sent = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - first_s) < seconds and not failed:
            while sent < passed_s * rate:
                answers.late_s.append(passed_s - sent / rate)
                sent += 1
                send(await self.free_client())
            await asyncio.sleep(0.001)
        end_s = time.perf_counter() + 60
        while busy and not failed:
            if time.perf_counter() > end_s:
                raise Missed(f"{len(busy)} requests have no answer a minute after the overload")
            await asyncio.sleep(0.01)
        if failed:
            raise failed[0]
        return answers


def count(answers: Answers, begin_s: float, head: bytes) -> bool:
    """Record an answer; return whether the request was accepted."""
    if head.startswith(b"HTTP/1.1 200"):
        answers.accepted_s.append(time.perf_counter() - begin_s)
        return True
    if not head.startswith(b"HTTP/1.1 503") or b"retry-after" not in head.lower():
        raise Missed(f"an answer that is neither 200 nor 503 with Retry-After: {head!r}")
    answers.refused += 1
    return False


def p99_ms(times_s: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    ordered = sorted(times_s)
    return ordered[int(len(ordered) * 0.99)] * 1e3


def state(process: int) -> tuple[int, int]:
    """Return the memory in KiB and the number of threads."""
    text = Path(f"/proc/{process}/status").read_text()
    found = [re.search(rf"{name}:\s+(\d+)", text) for name in ("VmRSS", "Threads")]
    memory, threads = (int(each[1]) if each else 0 for each in found)
    return memory, threads


async def soak(port: int, process: int, seconds: float) -> list[Turn]:
    """Take turns for some seconds, and for four turns at least."""
    load = Load(port)
    await load.closed(8, LEARNING_S)
    capacity = len((await load.closed(8, LEARNING_S)).accepted_s) / LEARNING_S
    alone_ms = (await load.closed(1, ALONE_S)).p99_ms()
    server_ms = await load.server_p99_ms()
    print(f"alone: p99 {alone_ms:.1f} ms, server {server_ms:.1f} ms; capacity {capacity:.0f} requests/s", flush=True)
    end_s, turns = time.perf_counter() + seconds, list[Turn]()
    while len(turns) <= TURNS_BEFORE or time.perf_counter() < end_s:
        overload = asyncio.ensure_future(load.arriving(TIMES_CAPACITY * capacity, OVERLOAD_S))
        await asyncio.wait((overload,), timeout=OVERLOAD_S / 2)
        halfway_ms = await load.server_p99_ms()
        answers = await overload
        overload_ms = max(halfway_ms, await load.server_p99_ms())
        if not answers.refused:
            raise Missed("nothing was refused at ten times the capacity")
        recovered_s = await recover(load)
        pause = await load.closed(1, PAUSE_S)
        if pause.refused:
            raise Missed(f"a client alone was refused {pause.refused} times")
        before_ms, alone_ms = alone_ms, pause.p99_ms()
        ratio = answers.p99_ms() / ((before_ms + alone_ms) / 2)
        turns.append(Turn(ratio, recovered_s, *state(process)))
        print(
            f"turn {len(turns)}: {len(answers.accepted_s)} accepted, p99 {answers.p99_ms():.1f} ms, {ratio:.2f} of that"
            f" alone (server {overload_ms:.1f} ms; sent {p99_ms(answers.late_s):.1f} ms late); {answers.refused}"
            f" refused; recovered in {recovered_s:.2f} s; alone p99 {alone_ms:.1f} ms (server"
            f" {await load.server_p99_ms():.1f} ms); {turns[-1].memory_kb} KiB, {turns[-1].threads} threads; load"
            f" average {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    return turns


async def recover(load: Load) -> float:
    """Return the time until a request is accepted."""
    begin_s, client = time.perf_counter(), await load.connect()
    while not count(Answers(), time.perf_counter(), (await load.ask(client, REQUEST))[0]):
        if time.perf_counter() - begin_s > RECOVERY_S:
            raise Missed(f"requests are refused {RECOVERY_S:g} s after the overload")
        await asyncio.sleep(0.02)
    client.transport.close()
    return time.perf_counter() - begin_s


def verdict(turns: list[Turn]) -> bool:
    """Print whether each goal is met; return whether all are."""
    first, last = turns[TURNS_BEFORE - 1], turns[-1]
    most_kb = first.memory_kb * MEMORY_RATIO + MEMORY_KB
    ratios = [turn.ratio for turn in turns]
    ratio = statistics.median(ratios)
    goals = {
        f"{len(turns)} overloads, each refused in part, and over within {max(each.recovered_s for each in turns):.2f} s"
        f" (at most {RECOVERY_S:g} s)": True,
        f"p99 of accepted requests, of that alone: median {ratio:.2f} (at most {GOAL:g}); first turn {ratios[0]:.2f},"
        f" highest {max(ratios):.2f}": ratio <= GOAL,
        f"memory {last.memory_kb} KiB (at most {most_kb:.0f})": last.memory_kb <= most_kb,
        f"threads {last.threads} (at most {first.threads})": last.threads <= first.threads,
    }
    for goal, is_met in goals.items():
        print("met:   " if is_met else "MISSED:", goal)
    return all(goals.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800, help="default: 1800")
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", MODEL, directory], check=True, stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "tidemill_serving", "--model-dir", directory, "--port", "0"]
        log = Path(directory) / "log"
        is_met = False
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
            try:
                while not (ready := re.search(r"server.ready .*http://127\.0\.0\.1:(\d+)", log.read_text())):
                    if server.poll() is not None:
                        raise Missed(f"the server ended at its start:\n{log.read_text()}")
                    time.sleep(0.1)
                is_met = verdict(uvloop.run(soak(int(ready[1]), server.pid, seconds)))
            except (Missed, OSError) as error:
                print("MISSED:", error)
            finally:
                server.send_signal(signal.SIGTERM)
        if server.returncode:
            print("MISSED: the server ended with status", server.returncode)
        if not is_met or server.returncode:
            print(f"the end of the server's log:\n{log.read_text()[-4000:]}")
            sys.exit("soak: FAILED")
    print("soak: passed")


if __name__ == "__main__":
    main()
