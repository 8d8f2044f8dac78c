"""Room for instances: first come, first served."""

import asyncio

from tidemill.control.slots import Slots


async def run_ready_tasks() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def _fifo() -> list[str]:
    slots = Slots(lambda: 2)
    assert slots.try_take(2)
    order: list[str] = []

    async def job(name: str, count: int) -> None:
        await slots.take(count)
        order.append(name)

    tasks = []
    for name, count in (("first", 2), ("second", 1), ("third", 1)):
        tasks.append(asyncio.create_task(job(name, count)))
        await run_ready_tasks()
    slots.release(1)
    await run_ready_tasks()
    assert order == [], "the second may not overtake the first, although it would fit"
    slots.release(1)
    await run_ready_tasks()
    assert order == ["first"]
    slots.release(2)
    await asyncio.gather(*tasks)
    return order


def test_a_small_job_does_not_overtake_a_large_one() -> None:
    assert asyncio.run(_fifo()) == ["first", "second", "third"]


async def _cancelled() -> int:
    slots = Slots(lambda: 1)
    assert slots.try_take(1)
    waiting = asyncio.create_task(slots.take(1))
    behind = asyncio.create_task(slots.take(1))
    await run_ready_tasks()
    waiting.cancel()
    await run_ready_tasks()
    slots.release(1)
    await behind
    slots.release(1)
    return slots.free


def test_a_cancelled_wait_leaves_the_queue() -> None:
    assert asyncio.run(_cancelled()) == 1


async def _too_large() -> bool:
    slots = Slots(lambda: 2)
    assert slots.try_take(1)
    large = asyncio.create_task(slots.take(5))
    await run_ready_tasks()
    assert not large.done()
    slots.release(1)
    await large
    return slots.try_take(1)


def test_a_job_larger_than_the_machine_runs_alone() -> None:
    assert asyncio.run(_too_large()) is False


def test_a_job_with_gpus_waits_for_them_and_no_job_overtakes_it() -> None:
    async def run() -> None:
        slots = Slots(lambda: 4, gpus=lambda: 2)
        assert slots.try_take(1, gpus=2)
        assert slots.try_take(1)
        waiting = asyncio.create_task(slots.take(1, gpus=1))
        behind = asyncio.create_task(slots.take(1))
        await run_ready_tasks()
        assert not waiting.done()
        assert not behind.done()
        slots.release(1, gpus=2)
        await asyncio.gather(waiting, behind)
        assert slots.try_take(1, gpus=1)
        assert not slots.try_take(0, gpus=1)

    asyncio.run(run())


def test_slots_go_to_waiting_jobs_first() -> None:
    async def run() -> bool:
        slots = Slots(lambda: 2)
        slots.force(2)
        waiting = asyncio.create_task(slots.take(2))
        await run_ready_tasks()
        slots.release(1)
        taken = slots.try_take(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return taken

    assert asyncio.run(run()) is False


def test_a_capacity_that_has_grown_lets_the_next_one_in() -> None:
    async def run() -> None:
        room = [1]
        slots = Slots(lambda: room[0])
        await slots.take(1)
        waiting = asyncio.create_task(slots.take(1))
        await run_ready_tasks()
        assert not waiting.done()
        room[0] = 2
        slots.grant_waiting()
        await waiting

    asyncio.run(run())
