"""Schedules are complete, free of deadlocks, and within the bounds of live microbatches."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smdistributed.modelparallel.tensorflow.engine.schedule import Schedule, Stage, make_schedule
from smdistributed.modelparallel.tensorflow.engine.timeline import ideal_bubble

pytestmark = pytest.mark.smp_first


def chain(partitions: int, forward: float = 1.0, backward: float = 2.0) -> list[Stage]:
    """Return stages forward through all partitions and back; the last partition does both in one."""
    return visits(list(range(partitions)), forward, backward)


def visits(path: list[int], forward: float = 1.0, backward: float = 2.0) -> list[Stage]:
    """Return stages forward along `path`, which may visit partitions several times, and back."""
    way = [(partition, forward) for partition in path] + [(partition, backward) for partition in reversed(path)]
    stages: list[Stage] = []
    for partition, work in way:
        if stages and stages[-1].partition == partition:
            last = stages.pop()
            stages.append(Stage(partition, last.level, last.needs, last.work + work))
            continue
        needs = {(stage.partition, stage.level) for stage in stages if stage.partition == partition}
        needs |= {(stage.partition, stage.level) for stage in stages[-1:]}
        stages.append(Stage(partition, len(stages), tuple(sorted(needs)), work))
    return stages


def alive(schedule: Schedule, partition: int) -> int:
    """Return the largest number of microbatches begun and not finished on a partition."""
    tasks = schedule.of(partition)
    levels = [task.level for task in tasks]
    count = most = 0
    for task in tasks:
        count += task.level == min(levels, default=0)
        most = max(most, count)
        count -= task.level == max(levels, default=0)
    assert count == 0
    return most


def run_in_order(stages: list[Stage], schedule: Schedule, partitions: int) -> None:
    """Simulate ranks that run their tasks in order and wait for their needs; assert that all finish."""
    needs = {(stage.partition, stage.level): stage.needs for stage in stages}
    lines = [list(schedule.of(partition)) for partition in range(partitions)]
    done: set[tuple[int, int, int]] = set()
    while any(lines):
        before = len(done)
        for line in lines:
            while line and all((*n, line[0].microbatch) in done for n in needs[line[0].partition, line[0].level]):
                task = line.pop(0)
                done.add((task.partition, task.level, task.microbatch))
        assert len(done) > before, f"the ranks wait for each other: {[line[:1] for line in lines]}"


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 5).flatmap(lambda p: st.tuples(st.just(p), st.lists(st.integers(0, p - 1), min_size=1, max_size=9))),
    st.integers(1, 9),
    st.sampled_from(["interleaved", "simple"]),
    st.one_of(st.none(), st.integers(1, 10)),
    st.lists(st.floats(0.1, 20.0), min_size=2, max_size=2),
)
def test_any_zigzag_runs_every_task_once_and_within_bounds(drawn, num_microbatches, pipeline, active, work):
    partitions, path = drawn
    stages = visits(path, *work)
    schedule = make_schedule(
        stages,
        num_partitions=partitions,
        num_microbatches=num_microbatches,
        pipeline=pipeline,
        active_microbatches=active,
    )
    tasks = [(task.partition, task.level, task.microbatch) for task in schedule.tasks]
    wanted = {(s.partition, s.level, microbatch) for s in stages for microbatch in range(num_microbatches)}
    assert len(tasks) == len(wanted) and set(tasks) == wanted
    run_in_order(stages, schedule, partitions)
    unused = [p for p in range(partitions) if p not in path]
    order = sorted(range(partitions), key=lambda p: (0 if p in unused else path.index(p), p))
    for place, partition in enumerate(order):
        bound = active or (num_microbatches if pipeline == "simple" else partitions - place)
        assert alive(schedule, partition) <= bound
    for task in schedule.tasks:
        assert task.end > task.start >= 0
    for partition in range(partitions):
        line = schedule.of(partition)
        assert all(b.start >= a.end for a, b in itertools.pairwise(line))


@pytest.mark.parametrize("partitions", [2, 3, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_a_balanced_chain_reaches_the_ideal_with_p_minus_p_microbatches_alive(partitions, microbatches):
    schedule = make_schedule(
        chain(partitions), num_partitions=partitions, num_microbatches=microbatches, pipeline="interleaved"
    )
    assert schedule.bubble(partitions) == pytest.approx(ideal_bubble(partitions, microbatches))
    assert [alive(schedule, p) for p in range(partitions)] == [
        min(microbatches, partitions - p) for p in range(partitions)
    ]


@pytest.mark.parametrize("partitions", [2, 3, 4])
def test_simple_has_all_microbatches_alive_but_on_the_last_partition(partitions):
    schedule = make_schedule(chain(partitions), num_partitions=partitions, num_microbatches=8, pipeline="simple")
    assert [alive(schedule, p) for p in range(partitions)] == [8] * (partitions - 1) + [1]
    assert schedule.bubble(partitions) == pytest.approx(ideal_bubble(partitions, 8))
    first = [task.level for task in schedule.of(0)]
    assert first == sorted(first)


def test_one_active_microbatch_runs_one_after_the_other():
    schedule = make_schedule(
        chain(3), num_partitions=3, num_microbatches=4, pipeline="interleaved", active_microbatches=1
    )
    assert [alive(schedule, partition) for partition in range(3)] == [1, 1, 1]
    assert schedule.span == pytest.approx(4 * 3 * 3.0)


def test_a_backward_pass_runs_before_the_next_forward_pass():
    schedule = make_schedule(chain(2), num_partitions=2, num_microbatches=4, pipeline="interleaved")
    assert [(task.level, task.microbatch) for task in schedule.of(0)] == [
        (0, 0), (0, 1), (2, 0), (0, 2), (2, 1), (0, 3), (2, 2), (2, 3)
    ]  # fmt: skip


def test_the_same_stages_in_another_order_make_the_same_schedule():
    stages = visits([0, 1, 0, 2, 1])
    one, two = (
        make_schedule(given, num_partitions=3, num_microbatches=5, pipeline="interleaved")
        for given in (stages, stages[::-1])
    )
    assert one == two
