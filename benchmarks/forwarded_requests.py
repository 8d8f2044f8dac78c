"""Measure the CPU time that a request takes more when the model server is on another machine.

    python benchmarks/forwarded_requests.py MODEL_DIRECTORY [--requests 4000] [--rounds 7]

MODEL_DIRECTORY is a directory of versions of a SavedModel that takes `{"instances": [1.0]}`, or what `--body` names.
One model server listens on a unix socket. In turns, the service's invoker calls it there, and through the relay of an
agent with TLS, which runs in a process of its own on the same machine. Everything but the network is counted: invoker
and relay, in microseconds of CPU a request.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from control_plane import cpu_s
from tidemill.control.invoker import Invoker, Unreachable
from tidemill.core.instances import ObjectReference
from tidemill.executors.base import RelayedServer, UnixServer
from tidemill.node.relay import Relay, Relaying

SECRET = "5e" * 32
HEADERS = {"content-type": "application/json"}


async def no_archive(archive: ObjectReference, name: str) -> str:
    return "not here"


async def relay(socket: Path) -> None:
    """Serve as a relay, after printing port and certificate."""
    opened = Relay("127.0.0.1", Relaying(server=socket, secret=SECRET, bring=no_archive))
    sys.stdout.write(f"{opened.port}\n{opened.certificate}\n.\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


def start_relay(socket: Path) -> tuple["subprocess.Popen[str]", RelayedServer]:
    process = subprocess.Popen([sys.executable, __file__, "--relay", str(socket)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    port = int(process.stdout.readline())
    certificate = "".join(iter(process.stdout.readline, ".\n"))
    return process, RelayedServer(host="127.0.0.1", port=port, certificate=certificate, secret=SECRET)


async def in_service(invoker: Invoker, send: Callable[[], Awaitable[int]]) -> None:
    for _ in range(600):
        try:
            if (await invoker.get("/ping", timeout_s=5)).status == 200 and await send() == 200:
                return
        except (Unreachable, TimeoutError):
            pass
        await asyncio.sleep(0.2)
    raise SystemExit("the model server does not answer")


async def measure(socket: Path, arguments: argparse.Namespace) -> None:
    process, relayed = start_relay(socket)
    invokers = {"local": Invoker(UnixServer(socket)), "forwarded": Invoker(relayed)}
    body = arguments.body.encode()

    def sender(invoker: Invoker) -> Callable[[], Awaitable[int]]:
        async def send() -> int:
            return (await invoker.send("POST", "/invocations", body, headers=HEADERS, timeout_s=60)).status

        return send

    async def load(send: Callable[[], Awaitable[int]], connections: int, requests: int) -> None:
        async def some() -> None:
            for _ in range(requests // connections):
                assert await send() == 200

        await asyncio.gather(*(some() for _ in range(connections)))

    try:
        await in_service(invokers["local"], sender(invokers["local"]))
        for connections in (1, 8, 32):
            costs: dict[str, list[float]] = {name: [] for name in invokers}
            for send in map(sender, invokers.values()):
                await load(send, connections, arguments.requests // 4)
            for _ in range(arguments.rounds):
                for name, invoker in invokers.items():
                    own, of_relay = time.process_time(), cpu_s(process.pid)
                    await load(sender(invoker), connections, arguments.requests)
                    used_s = time.process_time() - own + cpu_s(process.pid) - of_relay
                    costs[name].append(used_s / arguments.requests * 1e6)
            more = [far - near for near, far in zip(costs["local"], costs["forwarded"], strict=True)]
            print(
                f"{connections:2d} connections: local {statistics.median(costs['local']):.0f} us of CPU a request,"
                f" forwarded {statistics.median(costs['forwarded']):.0f} us; {statistics.median(more):.0f} us more"
                f" ({min(more):.0f} to {max(more):.0f}); limit 150"
            )
    finally:
        process.kill()
        process.wait()
        for invoker in invokers.values():
            invoker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--body", default='{"instances": [1.0]}')
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--python", type=Path, default=Path(".venvs/tf-2.21/bin/python"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "serving.sock"
        command = [arguments.python, "-m", "tidemill_serving", "--model-dir", arguments.directory]
        server = subprocess.Popen([*command, "--unix-socket", socket], stdout=subprocess.DEVNULL)
        try:
            uvloop.run(measure(socket, arguments))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--relay"]:
        asyncio.run(relay(Path(sys.argv[2])))
    else:
        main()
