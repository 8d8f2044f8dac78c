"""The last values of metrics in a log: found by a separate process, so that hostile expressions cause no delay."""

import asyncio
from pathlib import Path

import pytest

from tidemill.control.training.final_metrics import FoundMetrics, find_metrics, with_statistics
from tidemill.core.segments import SegmentWriter
from tidemill.core.training import FinalMetric, SecondaryStatus, TrainingJob


class SetClock:
    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        self.ms += 1000
        return self.ms

    def monotonic_s(self) -> float:
        return 0.0


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = [
        "epoch 1 loss: 0.5 accuracy: 0.7",
        "epoch 2 loss: 0.0625 accuracy: 0.8 val_loss: 0.75e-1",
        "grad: nan",
        "a" * 40 + "!",
        "done",
    ]
    with SegmentWriter(tmp_path / "stream", clock=SetClock()) as writer:
        writer.write_many(line.encode() for line in lines)
    return tmp_path / "stream"


def find(log: Path, *definitions: tuple[str, str], cpu_s: int = 5) -> FoundMetrics:
    return asyncio.run(find_metrics(log, [{"Name": n, "Regex": r} for n, r in definitions], cpu_s=cpu_s))


def test_the_last_match_of_each_expression_counts(log: Path) -> None:
    found = find(log, ("loss", r"loss: ([0-9.e-]+)"), ("accuracy", "accuracy: (.+?) "), ("none", "never (.*)"))
    assert [(metric.name, metric.value) for metric in found.metrics] == [("loss", 0.0625), ("accuracy", 0.8)]
    assert found.metrics[0].at_ms == found.metrics[1].at_ms
    assert found.faults == ()


def test_a_match_that_is_not_a_finite_number_has_no_value_and_is_logged(log: Path) -> None:
    found = find(log, ("grad", "grad: (.*)"), ("word", "(done)"), ("whole", "0.0625"))
    assert [(metric.name, metric.value) for metric in found.metrics] == [("whole", 0.0625)]
    assert found.faults == ("metric 'grad' has the value 'nan'", "metric 'word' has the value 'done'")


def test_an_expression_that_takes_too_long_loses_only_its_own_metric(log: Path) -> None:
    found = find(log, ("loss", "loss: ([0-9.]+)"), ("endless", "(a+)+$"), ("accuracy", "accuracy: ([0-9.]+)"), cpu_s=1)
    assert [(metric.name, metric.value) for metric in found.metrics] == [("loss", 0.0625), ("accuracy", 0.8)]
    assert found.faults == ("metric 'endless' has no value: its regular expression took more than 1 s",)


def test_metrics_that_are_not_found_in_time_have_no_value_and_the_job_ends(log: Path) -> None:
    definitions = [{"Name": "endless", "Regex": "(a+)+$"}]
    found = asyncio.run(find_metrics(log, definitions, cpu_s=100, wall_s=0.5))
    assert found.faults == ("metric 'endless' has no value: the search took more than 0.5 s",)


def test_a_stream_that_is_not_there_has_no_metrics(tmp_path: Path) -> None:
    assert find(tmp_path / "absent", ("loss", "loss: (.*)")) == FoundMetrics()


def test_the_service_goes_on_while_an_expression_runs(log: Path) -> None:
    async def run() -> int:
        search = asyncio.create_task(find_metrics(log, [{"Name": "endless", "Regex": "(a+)+$"}], cpu_s=1))
        turns = 0
        while not search.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert asyncio.run(run()) > 100


def test_statistics_cover_every_value_of_every_instance(log: Path, tmp_path: Path) -> None:
    with SegmentWriter(tmp_path / "other", clock=SetClock()) as writer:
        writer.write(b"epoch 9 loss: 0.4375")
    found = find(log, ("loss", r"(?:^|\s)loss: ([0-9.e-]+)"), ("none", "never (.*)"))
    definitions = [{"Name": "loss", "Regex": r"(?:^|\s)loss: ([0-9.e-]+)"}, {"Name": "none", "Regex": "never (.*)"}]
    whole = asyncio.run(with_statistics(found, [log, tmp_path / "other"], definitions))
    (loss,) = whole.metrics
    statistics = dict(loss.statistics)
    assert statistics.pop("m2") == pytest.approx(sum((each - 1 / 3) ** 2 for each in (0.5, 0.0625, 0.4375)))
    assert statistics.pop("mean") == pytest.approx(1 / 3)
    assert statistics == {"count": 3, "min": 0.0625, "max": 0.5, "last": 0.4375, "at_ms": 2000}
    endless = [{"Name": "endless", "Regex": "(a+)+$"}]
    assert asyncio.run(with_statistics(found, [log], endless, wall_s=0.5)) == found


def test_metrics_are_kept_with_the_job() -> None:
    job = TrainingJob(
        name="j",
        arn="arn",
        job_id="00",
        request={},
        created_ms=1,
        log_streams=("j/algo-1-1",),
        final_metrics=(FinalMetric("loss", 0.5, 7),),
    ).enter(SecondaryStatus.STARTING, at_ms=1, message="")
    assert TrainingJob.from_document(job.to_document()) == job
    of_an_earlier_version = {k: v for k, v in job.to_document().items() if k != "final_metrics"}
    assert TrainingJob.from_document(of_an_earlier_version).final_metrics == ()
