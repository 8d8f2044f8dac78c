import asyncio
import gc
import weakref
from collections.abc import Callable

import psutil
import pytest

from tidemill.server import garbage


class Node:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self, *, size_bytes: int = 0) -> None:
        self.itself = self
        self.data = b"x" * size_bytes


async def live() -> None:
    async with garbage.short_collections():
        node = Node()
        async with asyncio.timeout(30):
            while any(each is node for each in gc.get_objects()):  # the objects that collections examine
                await asyncio.sleep(0.01)


async def leave_garbage(compared: list[int], *, size_bytes: int, until: Callable[[weakref.ref[Node]], bool]) -> None:
    async with garbage.short_collections(), asyncio.timeout(30):
        while len(compared) < 2:  # before and after the first full collection
            await asyncio.sleep(0.01)
        node = Node(size_bytes=size_bytes)
        gone = weakref.ref(node)
        gc.collect(0)
        assert not any(each is node for each in gc.get_objects())
        del node
        while not until(gone):
            await asyncio.sleep(0.01)


def test_living_objects_are_set_aside_although_few_are_created() -> None:
    before = gc.get_threshold()
    asyncio.run(live())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Compare the memory often; return the list of the measured values."""
    values: list[int] = []

    def resident_bytes() -> int:
        values.append(measure())
        return values[-1]

    measure = garbage._resident_bytes
    monkeypatch.setattr(garbage, "FULL_COLLECTION_S", 0.05)
    monkeypatch.setattr(garbage, "_resident_bytes", resident_bytes)
    return values


def test_a_full_collection_finds_garbage_that_was_set_aside(compared: list[int]) -> None:
    size_bytes = psutil.Process().memory_info().rss // 2
    asyncio.run(leave_garbage(compared, size_bytes=size_bytes, until=lambda node: node() is None))
    assert gc.get_freeze_count() == 0


def test_without_growth_of_the_memory_there_is_no_full_collection(compared: list[int]) -> None:
    def is_kept(node: "weakref.ref[Node]") -> bool:
        assert node() is not None
        return len(compared) >= 5

    asyncio.run(leave_garbage(compared, size_bytes=0, until=is_kept))
