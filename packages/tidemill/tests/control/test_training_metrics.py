"""Points of metrics from a growing log: each line counts once, and each state of a progress bar once."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.jobs import TRAINING
from tidemill.control.training import metric_process
from tidemill.control.training.metrics import JobMetric, TrainingMetrics
from tidemill.core.clock import SystemClock
from tidemill.core.segments import SegmentWriter, create_stream
from tidemill.core.training import FinalMetric, SecondaryStatus, TrainingJob
from tidemill.shim.lines import LineSplitter
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.records.store import SqlRecordStore

GROUP = "/aws/sagemaker/TrainingJobs"
LOSS = ("loss", r"(?:^|\s)loss: ([0-9.]+)")


class Stage:
    """Training jobs whose logs a test writes."""

    def __init__(self, root: Path, records: SqlRecordStore) -> None:
        self.records = records
        self.logs = root
        self.metrics = TrainingMetrics(records, logs=root)

    def job(self, name: str, *definitions: tuple[str, str]) -> SegmentWriter:
        """Store a running job, and return the writer of its log."""
        request = {
            "AlgorithmSpecification": {"MetricDefinitions": [{"Name": n, "Regex": regex} for n, regex in definitions]},
            "OutputDataConfig": {"S3OutputPath": "s3://b/o"},
        }
        stream = f"{name}/algo-1-1"
        job = TrainingJob(
            name=name, arn=name, job_id=name.encode().hex(), request=request, created_ms=1, log_streams=(stream,)
        ).enter(SecondaryStatus.TRAINING, at_ms=1, message="")
        asyncio.run(self.records.insert(TRAINING.write(job)))
        return SegmentWriter(create_stream(self.logs, GROUP, stream))

    def end(self, name: str, *found: FinalMetric) -> None:
        def change(record: Any) -> Any:
            job = TrainingJob.from_document(record.document).enter(SecondaryStatus.COMPLETED, at_ms=9, message="")
            return TRAINING.write(replace(job, final_metrics=found))

        asyncio.run(self.records.update("training-job", name, change))

    def values(self, name: str, metric: str = "loss") -> list[float]:
        return asyncio.run(self._values(name, metric))

    async def _values(self, name: str, metric: str) -> list[float]:
        return [value for points in await self.metrics.points(name, metric) for _, value in points]


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        (tmp_path / "logs").mkdir()
        yield Stage(tmp_path / "logs", SqlRecordStore(database, clock=SystemClock()))


def test_a_look_adds_what_was_logged_since_the_last_one(stage: Stage) -> None:
    with stage.job("j", LOSS, ("val_loss", "val_loss: ([0-9.]+)")) as log:
        assert stage.values("j") == []
        log.write(b"epoch 1 loss: 0.5 - val_loss: 0.75")
        assert stage.values("j") == [0.5]
        log.write(b"nothing")
        log.write(b"epoch 2 loss: 0.25 - val_loss: 0.5")
        assert stage.values("j") == [0.5, 0.25] == stage.values("j")
        assert stage.values("j", "val_loss") == [0.75, 0.5]
        assert stage.values("j", "unknown") == stage.values("absent") == []


def test_a_service_that_starts_again_finds_the_same_points(stage: Stage) -> None:
    with stage.job("j", LOSS) as log:
        for number in range(5000):
            log.write(b"%s loss: %d" % (b"x" * 200, number))
    expected = [float(number) for number in range(5000)]
    assert stage.values("j") == expected
    stage.metrics = TrainingMetrics(stage.records, logs=stage.logs)
    assert stage.values("j") == expected


def test_many_looks_at_once_count_no_line_twice(stage: Stage) -> None:
    with stage.job("j", LOSS) as log:
        log.write(b"loss: 1")

        async def look() -> list[list[float]]:
            return await asyncio.gather(*(stage._values("j", "loss") for _ in range(5)))

        assert asyncio.run(look()) == [[1.0]] * 5


def test_each_state_of_a_progress_bar_counts_once_also_when_a_look_comes_between(stage: Stage) -> None:
    splitter = LineSplitter()
    with stage.job("j", LOSS, ("val_loss", "val_loss: ([0-9.]+)")) as log:
        log.write_many(splitter.feed(b"Epoch 1/2\n\r1/3 - loss: 0.9", 0.0))
        log.write_many(splitter.feed(b"\r2/3 - loss: 0.8", 0.1))  # too soon to be passed on
        log.write_many(splitter.feed(b"\r3/3 - loss: 0.7 - val_loss: 0.75", 0.6))
        assert stage.values("j") == [0.9, 0.7]
        log.write(b"a warning on the other stream")
        log.write_many(splitter.feed(b"\nEpoch 2/2\n", 0.7))
        assert stage.values("j") == [0.9, 0.7]
        log.write_many(splitter.feed(b"\r3/3 - loss: 0.7 - val_loss: 0.75\n", 0.8))
        assert stage.values("j") == [0.9, 0.7, 0.7]
        assert stage.values("j", "val_loss") == [0.75, 0.75]


def test_an_expression_that_takes_too_long_is_abandoned_and_the_others_continue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = metric_process.search_metrics
    monkeypatch.setattr(
        "tidemill.control.training.metrics.search_metrics", lambda *args, **kwargs: search(*args, cpu_s=1, **kwargs)
    )
    with stage.job("j", LOSS, ("endless", "(a+)+$"), ("epoch", "epoch ([0-9]+)")) as log:
        log.write_many([b"epoch 1 loss: 0.5", b"a" * 40 + b"!"])
        assert (stage.values("j"), stage.values("j", "epoch"), stage.values("j", "endless")) == ([0.5], [1.0], [])
        log.write_many([b"epoch 2 loss: 0.25", b"a" * 40 + b"!"])
        assert (stage.values("j"), stage.values("j", "epoch"), stage.values("j", "endless")) == (
            [0.5, 0.25],
            [1.0, 2.0],
            [],
        )


def test_values_that_are_no_finite_numbers_and_damaged_lines_give_no_points(stage: Stage) -> None:
    with stage.job("j", ("loss", "loss: (.*)")) as log:
        log.write_many([b"loss: nan", b"loss: 0.5", b"loss: inf", b"loss: ", b"loss: \xff", b"loss: 1e-3"])
    assert stage.values("j") == [0.5, 0.001]


def test_a_line_is_searched_in_its_first_part_only_so_that_an_ordinary_expression_stays_quick(stage: Stage) -> None:
    with stage.job("j", ("loss", r".*loss: ([0-9.]+)")) as log:
        log.write_many([b"x" * 200_000] * 4)
        log.write(b"step - loss: 0.5 " + b"x" * 200_000)
    assert stage.values("j") == [0.5]


def test_metrics_with_points_are_listed_of_jobs_that_run_and_that_have_ended(stage: Stage) -> None:
    async def listed(**options: Any) -> list[tuple[JobMetric, ...]]:
        return [found async for found, _ in stage.metrics.pages(**options)]

    run: Any = asyncio.run
    with stage.job("runs", LOSS, ("never", "never ([0-9])")) as log:
        log.write(b"loss: 1")
    stage.job("ended", LOSS).close()
    stage.end("ended", FinalMetric("loss", 0.5, 3))
    stage.job("without").close()
    assert sorted(sum(run(listed(jobs=10)), ()), key=str) == [JobMetric("ended", "loss"), JobMetric("runs", "loss")]
    assert len(run(listed(jobs=1))) == 3
    assert sum(run(listed(jobs=10, ended_after_ms=10)), ()) == (JobMetric("runs", "loss"),)
    names: Coroutine[Any, Any, Any] = stage.metrics.names("runs")
    assert run(names) == (JobMetric("runs", "loss"),)
    assert run(stage.metrics.names("absent")) == ()
