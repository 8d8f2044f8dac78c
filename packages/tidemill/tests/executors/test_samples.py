"""The samples of real instances: in each sandbox, and after kills of the service or of the shim."""

import os
import signal
from typing import Any

from tidemill.core.segments import stream_directory
from tidemill.instance.samples import SampleSeries

MIB = 1 << 20
# Runs until the test says so; 100 MiB and a file of 8 MiB are in use from the line "busy" on.
BUSY = (
    "import os, pathlib, time\n"
    "base = pathlib.Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
    "held = bytearray(b'1') * (100 << 20)\n"
    "(base / 'model/weights').write_bytes(bytes(8 << 20))\n"
    "print('busy', flush=True)\n"
    "while not (base / 'output/data/go').exists(): time.process_time(); time.sleep(0.005)\n"
)


def series_of(stage: Any, ref: Any) -> SampleSeries:
    return SampleSeries.read(stream_directory(stage.state_dir / "logs", "jobs", ref.job_id))


def go(stage: Any, ref: Any) -> None:
    (stage.directory(ref).ml / "output/data/go").touch()


def test_samples_of_a_job_begin_with_its_first_second_and_survive_its_files(any_stage: Any) -> None:
    ref = any_stage.start(BUSY)
    any_stage.wait_for_line(ref, "busy")
    any_stage.wait(ref, lambda: any(each.memory_bytes > 100 * MIB for each in series_of(any_stage, ref).samples))
    any_stage.wait(ref, lambda: any(each.cpu > 0 for each in series_of(any_stage, ref).samples))
    go(any_stage, ref)
    any_stage.ended(ref)
    any_stage.executor.reap(ref.job_id)
    series = series_of(any_stage, ref)
    assert series.instance is not None and series.instance.network == "machine"
    assert series.samples[-1].span_ms < 11_000
    assert max(each.disk_bytes for each in series.samples) >= 8 * MIB
    assert [each.at_ms for each in series.samples] == sorted({each.at_ms for each in series.samples})
    assert any_stage.lines(ref).count("busy") == 1, "the file of samples is no segment of the log"


def test_samples_go_on_while_no_service_runs_and_after_the_shim_was_killed_with_the_next_attempt(stage: Any) -> None:
    ref = stage.start(BUSY)
    stage.wait_for_line(ref, "busy")
    stage.executor.close()  # as if the service were killed: the shim samples on
    before = len(series_of(stage, ref).samples)
    stage.reopen()
    stage.executor.relaunch(ref)
    stage.wait(ref, lambda: len(series_of(stage, ref).samples) > before)
    shim = stage.directory(ref).read_run()
    os.kill(shim.pid, signal.SIGKILL)
    stage.wait(ref, lambda: not stage.executor.observe(ref).running)
    kept = series_of(stage, ref).samples
    assert kept
    again = stage.spec(BUSY, ref=type(ref)(ref.job_id, 0, 2), log=type(stage.spec().log)("jobs", ref.job_id))
    stage.executor.launch([again])
    stage.wait(again.ref, lambda: len(series_of(stage, ref).samples) > len(kept))
    assert series_of(stage, ref).samples[: len(kept)] == kept
    go(stage, again.ref)
    stage.ended(again.ref)


def test_the_network_of_an_isolated_instance_is_its_own(make_stage: Any) -> None:
    stage = make_stage("full:unshare")
    ref = stage.start(BUSY)
    stage.wait_for_line(ref, "busy")
    stage.wait(ref, lambda: len(series_of(stage, ref).samples) > 1)
    go(stage, ref)
    stage.ended(ref)
    series = series_of(stage, ref)
    assert series.instance is not None and series.instance.network == "instance"
    assert sum(each.received_bytes_s for each in series.samples) < MIB


def test_a_full_disk_or_a_removed_log_ends_samples_and_not_the_job(stage: Any) -> None:
    spec = stage.spec(BUSY)
    stage.executor.launch([spec])
    ref = spec.ref
    stage.wait_for_line(ref, "busy")
    directory = stream_directory(stage.state_dir / "logs", "jobs", ref.job_id)
    stage.wait(ref, lambda: bool(series_of(stage, ref).samples))
    (directory / "resources.jsonl").unlink()
    (directory / "resources.jsonl").mkdir()
    note = "no more samples of what this instance uses are stored"
    stage.wait(ref, lambda: any(note in line for line in stage.lines(ref)))
    go(stage, ref)
    assert stage.ended(ref).outcome == "completed"
