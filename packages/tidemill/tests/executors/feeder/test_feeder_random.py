"""No byte is lost, doubled or reordered, for random sizes and random kills."""

import gzip
import json
import os
import random
import subprocess
import sys
import time
from typing import Any

import pytest

from tidemill.instance.spec import ObjectFile

FEEDER = """
import json, signal, sys
from pathlib import Path
from tidemill.core.clock import SystemClock
from tidemill.instance.spec import ChannelSpec
from tidemill.instance.directory import InstanceDirectory
from tidemill.shim.feeder import PipeFeeder

spec = ChannelSpec(objects=(), input_mode="Pipe", **json.loads(sys.argv[2]))
directory = InstanceDirectory(Path(sys.argv[1]))
feeder = PipeFeeder(directory, [spec], log=print, clock=SystemClock())
print("ready", flush=True)
with feeder.running() as start:
    start()
    signal.pause()
"""


def make(stage: Any, draw: random.Random) -> tuple[list[ObjectFile], dict[str, Any], bytes]:
    """Return objects of random sizes, options of the stream, and the expected bytes."""
    packed, wrapped = draw.random() < 0.5, draw.random() < 0.5
    objects, expected = [], b""
    for index in range(draw.randrange(1, 40)):
        size_bytes = draw.choice([0, draw.randrange(100), draw.randrange(40_000), draw.randrange(300_000)])
        content = draw.randbytes(size_bytes)
        stored = gzip.compress(content[: size_bytes // 2], 1) + gzip.compress(content[size_bytes // 2 :], 1)
        objects.append(stage.object(f"{index}", stored if packed else content))
        expected += stage.record(content) if wrapped else content
    settings = {
        "name": "train",
        "compression": "Gzip" if packed else "None",
        "record_wrapper": "RecordIO" if wrapped else "None",
    }
    return objects, settings, expected


def read(stage: Any, draw: random.Random, limit_bytes: int, *, epoch: int) -> bytes:
    """Read in random pieces, sometimes slowly, until the end or until ``limit_bytes``."""
    data = b""
    with (stage.data / f"train_{epoch}").open("rb", buffering=0) as fifo:
        while len(data) < limit_bytes:
            piece = fifo.read(min(draw.choice([1, 7, 4096, 65_536, 1 << 20]), limit_bytes - len(data)))
            if not piece:
                break
            data += piece
            if draw.random() < 0.01:
                time.sleep(0.001)  # slows the reader down; no event is waited for
    return data


@pytest.mark.parametrize("seed", range(12))
def test_every_epoch_is_whole_or_a_beginning_of_it(stage: Any, seed: int) -> None:
    draw = random.Random(seed)
    objects, settings, expected = make(stage, draw)
    with stage.feeding(*objects, **settings) as feeder:
        for epoch in range(6):
            limit_bytes = draw.choice([len(expected) + 1, draw.randrange(len(expected) + 1) + 1])
            data = read(stage, draw, limit_bytes, epoch=epoch)
            assert data == expected[:limit_bytes]
            stage.wait_until(lambda epoch=epoch: stage.outcome(epoch)["state"] != "writing")
            outcome = stage.outcome(epoch)
            if limit_bytes > len(expected):
                assert (outcome["state"], outcome["bytes"], outcome["objects"]) == ("ok", len(expected), len(objects))
            elif outcome["state"] == "error":
                assert limit_bytes <= outcome["bytes"] <= len(expected)
    assert feeder.failure is None


@pytest.mark.parametrize("seed", range(12))
def test_a_feeder_that_is_killed_leaves_a_beginning_and_no_ok(stage: Any, seed: int) -> None:
    draw = random.Random(seed)
    objects, settings, expected = make(stage, draw)
    stage.directory.write_channel("train", objects)
    command = [sys.executable, "-c", FEEDER, str(stage.directory.path), json.dumps(settings)]
    kill_at_bytes = draw.randrange(len(expected) + 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as feeder:
        assert feeder.stdout is not None
        feeder.stdout.readline()
        with (stage.data / "train_0").open("rb", buffering=0) as fifo:
            data = b""
            while len(data) < kill_at_bytes:
                data += fifo.read(min(4096, kill_at_bytes - len(data)))
            os.kill(feeder.pid, 9)
            feeder.wait()
            data += fifo.readall()
    assert expected.startswith(data)
    outcome = stage.outcome()
    if outcome["state"] == "ok":
        assert (data, outcome["bytes"]) == (expected, len(expected))
    else:
        assert outcome["state"] == "writing"
