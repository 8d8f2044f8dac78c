"""Timelines: the contents of the file, and no added ops without one."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest

import ranks

CONFIG = {"auto_partition": False, "default_partition": 0}


@pytest.mark.parametrize("pipeline", ["interleaved", "simple"])
def test_the_first_rank_writes_the_events_of_all_ranks(tmp_path: Path, pipeline: str) -> None:
    path = tmp_path / "traces" / "timeline.json"
    results = ranks.run(2, train_with_timeline, str(path), pipeline, config=CONFIG)
    assert [result["steps"] for result in results] == [3, 0]
    document = json.loads(path.read_text())
    assert document["otherData"] == results[0]
    assert document["otherData"]["ideal"] == pytest.approx(1 / 5)
    assert 0.0 <= document["otherData"]["bubble"] < 1.0
    names = {e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"rank 0 (partition 0)", "rank 1 (partition 1)"}
    spans = [event for event in document["traceEvents"] if event["ph"] == "X" and event["args"]["step"] == 1]
    run = [(e["pid"], e["args"]["pass"], e["args"]["microbatch"]) for e in spans if e["cat"] == "compute"]
    assert sorted(run) == sorted(
        [(0, kind, microbatch) for kind in ("forward", "backward") for microbatch in range(4)]
        + [(1, "forward and backward", microbatch) for microbatch in range(4)]
    )
    _check_order(spans)


def _check_order(spans: list[dict[str, Any]]) -> None:
    """Assert that a task begins after the tasks of other ranks that it needs. All ranks share the machine's clock."""
    found = {(e["pid"], e["args"]["pass"], e["args"]["microbatch"]): e for e in spans if e["cat"] == "compute"}
    for microbatch in range(4):
        forward, both, backward = (
            found[key]
            for key in (
                (0, "forward", microbatch),
                (1, "forward and backward", microbatch),
                (0, "backward", microbatch),
            )
        )
        assert forward["ts"] + forward["dur"] <= both["ts"]
        assert both["ts"] + both["dur"] <= backward["ts"]
    for rank in (0, 1):
        line = sorted((e for e in spans if e["pid"] == rank), key=lambda e: (e["ts"], e["ts"] + e["dur"]))
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1.0 for a, b in itertools.pairwise(line))


def train_with_timeline(path: str, pipeline: str) -> dict[str, Any]:
    import keras

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    with configured(microbatches=4, pipeline=pipeline), smp.timeline(path) as timeline:
        net = models.distributed(models.Chain)(2)
        models.smp_steps(net, keras.optimizers.SGD(0.1), models.batches(3, 16))
    log.removeHandler(handler)
    lines = [message for message in messages if "smp.timeline" in message]
    assert len(lines) == (smp.rank() == 0)
    return timeline.summary()


def test_without_a_timeline_a_step_reads_no_clock() -> None:
    for kinds in ranks.run(2, kinds_of_ops, config=CONFIG):
        assert "TidemillSmpSend" in kinds or "EagerPyFunc" in kinds or "PyFunc" in kinds
        assert "Timestamp" not in kinds


def kinds_of_ops() -> list[str]:
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured

    with configured(microbatches=2):
        net = models.distributed(models.Chain)(2)

        @smp.step
        def forward_backward(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = models.loss_of(net, x, y)
            return tape.gradient(loss, net.trainable_variables), loss

        @tf.function
        def train(x: Any, y: Any) -> Any:
            return forward_backward(x, y)[1].reduce_mean()

        (x, y), *_ = models.batches(1, 16)
        concrete = train.get_concrete_function(tf.constant(x), tf.constant(y))
        return sorted({op.type for op in concrete.graph.get_operations()})


def test_the_configuration_can_enable_a_timeline(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    with ranks.Job(2, {"partitions": 2, **CONFIG, "microbatches": 2, "timeline": str(path)}) as job:
        results = job.call(train_plainly)
        assert not any(isinstance(result, ranks.Failure) for result in results), results
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1}


def train_plainly() -> None:
    import keras

    import models

    net = models.distributed(models.Chain)(2)
    models.smp_steps(net, keras.optimizers.SGD(0.1), models.batches(2, 16))
