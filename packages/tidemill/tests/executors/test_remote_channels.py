"""Channels in a remote S3 of whole instances, with real shims and sandboxes."""

import _ssl
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tidemill.instance import transfers
from tidemill.instance.spec import ChannelSpec
from tidemill.instance.status import InstanceOutcome, StopReason

BASE = (
    "import hashlib, json, os, sys; from pathlib import Path\n"
    "base = Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
    "read = lambda name: (base / 'input/data' / name).read_bytes()\n"
)
FILES = BASE + (
    "data = base / 'input/data/train'\n"
    "print({str(path.relative_to(data)): len(path.read_bytes()) for path in sorted(data.rglob('*')) if path.is_file()})"
)


@pytest.fixture
def far(remote: Any, stage: Any) -> Any:
    """Return a remote S3 whose keys are in the environment of the executor."""
    return remote


def channel(far: Any, mode: str, **objects: bytes) -> ChannelSpec:
    return ChannelSpec(name="train", input_mode=mode, objects=[far.put(key, data) for key, data in objects.items()])


def test_files_are_copied_into_the_channel(stage: Any, far: Any) -> None:
    objects = {f"d{number % 7}/{number:03}": bytes(number * 1000) for number in range(150)}
    ref, ended = stage.run(FILES, channels=(channel(far, "File", **objects),), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == str({name: len(data) for name, data in sorted(objects.items())})


def test_files_are_whole_although_connections_break(stage: Any, far: Any) -> None:
    far.wire.cut_after = 300_000
    content = os.urandom(2_000_000)
    ref, ended = stage.run("", channels=(channel(far, "File", a=content),), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert (stage.directory(ref).ml / "input/data/train/a").read_bytes() == content


def test_pipes_are_fed(stage: Any, far: Any) -> None:
    script = BASE + "print(read('train_0'), read('train_1'), read('near_0'))"
    near = ChannelSpec(name="near", input_mode="Pipe", objects=[stage.stored(b"near", name="n")])
    ref, ended = stage.run(script, channels=(channel(far, "Pipe", a=b"far,", b=b"off"), near), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == f"{b'far,off'} {b'far,off'} {b'near'}"


def test_nothing_secret_is_written_and_nothing_is_given_to_the_script(stage: Any, far: Any) -> None:
    script = BASE + "print(sorted(name for name in os.environ if name.startswith('AWS_'))); print(read('train_0'))"
    ref, ended = stage.run(script, channels=(channel(far, "Pipe", a=b"far"),), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-2] == "[]"
    secrets = [os.environ["AWS_SECRET_ACCESS_KEY"].encode(), b"X-Amz-Signature", b"Signature="]
    written = [path for path in stage.state_dir.rglob("*") if path.is_file()]
    assert stage.directory(ref).channel_file("train") in written
    for path in written:
        data = path.read_bytes()
        assert not any(secret in data for secret in secrets), path


@pytest.mark.parametrize("mode", ["File", "Pipe"])
def test_a_replaced_object_fails_the_job(stage: Any, far: Any, mode: str) -> None:
    made = channel(far, mode, a=b"first", b=b"second")
    far.put("b", b"SECOND")
    script = BASE + ("print(read('train_0'))" if mode == "Pipe" else "")
    ref, ended = stage.run(script, channels=(made,), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    place = "ClientError: " + ("channel 'train', epoch 0: " if mode == "Pipe" else "")
    assert ended.failure.startswith(f"{place}s3://{far.bucket}/b cannot be read from {far.wire.url}: HTTP 412"), ended
    if mode == "Pipe":
        outcome = (stage.directory(ref).ml / "input/data/.tidemill/train_0.outcome").read_text()
        assert outcome.startswith("2 error 5 1 ")


def test_an_endpoint_that_is_away_fails_a_job_in_file_mode(stage: Any, far: Any) -> None:
    made = channel(far, "File", a=b"first")
    far.wire.close()
    _, ended = stage.run("", channels=(made,), remotes=far.remotes)
    assert ended.outcome is InstanceOutcome.FAILED
    assert f"s3://{far.bucket}/a cannot be read from {far.wire.url}: Connection refused" in ended.failure


def test_a_key_that_leaves_the_channel_fails_the_job(stage: Any, far: Any) -> None:
    _, ended = stage.run("", channels=(channel(far, "File", **{"../../x": b"x"}),), remotes=far.remotes)
    assert ended.failure.startswith("ClientError: object key leaves the channel")


def test_a_stop_ends_a_download_from_a_store_that_is_silent(stage: Any, far: Any) -> None:
    made = channel(far, "File", a=bytes(1_000_000))
    far.wire.silent_after = 100_000
    ref = stage.start("", channels=(made,), remotes=far.remotes)
    stage.wait(ref, lambda: bool(far.wire.requests))
    began_s = time.monotonic()
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    assert stage.ended(ref).outcome is InstanceOutcome.STOPPED
    assert time.monotonic() - began_s < transfers._SILENCE_TIMEOUT_S, "a stop does not wait for the store"


@pytest.mark.parametrize("mode", ["File", "Pipe"])
@pytest.mark.parametrize("distance", ["near", "far"])
def test_only_a_job_with_remote_data_loads_boto3(stage: Any, remote: Any, mode: str, distance: str) -> None:
    objects = [remote.put("a", b"a")] if distance == "far" else [stage.stored(b"a", name="a")]
    script = BASE + ("print(read('train_0'), flush=True)\n" if mode == "Pipe" else "") + "print('ready', flush=True)\n"
    script += "import signal; signal.pause()\n"
    ref = stage.start(
        script,
        channels=(ChannelSpec(name="train", input_mode=mode, objects=objects),),
        remotes=remote.remotes if distance == "far" else {},
    )
    stage.wait_for_line(ref, "ready")
    shim = stage.directory(ref).read_run().pid
    variables = Path(f"/proc/{shim}/environ").read_bytes()
    mapped = Path(f"/proc/{shim}/maps").read_text()
    stage.executor.stop(ref, reason=StopReason.STOPPED)
    stage.ended(ref)
    assert (b"AWS_SECRET_ACCESS_KEY=" in variables) == (distance == "far")
    assert (_ssl.__file__ in mapped) == (distance == "far")  # boto3 cannot be loaded without it
