"""Room for instances: first come, first served."""

import asyncio

from tidemill.control.slots import Share, SlotHolder, Slots


def job(name: str) -> SlotHolder:
    return SlotHolder("training-job", name)


A, B, C, D = (job(name) for name in "abcd")


async def run_ready_tasks() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def _fifo() -> list[str]:
    slots = Slots(lambda: 2)
    assert slots.try_take(A, 1)
    assert slots.try_take(B, 1)
    order: list[str] = []

    async def run(name: str, count: int) -> None:
        await slots.take(job(name), count)
        order.append(name)

    tasks = []
    for name, count in (("first", 2), ("second", 1), ("third", 1)):
        tasks.append(asyncio.create_task(run(name, count)))
        await run_ready_tasks()
    assert slots.shares == (Share(A, 1, 0), Share(B, 1, 0))
    assert [(share.holder.name, share.count) for share in slots.queue] == [("first", 2), ("second", 1), ("third", 1)]
    slots.release(A)
    await run_ready_tasks()
    assert order == [], "the second may not overtake the first, although it would fit"
    slots.release(B)
    await run_ready_tasks()
    assert order == ["first"]
    assert slots.shares == (Share(job("first"), 2, 0),)
    slots.release(job("first"))
    await asyncio.gather(*tasks)
    return order


def test_a_small_job_does_not_overtake_a_large_one() -> None:
    assert asyncio.run(_fifo()) == ["first", "second", "third"]


async def _cancelled() -> int:
    slots = Slots(lambda: 1)
    assert slots.try_take(A, 1)
    waiting = asyncio.create_task(slots.take(B, 1))
    behind = asyncio.create_task(slots.take(C, 1))
    await run_ready_tasks()
    waiting.cancel()
    await run_ready_tasks()
    assert [share.holder for share in slots.queue] == [C]
    slots.release(A)
    await behind
    slots.release(C)
    return slots.free


def test_a_cancelled_wait_leaves_the_queue() -> None:
    assert asyncio.run(_cancelled()) == 1


async def _too_large() -> bool:
    slots = Slots(lambda: 2)
    assert slots.try_take(A, 1)
    large = asyncio.create_task(slots.take(B, 5))
    await run_ready_tasks()
    assert not large.done()
    slots.release(A)
    await large
    return slots.try_take(C, 1)


def test_a_job_larger_than_the_machine_runs_alone() -> None:
    assert asyncio.run(_too_large()) is False


def test_a_job_with_gpus_waits_for_them_and_no_job_overtakes_it() -> None:
    async def run() -> None:
        slots = Slots(lambda: 4, gpus=lambda: 2)
        assert slots.try_take(A, 1, gpus=2)
        assert slots.try_take(B, 1)
        waiting = asyncio.create_task(slots.take(C, 1, gpus=1))
        behind = asyncio.create_task(slots.take(D, 1))
        await run_ready_tasks()
        assert not waiting.done()
        assert not behind.done()
        slots.release(A)
        await asyncio.gather(waiting, behind)
        assert slots.try_take(job("e"), 1, gpus=1)
        assert not slots.try_take(job("f"), 0, gpus=1)

    asyncio.run(run())


def test_slots_go_to_waiting_jobs_first() -> None:
    async def run() -> bool:
        slots = Slots(lambda: 2)
        slots.force(A, 1)
        slots.force(B, 1)
        waiting = asyncio.create_task(slots.take(C, 2))
        await run_ready_tasks()
        slots.release(A)
        taken = slots.try_take(D, 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return taken

    assert asyncio.run(run()) is False


def test_a_capacity_that_has_grown_lets_the_next_one_in() -> None:
    async def run() -> None:
        room = [1]
        slots = Slots(lambda: room[0])
        await slots.take(A, 1)
        waiting = asyncio.create_task(slots.take(B, 1))
        await run_ready_tasks()
        assert not waiting.done()
        room[0] = 2
        slots.grant_waiting()
        await waiting

    asyncio.run(run())
