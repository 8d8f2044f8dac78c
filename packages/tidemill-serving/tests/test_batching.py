"""Rows of several requests in one run, with a model that counts its runs."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.batching import Job, Runner, report_nothing
from tidemill_serving.engine import Array, Signature, TensorSpec
from tidemill_serving.engine.placement import Placement
from tidemill_serving.engine.traits import Traits
from tidemill_serving.errors import Code, RequestError, invalid

FLOATS = TensorSpec("x:0", np.dtype("float32"), "float", (-1,))
ON_LOOP = Placement(on_loop=True, pooled=False)
ON_THREAD = Placement(on_loop=False, pooled=False)
DEADLINE_S = 20
FLAT_COSTS = dict.fromkeys((1, 2, 4, 8, 16, 32), 0.001)


class CountingModel:
    """Doubles its input, and records the number of rows of each run."""

    def __init__(
        self,
        shape: tuple[int, ...] = (-1,),
        *,
        answer: Callable[[Array], Array] = lambda x: x * 2,
        has_effects: bool = False,
    ) -> None:
        spec = TensorSpec("x:0", np.dtype("float32"), "float", shape)
        traits = Traits(has_effects=has_effects)
        self.signatures: Mapping[str, Signature] = {"s": Signature("s", "predict", {"x": spec}, {"y": spec}, traits)}
        self.signature_defs: Mapping[str, Any] = {}
        self.runs: list[int] = []
        self._answer = answer

    def prepare(self, signature: Signature) -> None:
        pass

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        self.runs.append(feeds[0].size)
        if (feeds[0] < 0).any():
            raise invalid("negative")
        if (feeds[0] == 13).any():
            raise ZeroDivisionError("unlucky")
        return [self._answer(feeds[0])]

    def close(self) -> None:
        pass


def answers(
    model: CountingModel,
    feeds: Sequence[Sequence[float]],
    *,
    placement: Placement,
    max_rows: int = 32,
    unshared: Callable[[str], None] = report_nothing,
    costs: Mapping[int, float] | None = None,
    **settings: Any,
) -> list[list[float] | str]:
    """Submit all feeds in one turn of the loop, and return the answers.

    Args:
        costs: Known times of runs in seconds, by their rows. Default: a row costs the less the more rows a run has.
    """

    async def main() -> list[list[float] | str]:
        loop = asyncio.get_running_loop()
        threads = BatchThreads(slots=1)
        runner = Runner(
            model,
            model.signatures["s"],
            placement=placement,
            threads=threads,
            loop=loop,
            max_rows=max_rows,
            unshared=unshared,
            **settings,
        )
        kind = Job([np.array(feeds[0], np.float32)], report_nothing).kind
        for rows, cost_s in (FLAT_COSTS if costs is None else costs).items():
            for _ in range(3):
                runner.schedule.learn(kind, rows, elapsed_s=cost_s, cost_s=cost_s, narrow=False, alone=False)
        futures: list[asyncio.Future[list[Array] | RequestError]] = []
        for feed in feeds:
            future: asyncio.Future[list[Array] | RequestError] = loop.create_future()
            futures.append(future)
            runner.submit(Job([np.array(feed, np.float32)], future.set_result))
        async with asyncio.timeout(DEADLINE_S):
            results = await asyncio.gather(*futures)
        threads.close()
        return [f"{r.code.name}: {r.message}" if isinstance(r, RequestError) else r[0].tolist() for r in results]

    return asyncio.run(main())


def test_requests_of_one_turn_share_a_run() -> None:
    for placement in (ON_LOOP, ON_THREAD):
        model = CountingModel()
        assert answers(model, [[1], [2, 3], [4]], placement=placement) == [[2], [4, 6], [8]]
        assert model.runs == [4]


def test_rows_are_counted_not_requests() -> None:
    model = CountingModel()
    assert len(answers(model, [[1.0] * 20] * 5, placement=ON_LOOP)) == 5
    assert model.runs == [20] * 5
    model = CountingModel()
    answers(model, [[1.0] * 10] * 5, placement=ON_LOOP)
    assert model.runs == [30, 20]


def test_a_request_above_the_limit_runs_by_itself_on_a_thread() -> None:
    model = CountingModel()
    given = [[1.0], [2.0] * 100, [3.0]]
    assert answers(model, given, placement=ON_LOOP) == [[2.0], [4.0] * 100, [6.0]]
    assert sorted(model.runs) == [2, 100]


def test_the_request_that_fails_a_shared_run_fails_alone() -> None:
    for placement in (ON_LOOP, ON_THREAD):
        model = CountingModel()
        assert answers(model, [[1], [-1], [3]], placement=placement) == [[2], "INVALID_ARGUMENT: negative", [6]]


def test_an_unexpected_failure_of_one_run_does_not_end_the_thread() -> None:
    model = CountingModel(())
    given = [13.0, 1.0]
    assert answers(model, given, placement=ON_THREAD) == ["INTERNAL: ZeroDivisionError: unlucky", 2.0]  # type: ignore[arg-type]


def test_other_inner_shapes_do_not_share_a_run() -> None:
    model = CountingModel((-1, -1))
    given: Any = [[[1, 2]], [[3]], [[4]], [[5, 6]]]
    assert answers(model, given, placement=ON_LOOP) == [[[2, 4]], [[6]], [[8]], [[10, 12]]]
    assert model.runs == [2, 2, 2]


def test_a_model_without_a_row_per_row_is_run_for_each_request() -> None:
    model = CountingModel(answer=lambda x: x.mean(keepdims=True))
    assert answers(model, [[1, 3], [5, 7]], placement=ON_LOOP) == [[2], [6]]


def test_a_model_whose_shared_runs_always_fail_is_reported_once() -> None:
    def refuse_many(x: Array) -> Array:
        if x.size > 1:
            raise RequestError(Code.INVALID_ARGUMENT, "one row only")
        return x

    for answer, reason in (
        (refuse_many, "one row only"),
        (lambda x: x.mean(keepdims=True), "the output y has the shape [1] for 2 rows of input"),
    ):
        for placement in (ON_LOOP, ON_THREAD):
            reasons: list[str] = []
            model = CountingModel(answer=answer)
            assert (
                answers(model, [[1], [3]] * 3, placement=placement, max_rows=2, unshared=reasons.append)
                == [
                    [1],
                    [3],
                ]
                * 3
            )
            assert model.runs == [2, 1, 1] * 3
            assert reasons == [reason]


def test_a_request_that_also_fails_alone_is_not_reported_as_unshared() -> None:
    reasons: list[str] = []
    answers(CountingModel(), [[1], [-1]], placement=ON_LOOP, unshared=reasons.append)
    assert reasons == []


def test_without_an_open_first_dimension_nothing_is_shared() -> None:
    model = CountingModel((2,))
    answers(model, [[1, 2], [3, 4]], placement=ON_THREAD)
    assert model.runs == [2, 2]


def test_batching_can_be_switched_off() -> None:
    model = CountingModel()
    answers(model, [[1], [2]], placement=ON_LOOP, max_rows=1)
    assert model.runs == [1, 1]


def test_requests_wait_for_a_slot_in_the_order_in_which_they_came() -> None:
    seen: list[float] = []

    def note(x: Array) -> Array:
        seen.extend(x.tolist())
        return x

    model = CountingModel(answer=note)
    answers(model, [[1], [2], [3], [4]], placement=ON_THREAD, max_rows=1)
    assert seen == [1, 2, 3, 4]


def test_a_signature_whose_runs_have_effects_runs_once_for_each_request() -> None:
    for placement in (ON_LOOP, ON_THREAD):
        model = CountingModel(has_effects=True)
        assert answers(model, [[1], [2], [3]], placement=placement) == [[2], [4], [6]]
        assert model.runs == [1, 1, 1]


class Rehearsal:
    """A trial that runs feeds of 4 bytes on TensorFlow's threads, and decides after two runs."""

    def __init__(self) -> None:
        self.runs: list[tuple[bool, int, bool]] = []

    def pooled(self, size_bytes: int) -> bool:
        return size_bytes == 4

    def add(self, elapsed_s: float, *, pooled: bool, rows: int, size_bytes: int, fits_loop: bool) -> Placement | None:
        assert elapsed_s >= 0
        assert size_bytes == 4 * rows
        self.runs.append((pooled, rows, fits_loop))
        return ON_LOOP if len(self.runs) == 2 else None


def test_the_runs_of_requests_decide_where_a_signature_runs() -> None:
    trial, placements, ways = Rehearsal(), list[Placement](), list[bool]()

    class WatchedModel(CountingModel):
        def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
            ways.append(pooled)
            return super().run(signature, feeds, pooled=pooled)

    feeds = [[1.0], [-1.0], [2.0] * 40, [3.0], [4.0]]
    settings = {"trial": trial, "placed": placements.append, "max_rows": 1}
    got = answers(WatchedModel(), feeds, placement=ON_THREAD, **settings)
    assert got == [[2.0], "INVALID_ARGUMENT: negative", [4.0] * 40, [6.0], [8.0]]
    assert trial.runs == [(True, 1, True), (False, 40, False)]  # a failed run tells nothing
    assert placements == [ON_LOOP]
    assert ways == [True, True, False, False, False]


def test_a_shape_that_differs_from_the_signature_is_named_with_what_was_expected() -> None:
    def refuse(_: Array) -> Array:
        raise RequestError(Code.INVALID_ARGUMENT, "Matrix size-incompatible")

    (text,) = answers(CountingModel((-1, 3), answer=refuse), [[[1, 2]]], placement=ON_LOOP)  # type: ignore[list-item]
    assert text == ("INVALID_ARGUMENT: Expecting shape [-1,3] but got: [1,2] for input x. Matrix size-incompatible")


def test_a_signature_that_turns_out_to_be_slow_leaves_the_loop() -> None:
    threads_of_runs: list[int] = []

    def slowly(x: Array) -> Array:
        threads_of_runs.append(threading.get_ident())
        busy_until = time.perf_counter() + 0.06
        while time.perf_counter() < busy_until:
            pass
        return x

    answers(CountingModel((-1,), answer=slowly), [[1.0]] * 6, placement=ON_LOOP, max_rows=1)
    assert [ident == threading.get_ident() for ident in threads_of_runs] == [True, True, False, False, False, False]
