"""Shards, shuffling, and long listings."""

import hashlib
import tracemalloc
from typing import Any

import pytest

from tidemill.instance.spec import ChannelSpec, InlineText
from tidemill.shim.feeder.order import Order


def order(stage: Any, count: int, **channel: Any) -> Order:
    spec = ChannelSpec(**{"name": "train", "objects": (), "input_mode": "Pipe", **channel})
    listing = stage.directory.channel_file("train")
    if not listing.exists():
        stage.directory.write_channel("train", (InlineText(text=f"{number}") for number in range(count)))
    return Order(listing, spec)


def numbers(made: Order, epoch: int = 0) -> list[int]:
    return [int(entry.text) for entry in made.entries(epoch) if isinstance(entry, InlineText)]


@pytest.mark.parametrize("hosts", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("seed", [None, 0, 2**63 - 1, -1])
@pytest.mark.parametrize("per_item", [1, 4])
def test_shards_are_disjoint_and_miss_nothing(stage: Any, hosts: int, seed: int | None, per_item: int) -> None:
    options = {"shuffle_seed": seed, "entries_per_item": per_item}
    for epoch in range(3):
        shards = [numbers(order(stage, 24, share=(host, hosts), **options), epoch) for host in range(hosts)]
        assert sorted(number for shard in shards for number in shard) == list(range(24))
        items = 24 // per_item
        assert {len(shard) for shard in shards} <= {items // hosts * per_item, -(-items // hosts) * per_item}
        for shard in shards:
            starts = shard[::per_item]
            assert shard == [start + index for start in starts for index in range(per_item)]


def test_a_seed_determines_a_different_order_for_each_epoch(stage: Any) -> None:
    first = [numbers(order(stage, 50, shuffle_seed=7), epoch) for epoch in range(3)]
    assert first == [numbers(order(stage, 50, shuffle_seed=7), epoch) for epoch in range(3)]
    assert first[0] != first[1] != first[2]
    assert numbers(order(stage, 50, shuffle_seed=8)) != first[0]
    # This order must never change: a job that is repeated with a later version must get the same order.
    assert numbers(order(stage, 50, shuffle_seed=7))[:6] == [46, 29, 44, 48, 3, 20]


@pytest.mark.parametrize("seed", [None, 1])
def test_a_hundred_thousand_objects_take_little_memory(stage: Any, seed: int | None) -> None:
    made = order(stage, 100_000, shuffle_seed=seed)
    tracemalloc.start()
    try:
        assert sum(1 for _ in made.entries(0)) == 100_000
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4_000_000


def test_forty_thousand_objects_are_streamed_in_flat_memory(stage: Any) -> None:
    small = stage.object("a", b"0123456789")
    feeder = stage.feeder(*[small] * 40_000, record_wrapper="RecordIO", shuffle_seed=1)
    draining = "import hashlib; print(hashlib.file_digest(fifo, 'sha256').hexdigest())"
    tracemalloc.start()
    try:
        with feeder.running() as start, stage.ended(stage.reader(draining)) as reader:
            start()
            digest = reader.communicate()[0].decode().strip()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert digest == hashlib.sha256(stage.record(b"0123456789") * 40_000).hexdigest()
    assert stage.outcome()["objects"] == 40_000
    assert peak_bytes < 4_000_000
