"""The invoker with servers that answer, close, and die during a request."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
import uvloop

from tidemill.control.invoker import Invoker, Unreachable

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


def unix_url(path: Path) -> str:
    return f"http+unix://{quote(str(path), safe='')}"


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(4)


def post(invoker: Invoker) -> Awaitable[bytes]:
    async def send() -> bytes:
        return (await invoker.send("POST", "/invocations", b"body", headers={}, timeout_s=60)).body

    return send()


def test_a_connection_is_kept_for_the_next_request(tmp_path: Path) -> None:
    connections = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        for _ in range(2):
            await request(reader)
            writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve):
            invoker = Invoker(unix_url(tmp_path / "s"))
            assert [await post(invoker), await post(invoker)] == [b"ok", b"ok"]
            invoker.close()

    uvloop.run(main())
    assert len(connections) == 1


def test_a_kept_connection_that_was_closed_meanwhile_costs_nothing(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)

    async def main() -> None:
        async with server(tmp_path / "s", serve):
            invoker = Invoker(unix_url(tmp_path / "s"))
            for _ in range(3):
                assert await post(invoker) == b"ok"
                await asyncio.sleep(0.05)  # the end of file arrives when the loop is idle
            invoker.close()

    uvloop.run(main())


def test_a_request_that_a_dying_server_has_taken_is_not_sent_to_it_twice(tmp_path: Path) -> None:
    taken = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await request(reader))
        if len(taken) == 1:
            writer.write(ANSWER)
            taken.append(await request(reader))  # on the kept connection, after which the server dies

    async def main() -> None:
        async with server(tmp_path / "s", serve):
            invoker = Invoker(unix_url(tmp_path / "s"))
            assert await post(invoker) == b"ok"
            with pytest.raises(Unreachable) as caught:
                await post(invoker)
            assert caught.value.sent
            invoker.close()

    uvloop.run(main())
    assert len(taken) == 2


def test_a_request_that_no_server_has_read_may_be_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            invoker = Invoker(unix_url(tmp_path / "s"))
            sending = asyncio.ensure_future(post(invoker))
            connection, _ = await asyncio.to_thread(listener.accept)
            await asyncio.sleep(0.05)  # the request is in the socket, unread
            connection.close()
            with pytest.raises(Unreachable) as caught:
                await sending
            assert not caught.value.sent

    uvloop.run(main())


def test_a_missing_server_is_unreachable_and_received_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(Unreachable) as caught:
            await post(Invoker(unix_url(tmp_path / "s")))
        assert not caught.value.sent

    uvloop.run(main())


def test_a_server_is_called_over_tcp() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            invoker = Invoker(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
            assert await post(invoker) == b"ok"
            invoker.close()

    uvloop.run(main())


@pytest.mark.parametrize("url", ["/tmp/socket", "https://127.0.0.1:1", "http://127.0.0.1", "http+unix://"])
def test_an_address_that_is_no_url_of_an_endpoint_is_refused_and_named(url: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(url))):
        Invoker(url)
