"""Channels in Pipe mode of whole instances, with real shims and sandboxes."""

import fcntl
import os
import signal
from dataclasses import replace

from tidemill.instance.status import InstanceOutcome

BASE = (
    "import hashlib, json, os, sys; from pathlib import Path\n"
    "base = Path(os.environ.get('SAGEMAKER_BASE_DIR', '/opt/ml'))\n"
    "read = lambda name: (base / 'input/data' / name).read_bytes()\n"
)


def pipe(stage, name="train", objects=None, **options):
    channel = stage.channel(name, **(objects or {"a": b"one,", "b": b"two"}))
    return replace(channel, input_mode="Pipe", **options)


IS_FED = (
    "import fcntl\n"
    "def is_fed(path):\n"
    "    try: fcntl.flock(open(path), fcntl.LOCK_SH | fcntl.LOCK_NB)\n"
    "    except BlockingIOError: return True\n"
    "    return False\n"
)


def is_fed(path):
    """Return whether a reader would consider the lock of a channel's feeder held."""
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def outcome(stage, ref, name):
    return (stage.directory(ref).ml / f"input/data/.tidemill/{name}.outcome").read_text()


def test_a_script_reads_its_fifos_in_every_sandbox(any_stage):
    script = (
        BASE
        + IS_FED
        + (
            "print([read(f'train_{epoch}') for epoch in range(3)], read('files/a'))\n"
            "print(is_fed(base / 'input/data/.tidemill/train.feeder'))\n"
        )
    )
    channels = (pipe(any_stage), any_stage.channel("files", a=b"file"))
    ref, ended = any_stage.run(script, channels=channels)
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, any_stage.lines(ref))
    assert any_stage.lines(ref)[-2:] == [f"{[b'one,two'] * 3} {b'file'}", "True"]


def test_an_unread_channel_does_not_keep_an_instance_from_ending(stage):
    _, ended = stage.run("", channels=(pipe(stage),))
    assert ended.outcome is InstanceOutcome.COMPLETED


def test_an_instance_gets_its_part_of_a_sharded_channel(stage):
    objects = {f"{number}": b"%d" % number for number in range(7)}
    channel = pipe(stage, objects=objects, share=(0, 3))
    ref, _ = stage.run(BASE + "print(read('train_0'))", channels=(channel,))
    assert stage.lines(ref)[-1] == str(b"036")


def test_channels_are_fed_to_a_script_that_has_packages_installed_first(stage):
    config = {"hyperparameters": {"script": BASE + "print(read('train_0'), read('train_1'))", "requirements": "two==2"}}
    ref, ended = stage.run(config=config, channels=(pipe(stage),))
    assert ended.outcome is InstanceOutcome.COMPLETED, (ended, stage.lines(ref))
    assert stage.lines(ref)[-1] == f"{b'one,two'} {b'one,two'}"


def test_the_outcome_stays_unfinished_when_the_shim_is_killed(any_stage):
    script = BASE + (
        "fifo = open(base / 'input/data/train_0', 'rb', buffering=0)\n"
        "fifo.read(7); print('reading', flush=True)\n"
        "import signal; signal.pause()\n"
    )
    ref = any_stage.start(script, channels=(pipe(any_stage, objects={"big": b"0123456789" * 1_000_000}),))
    any_stage.wait_for_line(ref, "reading")
    lock = any_stage.directory(ref).ml / "input/data/.tidemill/train.feeder"
    assert is_fed(lock)
    os.kill(any_stage.directory(ref).read_run().pid, signal.SIGKILL)
    any_stage.wait(ref, lambda: not any_stage.executor.observe(ref).running)
    assert outcome(any_stage, ref, "train_0") == "2 writing 0 0\n"
    any_stage.wait(ref, lambda: not is_fed(lock))  # processes that the shim forked may hold the lock until they end
    assert any_stage.executor.observe(ref).exit is None


def test_a_script_that_did_well_on_half_its_data_has_failed(stage):
    channel = pipe(stage)
    stage.content(channel.objects[1]).unlink()
    ref, ended = stage.run(BASE + "print(read('train_0')); (base / 'model/m').touch()", channels=(channel,))
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure.startswith("ClientError: channel 'train', epoch 0: s3://bucket/data/b was deleted or replaced")
    assert "model" not in ended.artifacts
    assert str(b"one,") in stage.lines(ref)


def test_a_script_that_fails_on_broken_data_has_its_own_reason(stage):
    channel = pipe(stage)
    stage.content(channel.objects[1]).unlink()
    ref, ended = stage.run(BASE + "read('train_0'); sys.exit(3)", channels=(channel,))
    assert ended.failure.startswith("AlgorithmError: ExecuteUserScriptError:\nExitCode 3")
    assert any("s3://bucket/data/b was deleted or replaced" in line for line in stage.lines(ref))
