"""Reading the log lines of a job: in order, once, with botocore's result, and with little work per line."""

import io
import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.sdk import Session
from tidemill.sdk.console import Console
from tidemill.sdk.follow import Follower
from tidemill.sdk.logs import TRAINING_JOBS, LogTail, StreamReader

from .conftest import FakeAws


def calls_of(function: Callable[[], object]) -> int:
    """Return how many Python functions and generators are entered while ``function`` runs."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_lines_of_several_instances_are_merged_by_time(aws: FakeAws, session: Session) -> None:
    for number in range(1, 4):
        for line in range(25):
            aws.log(f"job/algo-{number}-1700000000", f"{number} {line}", at_ms=1000 * line + number)
    tail = LogTail(session.logs_client, prefix="job/", instances=3)
    lines = list(chain.from_iterable(tail.read(everything=True)))
    assert [time_ms for time_ms, _, _ in lines] == sorted(time_ms for time_ms, _, _ in lines)
    assert [message for _, message, _ in lines] == [f"{n} {line}" for line in range(25) for n in range(1, 4)]
    assert {instance for _, _, instance in lines} == {"algo-1", "algo-2", "algo-3"}
    assert list(tail.read(everything=True)) == []
    aws.log("job/algo-2-1700000000", "more", at_ms=99_000)
    assert list(tail.read()) == [[(99_000, "more", "algo-2")]]


def test_lines_keep_their_instances_own_name_whichever_wrote_first(aws: FakeAws, session: Session) -> None:
    aws.log("job/algo-3-1700000000", "early", at_ms=1)
    tail = LogTail(session.logs_client, prefix="job/", instances=3)
    assert list(tail.read()) == [[(1, "early", "algo-3")]]
    aws.log("job/algo-3-1700000000", "late", at_ms=5)
    aws.log("job/algo-1-1700000000", "first", at_ms=5)
    assert list(tail.read()) == [[(5, "first", "algo-1"), (5, "late", "algo-3")]]


def test_a_page_is_decoded_as_botocore_would(aws: FakeAws, session: Session) -> None:
    aws.log("job/algo-1-1", 'caf\u00e9 \\ "quoted" \x1b[0m', "\U0001f600\r", "", at_ms=5)
    place: dict[str, Any] = {"logGroupName": TRAINING_JOBS, "logStreamName": "job/algo-1-1", "startFromHead": True}
    plain = Session(session.boto_session).logs_client.get_log_events(**place)
    client = session.logs_client
    assert next(StreamReader(client, group=TRAINING_JOBS, stream="job/algo-1-1").pages()) == plain["events"]
    ours = client.get_log_events(**place)
    for answer in (plain, ours):
        del answer["ResponseMetadata"]["HTTPHeaders"]
    assert ours == plain


def test_an_error_stays_botocores(aws: FakeAws, session: Session) -> None:
    reader = StreamReader(session.logs_client, group=TRAINING_JOBS, stream="nothing/algo-1")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        next(reader.pages())


def test_following_a_long_log_takes_little_work_a_line(aws: FakeAws, session: Session) -> None:
    aws.page_events = 10_000
    aws.jobs["job"] = {
        "TrainingJobName": "job",
        "TrainingJobStatus": "Completed",
        "ResourceConfig": {"InstanceCount": 1},
        "CreationTime": 1.0,
    }

    def calls(lines: int) -> int:
        aws.streams.clear()
        aws.log("job/algo-1-1", *(f"step {number}" for number in range(lines)), at_ms=5)
        stream = io.StringIO()
        counted = calls_of(Follower(session=session, job_name="job", console=Console(stream)).follow)
        assert stream.getvalue().count("step ") == lines
        return counted

    calls(1)  # creates the clients
    few, many = calls(10_000), calls(50_000)
    # Per line, one generator of the console and one of the merge; botocore alone entered five functions per line.
    assert (many - few) / 40_000 < 4
