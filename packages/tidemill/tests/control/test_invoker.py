"""The invoker with servers that answer, close, and die during a request, on this machine or behind a relay."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from tidemill.control.invoker import Invoker, Unreachable
from tidemill.core.instances import ObjectReference
from tidemill.errors import LaunchError
from tidemill.executors.base import RelayedServer, UnixServer
from tidemill.executors.cluster.relay_client import bring
from tidemill.node.relay import Relay, Relaying

SECRET = "5e" * 32
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(path: Path, serve: Serve) -> AsyncIterator[None]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # the client has disconnected
        finally:
            writer.close()

    async with await asyncio.start_unix_server(handle, path):
        yield


Reach = Callable[[Path], AbstractAsyncContextManager[Invoker]]


@asynccontextmanager
async def directly(path: Path) -> AsyncIterator[Invoker]:
    with closing(Invoker(UnixServer(path))) as invoker:
        yield invoker


async def no_archive(archive: ObjectReference, name: str) -> str:
    return f"no {name}"


@asynccontextmanager
async def relayed(path: Path, *, host: str = "127.0.0.1") -> AsyncIterator[Invoker]:
    relaying = Relaying(server=path, secret=SECRET, bring=no_archive)
    with closing(Relay(host, relaying)) as relay:
        address = RelayedServer(host=host, port=relay.port, certificate=relay.certificate, secret=SECRET)
        with closing(Invoker(address)) as invoker:
            yield invoker


@pytest.fixture(params=[directly, relayed])
def reach(request: pytest.FixtureRequest) -> Reach:
    """Return a function that yields an invoker of a server at a path."""
    return request.param


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(4)


def post(invoker: Invoker) -> Awaitable[bytes]:
    async def send() -> bytes:
        return (await invoker.send("POST", "/invocations", b"body", headers={}, timeout_s=60)).body

    return send()


def test_a_connection_is_kept_for_the_next_request(reach: Reach, tmp_path: Path) -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for _ in range(2):
            await request(reader)
            writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve), reach(tmp_path / "s") as invoker:
            assert [await post(invoker), await post(invoker)] == [b"ok", b"ok"]

    uvloop.run(main())
    assert len(connections) == 1


def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(reach: Reach, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve), reach(tmp_path / "s") as invoker:
            for _ in range(3):
                assert await post(invoker) == b"ok"
                await asyncio.sleep(0.05)  # the end of file arrives when the loop is idle

    uvloop.run(main())


def test_a_request_that_a_dying_server_has_taken_is_not_sent_to_it_twice(reach: Reach, tmp_path: Path) -> None:
    taken = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await request(reader))
        if len(taken) == 1:
            writer.write(ANSWER)
            taken.append(await request(reader))  # on the kept connection, after which the server dies

    async def main() -> None:
        async with server(tmp_path / "s", serve), reach(tmp_path / "s") as invoker:
            assert await post(invoker) == b"ok"
            with pytest.raises(Unreachable) as caught:
                await post(invoker)
            assert caught.value.sent

    uvloop.run(main())
    assert len(taken) == 2


def test_a_request_that_no_server_has_read_may_be_sent_again(reach: Reach, tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            async with reach(tmp_path / "s") as invoker:
                sending = asyncio.ensure_future(post(invoker))
                connection, _ = await asyncio.to_thread(listener.accept)
                await asyncio.sleep(0.05)  # the request is in the socket, unread
                connection.close()
                with pytest.raises(Unreachable) as caught:
                    await sending
                assert not caught.value.sent

    uvloop.run(main())


def test_a_missing_server_is_unreachable_and_received_nothing(reach: Reach, tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(Unreachable) as caught:
            async with reach(tmp_path / "s") as invoker:
                await post(invoker)
        assert not caught.value.sent

    uvloop.run(main())


def test_bodies_of_many_megabytes_pass_a_relay_in_both_directions(tmp_path: Path) -> None:
    body = bytes(range(256)) * 50_000

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body))
        writer.write(await reader.readexactly(len(body)))
        await writer.drain()

    async def main() -> None:
        async with server(tmp_path / "s", serve), relayed(tmp_path / "s") as invoker:
            every = (invoker.send("POST", "/invocations", body, headers={}, timeout_s=60) for _ in range(4))
            assert [answer.body == body for answer in await asyncio.gather(*every)] == [True] * 4

    uvloop.run(main())


def test_a_relay_may_have_an_address_of_ipv6(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve), relayed(tmp_path / "s", host="::1") as invoker:
            assert await post(invoker) == b"ok"

    uvloop.run(main())


def test_a_relay_serves_nobody_without_the_secret_and_is_believed_only_with_its_certificate(tmp_path: Path) -> None:
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await request(reader))
        writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve), relayed(tmp_path / "s") as good, relayed(tmp_path / "s") as other:
            assert isinstance(good.address, RelayedServer)
            assert isinstance(other.address, RelayedServer)
            for wrong in (
                replace(good.address, secret="5f" * 32),
                replace(good.address, certificate=other.address.certificate),
            ):
                with pytest.raises(Unreachable) as caught:
                    await post(Invoker(wrong))
                assert not caught.value.sent
            assert not asked
            assert await post(good) == b"ok"

    uvloop.run(main())


def test_strangers_who_say_nothing_or_nonsense_keep_nobody_waiting(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve), relayed(tmp_path / "s") as invoker:
            assert isinstance(invoker.address, RelayedServer)
            with ExitStack() as stack:
                place = invoker.address.host, invoker.address.port
                strangers = [stack.enter_context(socket.create_connection(place)) for _ in range(100)]
                for each in strangers[:50]:
                    each.sendall(b"GET / HTTP/1.1\r\n\r\n")
                async with asyncio.timeout(5):  # less than the time that each of them has
                    assert await post(invoker) == b"ok"

    uvloop.run(main())


def test_an_archive_that_an_agent_cannot_bring_is_named_with_the_reason(tmp_path: Path) -> None:
    archive = ObjectReference(uri="s3://b/m.tar.gz", name="m", content_id="c", size_bytes=1, sha256="0" * 64)

    async def main() -> None:
        async with relayed(tmp_path / "s") as invoker:
            assert isinstance(invoker.address, RelayedServer)
            with pytest.raises(LaunchError, match=r"s3://b/m\.tar\.gz cannot be copied to 127\.0\.0\.1: no m\.tar\.gz"):
                await asyncio.to_thread(bring, invoker.address, archive, name="m.tar.gz")
            with pytest.raises(LaunchError, match=r"cannot be copied to 127\.0\.0\.1"):
                await asyncio.to_thread(bring, replace(invoker.address, secret="0"), archive, name="m.tar.gz")

    uvloop.run(main())


RELAY = """
import asyncio, json, pathlib, sys
from tidemill.node.relay import Relay, Relaying

async def main():
    relay = Relay("127.0.0.1", Relaying(server=pathlib.Path(sys.argv[1]), secret=sys.argv[2], bring=None))
    print(json.dumps({"port": relay.port, "certificate": relay.certificate}), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_request_whose_agent_is_killed_may_be_sent_to_another_instance(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await request(reader)
            begun.set()
            await reader.read()

        async with server(tmp_path / "s", serve):
            with closing(Invoker(RelayedServer(host="127.0.0.1", secret=SECRET, **json.loads(said)))) as invoker:
                sending = asyncio.ensure_future(post(invoker))
                await begun.wait()
                agent.kill()
                with pytest.raises(Unreachable) as caught:
                    await sending
                assert not caught.value.sent

    command = [sys.executable, "-c", RELAY, str(tmp_path / "s"), SECRET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        said = agent.stdout.readline()
        uvloop.run(main())
