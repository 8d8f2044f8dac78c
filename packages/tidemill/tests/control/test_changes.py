"""The feed of changes: what viewers hear, and when; its bound."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tidemill.control.changes import Changed, ChangeFeed, Changes

JOB, ENDPOINT = "training-job", "endpoint"
Waiting = Callable[..., Coroutine[Any, Any, Changes]]


def waiting(feed: ChangeFeed) -> Waiting:
    """Return a function that waits as a viewer of all kinds."""

    def wait(token: str | None, **changes: Any) -> Coroutine[Any, Any, Changes]:
        return feed.wait(
            token, **{"looks_at": lambda each: True, "may_see": lambda each: True, "timeout_s": 60.0, **changes}
        )

    return wait


def test_a_viewer_hears_of_what_it_looks_at_and_may_see_and_of_nothing_twice() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB, ENDPOINT], collected_s=0.0)
        wait = waiting(feed)
        begin = await wait(None)
        assert begin.changed == () and not begin.everything
        feed.note([(JOB, "a"), ("credential", "secret")])
        feed.note([(JOB, "b"), (ENDPOINT, "c"), (JOB, "a")])
        found = await wait(begin.token)
        assert found.changed == ((JOB, "a"), (ENDPOINT, "c"), (JOB, "b"))
        assert (await wait(begin.token, looks_at=lambda each: each == (JOB, "b"))).changed == ((JOB, "b"),)
        hidden = await wait(begin.token, may_see=lambda each: each[0] == ENDPOINT)
        assert hidden.changed == ((ENDPOINT, "c"),)
        assert (await wait(found.token, timeout_s=0.0)).changed == ()

        def may_not(each: Changed) -> bool:
            assert each == (JOB, "b"), "permissions are only looked up for what the viewer looks at"
            return False

        assert (await wait(begin.token, looks_at=lambda each: each == (JOB, "b"), may_see=may_not, timeout_s=0.0)) == (
            Changes(token=found.token)
        )

    asyncio.run(run())


def test_a_waiting_viewer_is_woken_by_a_change_that_it_may_see_with_those_that_follow_at_once() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB], collected_s=0.01)
        wait = waiting(feed)
        token = (await wait(None)).token
        viewers = [asyncio.create_task(wait(token, looks_at=lambda each: each[1] != "other")) for _ in range(100)]
        blind = asyncio.create_task(wait(token, may_see=lambda each: each[1] == "c"))
        await asyncio.sleep(0)
        feed.note([(JOB, "other")])
        await asyncio.sleep(0)
        assert not any(viewer.done() for viewer in viewers)
        feed.note([(JOB, "a")])
        asyncio.get_running_loop().call_soon(feed.note, [(JOB, "b")])
        found = await asyncio.gather(*viewers)
        assert {each.changed for each in found} == {((JOB, "b"), (JOB, "a"))}
        assert not blind.done()
        feed.note([(JOB, "c")])
        assert (await blind).changed == ((JOB, "c"),)

    asyncio.run(run())


def test_a_token_of_another_start_or_of_forgotten_changes_means_that_anything_may_have_changed() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB], kept=3)
        wait = waiting(feed)
        begin = (await wait(None)).token
        for number in range(3):
            feed.note([(JOB, f"{number}")])
        known = await wait(begin)
        assert len(known.changed) == 3 and not known.everything
        feed.note([(JOB, "3")])
        lost = await wait(begin)
        assert lost.everything and lost.changed == ()
        assert (await wait(known.token)).changed == ((JOB, "3"),)
        other = await wait((await waiting(ChangeFeed([JOB]))(None)).token)
        assert other.everything and other.token == lost.token
        for strange in ("", "x", f"{begin.partition('.')[0]}.99", f"{begin.partition('.')[0]}.-1"):
            assert (await wait(strange)).everything, strange

    asyncio.run(run())


def test_the_memory_is_bounded_by_the_records_and_a_flood_is_not_listed() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB], kept=2000)
        wait = waiting(feed)
        begin = (await wait(None)).token
        for _ in range(50):
            feed.note([(JOB, f"{number}") for number in range(100)])
        assert len((await wait(begin)).changed) == 100, "each record counts once"
        feed.note([(JOB, f"{number}") for number in range(1500)])
        assert (await wait(begin)).everything

    asyncio.run(run())


def test_the_end_of_the_service_answers_viewers_at_once() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB])
        wait = waiting(feed)
        token = (await wait(None)).token
        viewer = asyncio.create_task(wait(token, timeout_s=3600.0))
        await asyncio.sleep(0)
        feed.close()
        assert await viewer == Changes(token=token)
        assert await wait(token, timeout_s=3600.0) == Changes(token=token), "also those that come later"

    asyncio.run(run())


def test_what_a_viewer_may_not_see_takes_a_bounded_time() -> None:
    async def run() -> None:
        feed = ChangeFeed([JOB])
        wait = waiting(feed)
        begin = (await wait(None)).token
        feed.note([(JOB, f"{number}") for number in range(5000)])
        asked: list[Changed] = []

        def may_not(each: Changed) -> bool:
            asked.append(each)
            return False

        found = await wait(begin, may_see=may_not, timeout_s=0.0)
        assert found.everything and found.changed == ()
        assert len(asked) <= 1000, "a policy decides about each"
        assert (await wait(f"{begin.partition('.')[0]}.{'9' * 5000}")).everything

    asyncio.run(run())
