"""Many more jobs than the machine runs at the same time: all of them run, in order, even if some are stopped or killed
meanwhile."""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tidemill.testing import Service

SLOTS = 2
TOLERANCE = 2  # places: jobs that are admitted at the same time may be in either order


@pytest.fixture(scope="module")
def jobs(jobs_of: Any) -> Iterator[Any]:
    with Service(settings={"stop_grace_s": 1, "max_instances": SLOTS}) as service:
        yield jobs_of(service)


@pytest.fixture(scope="module")
def oracle(jobs: Any, oracle_of: Any) -> Iterator[Any]:
    made = oracle_of(jobs)
    yield made
    made.check_ends()


def submit(jobs: Any, count: int, *, prefix: str) -> list[str]:
    """Create jobs that log their name, in the order of the names, all from one archive of code."""
    first = jobs.request("import os\nprint('RUN', os.environ['TRAINING_JOB_NAME'])", name=f"{prefix}-0000")
    names = [f"{prefix}-{number:04}" for number in range(count)]
    for name in names:
        jobs.sagemaker.create_training_job(**{**first, "TrainingJobName": name})
    return names


def check_drained(jobs: Any, oracle: Any, names: Sequence[str], *, stopped: Sequence[str] = ()) -> None:
    """Check that every job has run once and in order, except the stopped ones, which must not have run."""
    for name in names:
        if name in stopped:
            oracle.check(name, "Stopped")
            assert oracle.directory(name) is None, "it never had an instance"
        else:
            oracle.check(name, "Completed", lines=[f"RUN {name}"])
    ran = [name for name in names if name not in stopped]
    described = {name: jobs.describe(name) for name in ran}
    admitted = sorted(ran, key=lambda name: admission(described[name]))
    late = [name for place, name in enumerate(admitted) if abs(ran.index(name) - place) > TOLERANCE]
    assert not late, f"they were admitted out of their order: {late}"
    check_slots([span(described[name]) for name in ran])


def admission(job: Any) -> Any:
    """Return when a job got its slot. How long its script then takes to start depends on the load."""
    return max(each["StartTime"] for each in job["SecondaryStatusTransitions"] if each["Status"] == "Starting")


def span(job: Any) -> tuple[Any, Any]:
    """Return when a job's script was started, and when the job ended."""
    (training,) = (each for each in job["SecondaryStatusTransitions"] if each["Status"] == "Training")
    return training["StartTime"], job["TrainingEndTime"]


def check_slots(spans: Sequence[tuple[Any, Any]]) -> None:
    """Check that there were never more jobs at the same time than slots."""
    # If one ends when another starts, the end counts first.
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    assert max(itertools.accumulate(step for _, step in steps)) <= SLOTS


def drain_with_stops(jobs: Any, oracle: Any, count: int, *, prefix: str) -> None:
    names = submit(jobs, count, prefix=prefix)
    stopped = names[count // 2 : count // 2 + 3] + names[-1:]
    with ThreadPoolExecutor(len(stopped)) as pool:
        list(pool.map(lambda name: jobs.sagemaker.stop_training_job(TrainingJobName=name), stopped))
    check_drained(jobs, oracle, names, stopped=stopped)


@pytest.mark.matrix
def test_a_long_queue_is_drained_in_order_around_what_is_stopped_in_it(jobs: Any, oracle: Any) -> None:
    drain_with_stops(jobs, oracle, 30, prefix="short")


@pytest.mark.matrix
def test_two_hundred_jobs_are_drained_in_order_around_what_is_stopped_among_them(jobs: Any, oracle: Any) -> None:
    drain_with_stops(jobs, oracle, 200, prefix="long")


def test_a_queue_keeps_its_order_over_the_death_of_the_server(jobs: Any, oracle: Any) -> None:
    names = submit(jobs, 8, prefix="killed")
    jobs.wait(names[2], until=("Completed",))
    jobs.service.kill()
    jobs.service.start()
    check_drained(jobs, oracle, names)
