"""Posting to a receiver: names that nothing answers for hold up no other part of the service."""

import asyncio
import socket
import threading

import pytest

from tidemill.control.webhooks.posting import NotDelivered, post


def test_a_name_that_nobody_answers_for_takes_neither_the_threads_of_the_loop_nor_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, released, look_up = threading.Semaphore(0), threading.Event(), socket.getaddrinfo

    def unanswered(host: str, *arguments: object, **named: object) -> object:
        if host != "receiver.invalid":
            return look_up(host, *arguments, **named)  # type: ignore[arg-type]
        asked.release()
        released.wait(30)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    async def run() -> None:
        posts = (post("http://receiver.invalid/", b"{}", {}, timeout_s=0.05) for _ in range(50))
        failures = await asyncio.gather(*posts, return_exceptions=True)
        assert {str(each) for each in failures} == {"no answer within 0.05 s"}
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(lambda: "a thread of the loop is free")

    monkeypatch.setattr("socket.getaddrinfo", unanswered)
    try:
        asyncio.run(run())  # which waits for the loop's threads
    finally:
        released.set()
    assert asked.acquire(blocking=False)


def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(ports: list[str]) -> int:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in ports]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        async with server:
            return await post(f"http://receiver.invalid:{port}/", b"", {})

    assert asyncio.run(run(["127.0.0.9", "127.0.0.1"])) == 204
    with pytest.raises(NotDelivered, match=r"receiver\.invalid has no address"):
        asyncio.run(run([]))
