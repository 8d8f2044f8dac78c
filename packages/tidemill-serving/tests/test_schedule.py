"""What runs next and how, by the costs of earlier runs: with clocks and costs given by the tests."""

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tidemill_serving.admission import Admission
from tidemill_serving.batch_threads import BatchThreads, ThreadRun
from tidemill_serving.batching import Job, Runner, report_nothing
from tidemill_serving.cost_curve import CostCurve
from tidemill_serving.engine import Array, Engine, LoadedModel, Signature, TensorSpec
from tidemill_serving.engine.placement import Placement
from tidemill_serving.engine.twin import MAX_BYTES, Twin, new_twin
from tidemill_serving.errors import Code, RequestError
from tidemill_serving.schedule import RunSchedule

DEADLINE_S = 20
FLOATS = TensorSpec("x:0", np.dtype("float32"), "float", (-1,))
SIGNATURE = Signature("s", "predict", {"x": FLOATS}, {"y": FLOATS})


# --- rows of a run --------------------------------------------------------------------------------------------------


def learned(cost_s: Callable[[int], float], *, runs: int = 200, waiting: int = 32) -> CostCurve:
    curve = CostCurve(max_rows=32)
    for _ in range(runs):
        rows = curve.rows_for(waiting)
        curve.add(rows, cost_s(rows))
    return curve


def assert_fits(curve: CostCurve, cost_s: Callable[[int], float]) -> None:
    """The rows of a run are hardly dearer than with the best size, and no half as large run has rows as cheap."""
    chosen_s = cost_s(curve.choice) / curve.choice
    best_s = min(cost_s(rows) / rows for rows in (1, 2, 4, 8, 16, 32))
    assert chosen_s <= 1.3 * best_s, (curve.choice, curve.row_s)
    half = curve.choice // 2
    assert not half or cost_s(half) / half > chosen_s, (curve.choice, curve.row_s)


def linear(rows: int) -> float:
    return 0.02 * rows  # a convolutional network: each row costs the same


def flat(rows: int) -> float:
    return 0.005 + 0.000_01 * rows  # a recurrent network: the first row costs nearly all


def falling(rows: int) -> float:
    return 0.02 + 0.009 * rows


def rising(rows: int) -> float:
    return 0.02 * rows**1.3  # larger runs leave the processor's caches


@pytest.mark.parametrize("cost_s", [linear, flat, falling, rising])
@pytest.mark.parametrize("scale", [0.1, 1, 10])
def test_rows_share_runs_only_if_that_makes_them_cheaper(cost_s: Callable[[int], float], scale: float) -> None:
    def scaled(rows: int) -> float:
        return scale * cost_s(rows)

    curve = learned(scaled)
    assert_fits(curve, scaled)
    assert cost_s not in (linear, rising) or curve.choice == 1
    assert cost_s is not flat or curve.choice == 32


def test_each_size_of_run_is_tried_with_requests_that_wait_anyway() -> None:
    curve, taken = CostCurve(max_rows=32), []
    for _ in range(18):
        taken.append(curve.rows_for(100))
        curve.add(taken[-1], 0.001)
    assert taken == [1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32]
    assert curve.rows_for(3) <= 3  # never more than wait


def test_runs_of_more_rows_are_tried_only_if_smaller_ones_saved_much() -> None:
    curve, taken = CostCurve(max_rows=32), []
    for _ in range(60):
        taken.append(curve.rows_for(100))
        curve.add(taken[-1], 0.004 + 0.02 * taken[-1])  # 9 % are saved by 2 rows, 5 % more by 4
    assert taken[:9] == [1, 1, 1, 2, 2, 2, 4, 4, 4]
    assert max(taken) == 4


def test_one_size_that_seems_dear_by_other_work_lets_no_larger_runs_be_tried() -> None:
    curve, taken, row_s = CostCurve(max_rows=32), [], {1: 0.014, 2: 0.019, 4: 0.015}
    for _ in range(200):
        taken.append(curve.rows_for(32))
        curve.add(taken[-1], row_s[taken[-1]] * taken[-1])
    assert max(taken) == 2


def test_four_rows_are_not_tried_if_two_save_nothing_and_a_run_is_long() -> None:
    for cost_s, largest in ((linear, 2), (lambda rows: linear(rows) / 10, 4), (falling, 32)):
        curve, taken = CostCurve(max_rows=32), []
        for _ in range(200):
            taken.append(curve.rows_for(32))
            curve.add(taken[-1], cost_s(taken[-1]))
        assert max(taken) == largest


@pytest.mark.parametrize(
    ("before", "after"), [(flat, linear), (linear, flat), (falling, rising), (rising, falling), (flat, falling)]
)
def test_a_choice_follows_the_costs(before: Callable[[int], float], after: Callable[[int], float]) -> None:
    curve = learned(before)
    assert_fits(curve, before)
    for _ in range(5000):
        rows = curve.rows_for(32)
        curve.add(rows, after(rows))
    assert_fits(curve, after)


# --- who runs next --------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Model:
    """A runner whose runs take a given time and end when the test says so."""

    def __init__(self, name: str, *, run_s: float, waiting: int, narrow: bool = True) -> None:
        self.name = name
        self.used_s = 0.0
        self.waiting = waiting
        self.expected_s = run_s
        self.next_is_narrow = narrow
        self.started = 0

    @property
    def has_thread_jobs(self) -> bool:
        return self.waiting > 0

    is_ready = has_thread_jobs

    def next_run(self) -> ThreadRun:
        self.waiting -= 1
        self.started += 1
        self.last = ThreadRun(self, lambda: None, self.next_is_narrow, self.expected_s)
        return self.last


def simulate(models: Sequence[Model], *, slots: int, seconds: float) -> None:
    """End the runs in the order of their times."""
    clock = Clock()
    threads = BatchThreads(slots=slots, clock=clock)
    started: list[ThreadRun] = []
    for model in models:
        original = model.next_run

        def next_run(original: Callable[[], ThreadRun] = original) -> ThreadRun:
            started.append(original())
            return started[-1]

        model.next_run = next_run  # type: ignore[method-assign]
    for model in models:
        threads.enlist(model)
    end_s = clock.now_s + seconds
    while started and clock.now_s < end_s:
        first = min(started, key=lambda run: run.begin_s + run.expected_s)
        started.remove(first)
        clock.now_s = first.begin_s + first.expected_s
        threads.release(first)
    threads.close()


def test_models_that_all_have_requests_waiting_get_the_same_time() -> None:
    slow, quick = Model("slow", run_s=0.1, waiting=1000), Model("quick", run_s=0.04, waiting=1000)
    simulate([slow, quick], slots=1, seconds=20)
    assert slow.started * 0.1 == pytest.approx(quick.started * 0.04, rel=0.1)


def test_a_model_that_was_idle_gets_no_more_than_its_share_afterwards() -> None:
    clock = Clock()
    threads = BatchThreads(slots=1, clock=clock)
    busy, idle = Model("busy", run_s=0.1, waiting=100), Model("idle", run_s=0.1, waiting=0)
    threads.enlist(busy)
    for _ in range(50):
        clock.now_s += 0.1
        threads.release(busy.last)
    idle.waiting = 50
    threads.enlist(idle)
    for _ in range(20):
        clock.now_s += 0.1
        threads.release(next(iter(threads._active)))
    threads.close()
    assert 9 <= idle.started <= 11


def test_a_quick_model_does_not_wait_for_runs_of_slow_ones() -> None:
    threads = BatchThreads(slots=2, clock=Clock())
    slow = Model("slow", run_s=1.0, waiting=10)
    threads.enlist(slow)
    assert slow.started == 2
    quick, other = Model("quick", run_s=0.01, waiting=5), Model("other", run_s=0.9, waiting=5)
    threads.enlist(other)
    threads.enlist(quick)
    assert (quick.started, other.started) == (1, 0)  # one at a time, beside what the processors do
    threads.release(quick.last)
    assert (quick.started, other.started) == (2, 0)
    threads.close()


def test_a_run_with_threads_inside_operations_takes_two_processors() -> None:
    threads = BatchThreads(slots=4, clock=Clock())
    wide = Model("wide", run_s=1.0, waiting=10, narrow=False)
    threads.enlist(wide)
    assert wide.started == 2
    threads.close()


def test_a_run_that_takes_longer_than_expected_is_not_expected_to_end_at_once() -> None:
    clock = Clock()
    threads = BatchThreads(slots=1, clock=clock)
    threads.enlist(Model("late", run_s=1.0, waiting=1))
    waits = []
    for _ in range(4):
        waits.append(threads.wait_s())
        clock.now_s += 0.5
    assert waits == pytest.approx([1.0, 0.5, 0.25, 0.25])
    threads.close()


# --- overload -------------------------------------------------------------------------------------------------------


class Overload:
    """Requests of 10 ms each, or as given, that arrive at some rate, with one processor."""

    def __init__(self, run_s: float = 0.01) -> None:
        self.run_s = run_s
        self.clock = Clock()
        self.changes: list[bool] = []
        self.admission = Admission(lambda begins, _: self.changes.append(begins), longest_wait_s=30.0, clock=self.clock)
        self.queued = 0
        self.accepted = self.refused = 0

    def arrive(self, *, rate: float, seconds: float) -> None:
        per_tick = rate * 0.01
        due = 0.0
        for _ in range(round(seconds / 0.01)):
            self.clock.now_s += 0.01
            if self.queued:
                self.queued -= 1
                self.admission.answered(1)
            due += per_tick
            while due >= 1:
                due -= 1
                self.request()

    def request(self) -> None:
        wait_s = self.run_s * self.queued
        if self.admission.admits(wait_s=wait_s, run_s=self.run_s, alone_s=self.run_s, queued=self.queued):
            self.queued += 1
            self.accepted += 1
        else:
            self.refused += 1


def test_at_ten_times_the_capacity_only_what_is_answered_in_twice_the_time_is_accepted() -> None:
    load = Overload()
    load.arrive(rate=1000, seconds=1)
    assert load.admission.is_overloaded
    load.queued = 0  # the runner refuses the requests that wait too long already
    load.accepted = load.refused = 0
    for _ in range(20):
        load.arrive(rate=1000, seconds=0.25)
        assert load.queued <= 2
    assert load.accepted == pytest.approx(500, rel=0.05)  # the processor is kept busy
    assert load.accepted + load.refused == 5000


def test_the_overload_ends_within_a_second_after_the_load() -> None:
    load = Overload()
    load.arrive(rate=1000, seconds=2)
    load.queued = 0
    load.arrive(rate=50, seconds=1)
    assert not load.admission.is_overloaded
    assert load.changes == [True, False]


def test_clients_that_wait_for_their_answers_are_never_refused() -> None:
    load = Overload()
    for _ in range(300):  # all at once: the last one waits for 3 s
        load.request()
    for _ in range(2000):
        load.clock.now_s += 0.01
        load.queued -= 1
        load.admission.answered(1)
        load.request()
    assert not load.refused


def test_a_load_below_the_capacity_is_never_refused() -> None:
    load = Overload()
    load.arrive(rate=90, seconds=60)
    assert not load.refused


def test_an_overload_is_recognized_within_two_periods_of_a_few_answers() -> None:
    load = Overload()
    load.arrive(rate=90, seconds=1)
    load.arrive(rate=1000, seconds=0.25)
    assert load.changes == [True]


def test_only_at_the_beginning_of_an_overload_the_newest_requests_run_first() -> None:
    load = Overload()
    load.arrive(rate=90, seconds=1)
    assert not load.admission.newest_first
    load.arrive(rate=1000, seconds=0.05)
    assert load.admission.newest_first
    assert load.changes == []
    load.arrive(rate=1000, seconds=0.25)
    assert load.changes == [True]
    assert not load.admission.newest_first  # few wait


def test_clients_that_start_together_run_in_their_order_after_a_while() -> None:
    load = Overload()
    for _ in range(300):
        load.request()
    assert load.admission.newest_first
    for _ in range(30):
        load.clock.now_s += 0.01
        load.queued -= 1
        load.admission.answered(1)
        load.request()
    assert not load.admission.newest_first


def test_64_clients_of_a_slow_model_that_start_one_after_the_other_wait_their_turn() -> None:
    load = Overload(run_s=0.4)
    for _ in range(64):
        load.clock.now_s += 0.05
        load.request()
    for _ in range(500):
        load.clock.now_s += 0.4
        load.queued -= 1
        load.admission.answered(1)
        load.request()
    assert (load.refused, load.changes) == (0, [])


def test_clients_that_ask_again_at_once_are_accepted_after_a_while() -> None:
    load = Overload()
    load.arrive(rate=1000, seconds=1)
    load.queued = 0
    clients, refused = 64, 0
    for _ in range(4000):  # each tick: one answer, and all clients without a waiting request ask
        load.clock.now_s += 0.01
        if load.queued:
            load.queued -= 1
            load.admission.answered(1)
        before = load.refused
        for _ in range(clients - load.queued):
            load.request()
        refused = load.refused - before
    assert load.changes == [True, False]
    assert not refused


def test_a_request_that_would_wait_longer_than_clients_do_is_refused_alone() -> None:
    load = Overload(run_s=1.0)
    load.queued = 31
    load.request()
    assert (load.refused, load.changes) == (1, [])


def test_a_queue_that_grows_slowly_to_the_longest_wait_is_an_overload() -> None:
    load = Overload()
    load.queued = 3001
    load.request()
    assert (load.refused, load.changes) == (1, [True])


@pytest.fixture
def schedule() -> Iterator[RunSchedule]:
    threads = BatchThreads(slots=1)
    yield RunSchedule(threads, max_rows=32, only_narrow=True)
    threads.close()


def learn(schedule: RunSchedule, kind: int, cost_s: float, *, runs: int = 3, narrow: bool = True) -> None:
    for _ in range(runs):
        schedule.learn(kind, 1, elapsed_s=cost_s, cost_s=cost_s, narrow=narrow, alone=False)


def test_first_runs_that_take_long_refuse_no_request(schedule: RunSchedule) -> None:
    learn(schedule, 3, 60.0, runs=2)  # kernels are prepared
    assert schedule.refusal(3, 1, queued=40, queued_rows={3: 40}) is None
    learn(schedule, 3, 0.02, runs=1)
    assert schedule.refusal(3, 1, queued=40, queued_rows={3: 40}) is None
    assert schedule.refusal(3, 1, queued=5000, queued_rows={3: 5000}) is not None


def test_small_rows_that_wait_do_not_count_as_large_ones(schedule: RunSchedule) -> None:
    learn(schedule, 10, 0.001)
    learn(schedule, 20, 2.0)
    assert schedule.refusal(20, 1, queued=60, queued_rows={10: 60}) is None
    assert schedule.refusal(10, 1, queued=60, queued_rows={20: 60}) is not None  # for two minutes


def test_rows_of_another_size_tell_the_time_until_rows_of_a_size_were_run(schedule: RunSchedule) -> None:
    learn(schedule, 10, 2.0)
    assert schedule.refusal(11, 1, queued=60, queued_rows={11: 60}) is not None


# --- a runner with all of it ----------------------------------------------------------------------------------------


class Gate:
    """A model whose runs wait until the test opens the gate."""

    def __init__(self) -> None:
        self.signatures = {"s": SIGNATURE}
        self.unusable: dict[str, str] = {}
        self.signature_defs: dict[str, Any] = {}
        self.opened = threading.Event()
        self.started = threading.Semaphore(0)
        self.runs: list[int] = []

    def prepare(self, signature: Signature) -> None:
        pass

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        self.runs.append(len(feeds[0]))
        self.started.release()
        assert self.opened.wait(DEADLINE_S)
        return [feeds[0] * 2]

    def close(self) -> None:
        pass


Result = list[Array] | RequestError


def submit(
    runner: Runner,
    value: float = 1.0,
    *,
    is_over: Callable[[], bool] = lambda: False,
    called: Callable[[Any], None] = report_nothing,
) -> "asyncio.Future[Result]":
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    future.add_done_callback(called)
    runner.submit(Job([np.array([value], np.float32)], future.set_result, is_over))
    return future


def with_runner(test: Callable[[Runner, Gate, BatchThreads], Any], **settings: Any) -> None:
    async def main() -> None:
        model, threads = Gate(), BatchThreads(slots=2)
        runner = Runner(
            model,
            SIGNATURE,
            placement=Placement(on_loop=False, pooled=False),
            threads=threads,
            loop=asyncio.get_running_loop(),
            **settings,
        )
        try:
            async with asyncio.timeout(DEADLINE_S):
                await test(runner, model, threads)
        finally:
            model.opened.set()
            threads.close()

    asyncio.run(main())


KIND = Job([np.zeros(1, np.float32)], report_nothing).kind


def teach(runner: Runner, costs: dict[int, float], *, narrow: bool = False) -> None:
    for rows, cost_s in costs.items():
        for _ in range(3):
            runner.schedule.learn(KIND, rows, elapsed_s=cost_s, cost_s=cost_s, narrow=narrow, alone=False)


def test_rows_that_cost_the_same_run_side_by_side() -> None:
    async def test(runner: Runner, model: Gate, _: BatchThreads) -> None:
        teach(runner, {1: 0.02, 2: 0.04, 4: 0.08}, narrow=True)
        answers = [submit(runner, value) for value in (1, 2, 3, 4)]
        for _ in range(2):  # two processors
            assert await asyncio.to_thread(model.started.acquire, timeout=DEADLINE_S)
        model.opened.set()
        assert [result[0].tolist() for result in await asyncio.gather(*answers)] == [[2], [4], [6], [8]]
        assert model.runs == [1, 1, 1, 1]

    with_runner(test, only_narrow=True)


def test_a_request_whose_client_left_does_not_run() -> None:
    async def test(runner: Runner, model: Gate, threads: BatchThreads) -> None:
        teach(runner, {1: 0.02, 2: 0.04, 4: 0.08}, narrow=True)
        running = [submit(runner, value, is_over=left.is_set) for value in (1, 2)]
        for _ in range(2):  # two processors
            assert await asyncio.to_thread(model.started.acquire, timeout=DEADLINE_S)
        waiting = [submit(runner, value, is_over=left.is_set) for value in (3, 4)]
        wanted = submit(runner, 5)
        left.set()
        model.opened.set()
        assert [result[0].tolist() for result in await asyncio.gather(*running, wanted)] == [[2], [4], [10]]
        for result in await asyncio.gather(*waiting):
            assert isinstance(result, RequestError)
            assert result.code is Code.CANCELLED
        assert (model.runs, threads.jobs) == ([1, 1, 1], 0)
        await runner.drained()

    left = threading.Event()
    with_runner(test, only_narrow=True)


def test_of_requests_that_arrive_faster_than_they_are_answered_the_newest_run_first() -> None:
    async def test(runner: Runner, model: Gate, _: BatchThreads) -> None:
        def note(value: float, _: object) -> None:
            order.append(value)

        teach(runner, {1: 0.02, 2: 0.04, 4: 0.08}, narrow=True)
        answers = [submit(runner, value, called=functools.partial(note, value)) for value in range(20)]
        for _ in range(2):  # two processors
            assert await asyncio.to_thread(model.started.acquire, timeout=DEADLINE_S)
        model.opened.set()
        await asyncio.gather(*answers)

    order: list[float] = []
    with_runner(test, only_narrow=True)
    assert sorted(order) == list(range(20))
    expected = [*range(19, 7, -1), *range(8)]
    assert max(abs(order.index(value) - place) for place, value in enumerate(expected)) <= 1  # two run at a time


def test_rows_that_are_cheaper_together_wait_for_the_run_in_progress() -> None:
    async def test(runner: Runner, model: Gate, _: BatchThreads) -> None:
        teach(runner, dict.fromkeys((1, 2, 4, 8, 16, 32), 0.02), narrow=True)
        first = submit(runner)
        assert await asyncio.to_thread(model.started.acquire, timeout=DEADLINE_S)
        others = [submit(runner) for _ in range(7)]
        await asyncio.sleep(0)
        model.opened.set()
        await asyncio.gather(first, *others)
        assert model.runs == [1, 7]

    with_runner(test, only_narrow=True)


def test_many_requests_use_a_second_session() -> None:
    async def test(runner: Runner, wide: Gate, threads: BatchThreads) -> None:
        teach(runner, {1: 0.02, 2: 0.04, 4: 0.08})
        teach(runner, {1: 0.02, 2: 0.04, 4: 0.08}, narrow=True)
        for _ in range(16):  # beside others
            runner.schedule.learn(KIND, 1, elapsed_s=0.02, cost_s=0.02, narrow=False, alone=False)
        assert await asyncio.to_thread(is_loaded.wait, DEADLINE_S)
        answers = [submit(runner) for _ in range(2)]
        for _ in answers:
            assert await asyncio.to_thread(narrow.started.acquire, timeout=DEADLINE_S)
        narrow.opened.set()
        await asyncio.gather(*answers)
        assert (wide.runs, narrow.runs) == ([], [1, 1])
        assert not threads.jobs

    narrow, is_loaded = Gate(), threading.Event()
    twin = Twin(lambda: narrow, loaded=lambda error: is_loaded.set())
    with_runner(test, twin=twin)


@pytest.mark.parametrize(("wide_s", "uses_all_threads"), [(0.01, True), (0.019, False)])
def test_a_request_alone_uses_all_threads_if_that_makes_it_quicker(wide_s: float, uses_all_threads: bool) -> None:
    loaded = threading.Event()
    twin = Twin(Gate, loaded=lambda error: loaded.set())
    twin.request()
    assert loaded.wait(DEADLINE_S)
    threads = BatchThreads(slots=2)
    schedule = RunSchedule(threads, max_rows=32, twin=twin)
    for narrow, cost_s in ((True, 0.02), (False, wide_s)):
        schedule.learn(KIND, 1, elapsed_s=cost_s, cost_s=cost_s, narrow=narrow, alone=False)
    assert schedule.is_narrow(KIND, 1, alone=False)
    assert schedule.is_narrow(KIND, 1, alone=True) is not uses_all_threads
    ways = []
    for _ in range(64):
        ways.append(schedule.is_narrow(KIND, 1, alone=True))
        schedule.learn(KIND, 1, elapsed_s=0.02, cost_s=0.02, narrow=True, alone=True)
    assert ways.count(uses_all_threads) == 1  # the other way is tried once in a while
    threads.close()


@pytest.mark.parametrize(("row_s", "rows"), [(0.01, 4), (0.000_1, 32)])
def test_large_runs_are_not_tried_before_the_second_session_unless_it_is_of_no_use(row_s: float, rows: int) -> None:
    def fail() -> Any:
        raise OSError("the files are gone")

    failed = threading.Event()
    twin = Twin(fail, loaded=lambda error: failed.set())
    threads = BatchThreads(slots=2)
    schedule = RunSchedule(threads, max_rows=32, twin=twin)

    def largest() -> int:
        taken = []
        for _ in range(60):
            taken.append(schedule.rows_for(KIND, 100, narrow=False))
            schedule.learn(
                KIND, taken[-1], elapsed_s=row_s, cost_s=row_s, narrow=False, alone=True
            )  # rows cost nothing
        return max(taken)

    assert largest() == rows
    twin.request()
    assert failed.wait(DEADLINE_S)
    assert largest() == 32
    threads.close()


def test_a_second_session_that_does_not_load_changes_nothing() -> None:
    def fail() -> Any:
        raise OSError("the files are gone")

    errors: list[Exception | None] = []
    twin = Twin(fail, loaded=errors.append)
    twin.request()
    twin.request()
    twin.close()
    assert [str(error) for error in errors] == ["the files are gone"]
    assert twin.model is None


@pytest.mark.parametrize(("shares", "is_small_enough"), [(True, True), (False, False)])
def test_shared_variables_may_be_of_any_size(tmp_path: Path, shares: bool, is_small_enough: bool) -> None:
    (tmp_path / "variables").mkdir()
    for name, size in (("saved_model.pb", 1000), ("variables/variables.data-00000-of-00001", MAX_BYTES)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
    engine = SimpleNamespace(is_narrow=lambda model: False, shares_variables=lambda model: shares)
    model = SimpleNamespace(signatures={"s": SIGNATURE}, unusable={})
    twin = new_twin(cast(Engine, engine), tmp_path, cast(LoadedModel, model), loaded=report_nothing)
    assert (twin is not None) is is_small_enough


def test_an_overload_refuses_what_waits_and_ends_with_the_load() -> None:
    async def test(runner: Runner, model: Gate, threads: BatchThreads) -> None:
        teach(runner, {1: 0.9, 2: 1.8, 4: 3.6}, narrow=True)  # 65 of them fill the longest wait
        running = [submit(runner) for _ in range(2)]
        for _ in range(2):
            assert await asyncio.to_thread(model.started.acquire, timeout=DEADLINE_S)
        waiting = [submit(runner) for _ in range(65)]
        await asyncio.sleep(0)  # they are listed for the threads
        assert not [each for each in waiting if each.done()]
        for job in runner._thread_jobs:
            job.since_s -= 9.0  # so long they have waited
        waiting.append(submit(runner))
        for refused in await asyncio.gather(*waiting):
            assert isinstance(refused, RequestError)
            assert (refused.code, refused.http_status) == (Code.UNAVAILABLE, 503)
            assert 1 <= int(dict(refused.headers)["Retry-After"]) <= 31
        assert [name for name, _ in events if name == "signature.overloaded"] == ["signature.overloaded"]
        assert list(threads._waiting) == []  # an unloaded model is not kept by what it had waiting
        model.opened.set()
        await asyncio.gather(*running)
        assert not threads.jobs
        assert not isinstance(await submit(runner), RequestError)

    events: list[tuple[str, Any]] = []
    with_runner(test, only_narrow=True, report=lambda name, fields: events.append((name, fields)))
