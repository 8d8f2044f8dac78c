"""Batching with parameters, with a model that records the feeds of its runs."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tidemill_serving.batch_queue import BatchingParameters, BatchQueue
from tidemill_serving.batch_threads import BatchThreads
from tidemill_serving.batching import Job
from tidemill_serving.engine import Array, Signature, TensorSpec
from tidemill_serving.engine.placement import Placement
from tidemill_serving.engine.traits import Traits
from tidemill_serving.errors import RequestError, invalid
from tidemill_serving.metrics import Metrics

DEADLINE_S = 20
NEVER_S = 3600.0
LEFT = [[99, 99]]  # feed of a client that has left


class SummingModel:
    """Sums each row."""

    def __init__(self, *, has_effects: bool = False) -> None:
        rows = TensorSpec("x:0", np.dtype("float32"), "float", (-1, -1))
        sums = TensorSpec("y:0", np.dtype("float32"), "float", (-1,))
        self.signatures: Mapping[str, Signature] = {
            "s": Signature("s", "predict", {"x": rows}, {"y": sums}, Traits(has_effects=has_effects))
        }
        self.unusable: Mapping[str, str] = {}
        self.signature_defs: Mapping[str, Any] = {}
        self.runs: list[tuple[int, ...]] = []

    def prepare(self, signature: Signature) -> None:
        pass

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        self.runs.append(feeds[0].shape)
        if (feeds[0] < 0).any():
            raise invalid("negative")
        return [feeds[0].sum(axis=1)]

    def close(self) -> None:
        pass


def answers(
    feeds: Sequence[Any], *, metrics: Metrics | None = None, has_effects: bool = False, **parameters: Any
) -> tuple[list[list[float] | str], list[tuple[int, ...]]]:
    """Submit all feeds in one turn of the loop; return the answers, and the shapes of the runs."""
    model = SummingModel(has_effects=has_effects)
    settings = {"max_batch_size": 4, "timeout_s": 0.0, "max_enqueued_batches": 9, "threads": 1, **parameters}

    async def main() -> list[list[float] | str]:
        loop = asyncio.get_running_loop()
        threads = BatchThreads(slots=1)
        placement = Placement(on_loop=True, pooled=False)
        queue = BatchQueue(
            model,
            model.signatures["s"],
            placement=placement,
            threads=threads,
            loop=loop,
            parameters=BatchingParameters(**settings),
            metrics=metrics or Metrics(),
        )
        futures = []
        for feed in feeds:
            future: asyncio.Future[list[Array] | RequestError] = loop.create_future()
            futures.append(future)
            job = Job([np.array(feed, np.float32)], future.set_result)
            if feed == LEFT:
                job.is_over = lambda: True
            queue.submit(job)
        async with asyncio.timeout(DEADLINE_S):
            results = await asyncio.gather(*futures)
            await queue.drained()
        threads.close()
        return [f"{r.code.name}: {r.message}" if isinstance(r, RequestError) else r[0].tolist() for r in results]

    return asyncio.run(main()), model.runs


def test_a_batch_runs_when_it_is_full_however_long_it_may_wait() -> None:
    assert answers([[[1]], [[2]], [[3]], [[4]]], timeout_s=NEVER_S) == ([[1], [2], [3], [4]], [(4, 1)])


def test_a_batch_that_is_not_full_runs_when_its_time_is_up() -> None:
    assert answers([[[1]], [[2]]], timeout_s=0.01) == ([[1], [2]], [(2, 1)])


def test_a_request_that_does_not_fit_begins_the_next_batch() -> None:
    assert answers([[[1]] * 3, [[2]] * 2]) == ([[1, 1, 1], [2, 2]], [(3, 1), (2, 1)])


def test_a_request_above_the_batch_size_is_refused_unless_large_ones_are_split() -> None:
    large = [[1]] * 5
    refused, runs = answers([large])
    assert refused == ["INVALID_ARGUMENT: Task size 5 is larger than maximum input batch size 4; send fewer rows"]
    assert runs == []
    assert answers([large], split_large=True, max_execution_size=2) == ([[1] * 5], [(2, 1), (2, 1), (1, 1)])


def test_a_full_queue_refuses_requests_and_serves_the_accepted_ones() -> None:
    got, _ = answers([[[1]] * 4] * 4, max_enqueued_batches=1)
    assert got[0] == [1] * 4
    full = [each for each in got if isinstance(each, str)]
    assert full
    assert all(each.startswith("UNAVAILABLE: The batch scheduling queue to which this task was") for each in full)


@pytest.mark.parametrize(("rows", "ran"), [(1, 1), (2, 3), (3, 3), (4, 4)])
def test_runs_have_allowed_sizes_only(rows: int, ran: int) -> None:
    assert answers([[[7]] * rows], allowed_sizes=(1, 3, 4)) == ([[7] * rows], [(ran, 1)])


def test_inputs_of_other_lengths_share_a_run_if_they_may_be_filled_up() -> None:
    feeds = [[[0, 1, 2]], [[5]]]
    assert answers(feeds, timeout_s=0.01)[1] == [(1, 3), (1, 1)]
    assert answers(feeds, timeout_s=0.01, pad_variable_length=True) == ([[3], [15]], [(2, 3)])


def test_a_failed_batch_is_repeated_row_by_row_unless_its_run_has_effects() -> None:
    feeds = [[[1]], [[-1]]]
    failed = "INVALID_ARGUMENT: negative"
    assert answers(feeds, timeout_s=0.01) == ([[1], failed], [(2, 1), (1, 1), (1, 1)])
    assert answers(feeds, timeout_s=0.01, has_effects=True) == ([failed, failed], [(2, 1)])


def test_metrics_have_the_waits_of_requests_and_the_runs() -> None:
    metrics = Metrics()
    answers([[[1]] * 5, [[2]]], metrics=metrics, split_large=True, max_execution_size=2, thread_pool_name="mine")
    lines = metrics.text().decode().splitlines()
    prefix = ":tensorflow:serving:batching_session:"
    assert f"{prefix}wrapped_run_count 4" in lines
    assert f'{prefix}queuing_latency_count{{thread_pool_name="mine"}} 2' in lines
    assert f'{prefix}queuing_latency_bucket{{thread_pool_name="mine",le="100"}}' in "\n".join(lines)


def test_requests_whose_clients_left_do_not_run() -> None:
    results, runs = answers([LEFT, LEFT, [[1, 2], [3, 4]], LEFT], max_batch_size=2)
    over = "CANCELLED: the client did not wait for the answer"
    assert results == [over, over, [3, 7], over]
    assert runs == [(2, 2)]
