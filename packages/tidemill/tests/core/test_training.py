"""The state transitions of a training job."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob


def new_job() -> TrainingJob:
    job = TrainingJob(
        name="digits",
        arn="arn:aws:sagemaker:us-west-2:000000000000:training-job/digits",
        job_id="ab" * 16,
        request={"TrainingJobName": "digits"},
        created_ms=1000,
        log_streams=("digits/algo-1-1",),
    )
    return job.enter(SecondaryStatus.STARTING, at_ms=1000, message="Starting")


def test_a_job_survives_the_way_through_its_document() -> None:
    job = new_job().enter(SecondaryStatus.TRAINING, at_ms=2000, message="Training")
    assert TrainingJob.from_document(job.to_document()) == job


def test_entering_a_state_closes_the_one_before() -> None:
    job = new_job().enter(SecondaryStatus.TRAINING, at_ms=2000, message="Training")
    assert [(t.status, t.ended_ms) for t in job.transitions] == [
        (SecondaryStatus.STARTING, 2000),
        (SecondaryStatus.TRAINING, None),
    ]
    ended = job.enter(SecondaryStatus.COMPLETED, at_ms=3000, message="Done")
    assert ended.status is JobStatus.COMPLETED
    assert ended.ended_ms == 3000
    assert ended.transitions[-1].ended_ms == 3000


def test_the_message_of_the_current_state_can_change_and_no_other() -> None:
    job = new_job()
    again = job.restate(SecondaryStatus.STARTING, message="Again")
    assert [each.message for each in again.transitions] == ["Again"]
    assert again.restate(SecondaryStatus.STARTING, message="Again") is again
    assert again.restate(SecondaryStatus.PENDING, message="Late") is again


ENDS = [
    SecondaryStatus.COMPLETED,
    SecondaryStatus.FAILED,
    SecondaryStatus.STOPPED,
    SecondaryStatus.MAX_RUNTIME_EXCEEDED,
    SecondaryStatus.MAX_WAIT_TIME_EXCEEDED,
]


@pytest.mark.parametrize(("end", "late"), list(itertools.product(ENDS, SecondaryStatus)))
def test_a_terminal_state_is_never_left(end: SecondaryStatus, late: SecondaryStatus) -> None:
    ended = new_job().enter(end, at_ms=2000, message="")
    assert not ended.may_enter(late)
    with pytest.raises(ValueError, match=f"cannot go from {end} to {late}"):
        ended.enter(late, at_ms=3000, message="")


@given(st.lists(st.sampled_from(list(SecondaryStatus)), max_size=12))
def test_after_any_steps_only_the_last_transition_is_open_and_the_end_is_the_last(
    tried: list[SecondaryStatus],
) -> None:
    job = new_job()
    for at_ms, status in enumerate(tried, start=2000):
        if job.may_enter(status):
            job = job.enter(status, at_ms=at_ms, message="")
    assert all(t.ended_ms is not None for t in job.transitions[:-1])
    assert not any(t.status in ENDS for t in job.transitions[:-1])
    assert job.status.terminal == (job.secondary_status in ENDS)
