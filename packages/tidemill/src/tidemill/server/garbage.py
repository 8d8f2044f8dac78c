"""Configures Python's garbage collector so that no request waits long for it.

A full collection examines all objects while nothing else runs: 1.6 s in a service with 10,000 running instances. Most
of these objects live for hours. So objects that survive a collection are set aside. A full collection, during which
requests wait, runs ten minutes after the start, and then only when the process uses a quarter more memory than after
the last one. An object is still freed when its last reference goes; only objects in reference cycles wait for a full
collection, and they make the memory grow.

Python collects new objects when 700 more were created than freed since the last collection. In a service with a steady
load the two numbers are almost equal, so that hundreds of thousands of new objects gathered, for example the requests
of agents that wait ten seconds for their answers, and the next collection took 0.1 s. So new objects are also collected
at short intervals while the service works, and each second while it is idle.
"""

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncGenerator

FULL_COLLECTION_S = 600
"""Interval at which the memory is compared."""
FULL_COLLECTION_GROWTH = 1.25
YOUNG_COLLECTION_S = 0.02
IDLE_COLLECTION_S = 1.0
_IDLE_SHARE = 0.02
"""The service is idle while it uses less than this share of one processor."""
# The youngest generation is collected when it has grown by 700 objects. The others stay empty.
_THRESHOLDS = (700, 1_000_000, 1_000_000)


@contextlib.asynccontextmanager
async def short_collections() -> AsyncGenerator[None]:
    """Keep collections short until the end of the block."""
    before = gc.get_threshold()
    gc.freeze()  # without a collection, which would delay the start
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_set_aside)
    tasks = asyncio.create_task(_collect_young()), asyncio.create_task(_collect_regularly())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        gc.callbacks.remove(_set_aside)
        gc.set_threshold(*before)
        gc.unfreeze()


def _set_aside(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 0:
        gc.freeze()


async def _collect_young() -> None:
    wait_s = YOUNG_COLLECTION_S
    while True:
        used_s, since_s = time.process_time(), time.monotonic()
        await asyncio.sleep(wait_s)
        is_idle = time.process_time() - used_s < _IDLE_SHARE * (time.monotonic() - since_s)
        wait_s = IDLE_COLLECTION_S if is_idle else YOUNG_COLLECTION_S
        gc.collect(0)


async def _collect_regularly() -> None:
    used_bytes = 0
    while True:
        await asyncio.sleep(FULL_COLLECTION_S)
        if _resident_bytes() >= FULL_COLLECTION_GROWTH * used_bytes:
            _collect_all()
            used_bytes = _resident_bytes()


def _collect_all() -> None:
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _resident_bytes() -> int:
    import psutil  # takes 15 ms, which the start does not need

    return int(psutil.Process().memory_info().rss)
