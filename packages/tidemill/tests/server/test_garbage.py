import asyncio
import gc
import weakref

from pytest import MonkeyPatch

from tidemill.server import garbage


class Node:
    """Refers to itself, so that only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


async def live() -> None:
    async with garbage.short_collections():
        node = Node()
        async with asyncio.timeout(30):
            while any(each is node for each in gc.get_objects()):  # the objects that collections examine
                await asyncio.sleep(0.01)


async def leave_garbage(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "FULL_COLLECTION_S", 0.05)
    async with garbage.short_collections():
        node = Node()
        gone = weakref.ref(node)
        gc.collect(0)
        assert not any(each is node for each in gc.get_objects())
        del node
        async with asyncio.timeout(30):
            while gone() is not None:
                await asyncio.sleep(0.01)


def test_living_objects_are_set_aside_although_few_are_created() -> None:
    before = gc.get_threshold()
    asyncio.run(live())
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_full_collection_finds_garbage_that_was_set_aside(monkeypatch: MonkeyPatch) -> None:
    asyncio.run(leave_garbage(monkeypatch))
    assert gc.get_freeze_count() == 0
