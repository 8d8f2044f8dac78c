"""Overload the model server again and again, and check that it recovers and that nothing grows.

    .venvs/tf-2.21/bin/python benchmarks/serving_soak.py [--seconds 1800]

``make soak-serving`` runs it. A model whose rows cost several milliseconds each is served. First one client asks alone,
then eight clients, which gives the capacity. Then these take turns: requests arrive at ten times the capacity for some
seconds, whatever the answers; and one client asks alone again. The program fails unless every answer is 200, or 503
with Retry-After; some are refused during each overload; the first second after it ends with an answer of 200; and the
server's memory and threads at the end are those after the first turns. It prints the 99th percentiles of the accepted
requests, alone and over each whole overload, and their ratio.
"""

import argparse
import asyncio
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

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
OVERLOAD_S, PAUSE_S, TURNS_BEFORE = 8.0, 4.0, 3
TIMES_CAPACITY = 10
MEMORY_RATIO, MEMORY_KB = 1.1, 20_000


@dataclass
class Answers:
    """Latencies of accepted requests in seconds, and the number of refused ones."""

    accepted_s: list[float] = field(default_factory=list)
    refused: int = 0

    def p99_ms(self) -> float:
        ordered = sorted(self.accepted_s)
        return ordered[int(len(ordered) * 0.99)] * 1e3


class Client:
    """One connection."""

    async def open(self, port: int) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, answers: Answers) -> bool:
        """Send a request; return whether it was accepted."""
        begin_s = time.perf_counter()
        self.writer.write(REQUEST)
        head = await self.reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)content-length: (\d+)", head)
        await self.reader.readexactly(int(size[1]) if size else 0)
        if head.startswith(b"HTTP/1.1 200"):
            answers.accepted_s.append(time.perf_counter() - begin_s)
            return True
        if not head.startswith(b"HTTP/1.1 503") or b"retry-after" not in head.lower():
            raise SystemExit(f"an answer that is neither 200 nor 503 with Retry-After: {head!r}")
        answers.refused += 1
        return False


async def closed(port: int, clients: int, seconds: float) -> Answers:
    """Let clients ask, each after its last answer."""
    answers, end_s = Answers(), time.perf_counter() + seconds

    async def run() -> None:
        client = await Client().open(port)
        while time.perf_counter() < end_s:
            await client.ask(answers)
        client.writer.close()

    await asyncio.gather(*(run() for _ in range(clients)))
    return answers


async def arriving(port: int, rate: float, seconds: float) -> Answers:
    """Send requests at a rate, whatever the answers."""
    answers, free, tasks = Answers(), list[Client](), set[asyncio.Task[None]]()

    async def ask() -> None:
        client = free.pop() if free else await Client().open(port)
        await client.ask(answers)
        free.append(client)

    begin_s, sent = time.perf_counter(), 0
    while (passed_s := time.perf_counter() - begin_s) < seconds:
        while sent < passed_s * rate:
            sent += 1
            task = asyncio.ensure_future(ask())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    for client in free:
        client.writer.close()
    return answers


def state(process: int) -> tuple[int, int]:
    """Return the memory in KiB and the number of threads."""
    text = Path(f"/proc/{process}/status").read_text()
    found = [re.search(rf"{name}:\s+(\d+)", text) for name in ("VmRSS", "Threads")]
    memory, threads = (int(each[1]) if each else 0 for each in found)
    return memory, threads


async def soak(port: int, process: int, seconds: float) -> None:
    await closed(port, 8, 5)  # learns
    alone = await closed(port, 1, 5)
    capacity = len((await closed(port, 8, 5)).accepted_s) / 5
    print(f"alone: p99 {alone.p99_ms():.1f} ms; capacity {capacity:.0f} requests/s", flush=True)
    end_s, turn, first = time.perf_counter() + seconds, 0, (0, 0)
    while turn <= TURNS_BEFORE or time.perf_counter() < end_s:
        turn += 1
        answers = await arriving(port, TIMES_CAPACITY * capacity, OVERLOAD_S)
        assert answers.refused, "nothing was refused at ten times the capacity"
        begin_s, client, pause = time.perf_counter(), await Client().open(port), Answers()
        while not await client.ask(pause):
            assert time.perf_counter() - begin_s < 1, "requests are refused a second after the overload"
            await asyncio.sleep(0.02)
        client.writer.close()
        pause = await closed(port, 1, PAUSE_S)
        assert not pause.refused, "a client alone was refused"
        memory, threads = state(process)
        if turn == TURNS_BEFORE:
            first = memory, threads
        print(
            f"turn {turn}: {len(answers.accepted_s)} accepted, p99 {answers.p99_ms():.1f} ms,"
            f" {answers.p99_ms() / alone.p99_ms():.2f} of that alone;"
            f" {answers.refused} refused; then alone p99 {pause.p99_ms():.1f} ms; {memory} KiB, {threads} threads",
            flush=True,
        )
    assert memory <= first[0] * MEMORY_RATIO + MEMORY_KB, f"memory grew from {first[0]} to {memory} KiB"
    assert threads <= first[1], f"threads grew from {first[1]} to {threads}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, "-c", MODEL, directory], check=True, stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "tidemill_serving", "--model-dir", directory, "--port", "0"]
        log = Path(directory) / "log"
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
            try:
                while not (ready := re.search(r"server.ready .*http://127\.0\.0\.1:(\d+)", log.read_text())):
                    assert server.poll() is None, log.read_text()
                    time.sleep(0.1)
                asyncio.run(soak(int(ready[1]), server.pid, seconds))
            finally:
                server.send_signal(signal.SIGTERM)
                print(log.read_text()[-4000:])


if __name__ == "__main__":
    main()
