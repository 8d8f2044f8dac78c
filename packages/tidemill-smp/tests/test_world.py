"""The processes of a job: ranks, exchanges, and the detection of lost peers."""

import contextlib
import itertools
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ranks
import smdistributed.modelparallel.tensorflow as smp
from ports import reserved_port
from smdistributed.modelparallel.tensorflow import session, utils
from smdistributed.modelparallel.tensorflow._shared.ranks import handshake
from smdistributed.modelparallel.tensorflow._shared.ranks.connections import PeerListener, call
from smdistributed.modelparallel.tensorflow._shared.ranks.environment import RankInfo
from smdistributed.modelparallel.tensorflow._shared.ranks.errors import MissingRanksError, RanksError
from smdistributed.modelparallel.tensorflow._shared.ranks.store import Store
from smdistributed.modelparallel.tensorflow.cores import cores_of

pytestmark = pytest.mark.smp_first


def ranks_and_sizes():
    return {
        "rank": smp.rank(),
        "size": smp.size(),
        "local": (smp.local_rank(), smp.local_size()),
        "mp": (smp.mp_rank(), smp.mp_size(), smp.get_mp_group()),
        "dp": (smp.dp_rank(), smp.dp_size(), smp.get_dp_group()),
        "pp": (smp.pp_rank(), smp.pp_size()),
        "rdp": (smp.rdp_rank(), smp.rdp_size()),
        "tp": (smp.tp_rank(), smp.tp_size()),
        "initialized": smp.core.initialized,
    }


def test_each_rank_has_its_position_in_a_spread_job():
    places = ranks.run(4, ranks_and_sizes, config={"partitions": 2, "placement_strategy": "spread"})
    assert [place["rank"] for place in places] == [0, 1, 2, 3]
    assert [place["mp"] for place in places] == [(0, 2, [0, 2]), (0, 2, [1, 3]), (1, 2, [0, 2]), (1, 2, [1, 3])]
    assert [place["dp"] for place in places] == [(0, 2, [0, 1]), (1, 2, [0, 1]), (0, 2, [2, 3]), (1, 2, [2, 3])]
    for place in places:
        assert place["pp"] == place["mp"][:2] and place["rdp"] == place["dp"][:2] and place["tp"] == (0, 1)
        assert place["size"] == 4 and place["local"] == (place["rank"], 4) and place["initialized"] is True


def gather_in_all_groups():
    value = {"rank": smp.rank(), "data": b"x" * smp.rank()}
    return [smp.allgather(value, group) for group in (smp.WORLD, smp.MP_GROUP, smp.DP_GROUP)]


def test_allgather_is_indexed_by_rank_in_the_group():
    gathered = ranks.run(4, gather_in_all_groups, config={"partitions": 2})
    for rank, (world, mp, dp) in enumerate(gathered):
        assert [value["rank"] for value in world] == [0, 1, 2, 3]
        assert [value["rank"] for value in mp] == [[0, 1], [0, 1], [2, 3], [2, 3]][rank]
        assert [value["rank"] for value in dp] == [[0, 2], [1, 3], [0, 2], [1, 3]][rank]
        assert world[3]["data"] == b"xxx"


def pair_up():
    """Exchange objects by every pairing of send, broadcast and recv_from."""
    if smp.rank() == 0:
        smp.send({"n": 1}, 1, smp.RankType.WORLD_RANK)
        smp.broadcast([2], smp.WORLD)
        smp.send(b"x" * 50_000_000, 1, smp.RankType.MP_RANK)
        smp.broadcast("mp", smp.MP_GROUP)
        return smp.recv_from(1, smp.RankType.DP_RANK)
    received = []
    if smp.rank() == 1:
        received.append(smp.recv_from(0, smp.RankType.WORLD_RANK))
    received.append(smp.recv_from(0, smp.RankType.WORLD_RANK))
    if smp.rank() == 1:
        received += [len(smp.recv_from(0, smp.RankType.MP_RANK)), smp.recv_from(0, smp.RankType.MP_RANK)]
    if smp.rank() == 2:
        smp.send("from replica 1", 0, smp.RankType.DP_RANK)
    return received


def test_recv_from_matches_a_send_or_a_broadcast_in_order():
    results = ranks.run(4, pair_up, config={"partitions": 2})
    assert results == ["from replica 1", [{"n": 1}, [2], 50_000_000, "mp"], [[2]], [[2]]]


def send_to_a_late_receiver(seconds):
    """Return the time of the receiver's call, or of the sender's return. All processes share the machine's clock."""
    if smp.rank() == 1:
        time.sleep(seconds)  # the receiver is busy meanwhile
        asked = time.monotonic()
        return smp.recv_from(0, smp.RankType.WORLD_RANK), asked
    smp.send("late", 1, smp.RankType.WORLD_RANK)
    return time.monotonic()


def test_send_returns_after_the_receive():
    returned, (received, asked) = ranks.run(2, send_to_a_late_receiver, 1.0)
    assert received == "late" and returned >= asked


def reduce_arrays():
    now = session.current()
    results = []
    for size, dtype in itertools.product((1, 1000, 300_001), ("float32", "float64", "int64", "bfloat16")):
        array = np.random.default_rng(now.world.rank).integers(-50, 50, size).astype(dtype).reshape(-1, 1)
        total = now.world_group.allreduce(array, "sum")
        assert total.dtype == array.dtype and total.shape == array.shape
        results.append(total.astype("float64").tobytes())
    results.append(now.world_group.allreduce(np.float32(now.world.rank), "mean").item())
    results.append(now.world_group.broadcast(np.arange(3) if now.world.rank == 1 else None, root=1).tolist())
    results.append([len(one) for one in now.world_group.allgather(np.zeros(now.world.rank))])
    return results


def test_arrays_are_reduced_to_the_same_bits_on_all_ranks():
    first, *others = ranks.run(4, reduce_arrays, config={"partitions": 2})
    assert all(other == first for other in others)
    sizes = itertools.product((1, 1000, 300_001), ("float32", "float64", "int64", "bfloat16"))
    for result, (size, dtype) in zip(first, sizes, strict=False):
        parts = [np.random.default_rng(rank).integers(-50, 50, size).astype("float64") for rank in range(4)]
        np.testing.assert_array_equal(np.frombuffer(result), sum(parts), err_msg=f"{size} {dtype}")
    assert first[-3:] == [1.5, [0, 1, 2], [0, 1, 2, 3]]


def make_invalid_calls(which):
    if which == "self":
        smp.send(1, smp.rank(), smp.RankType.WORLD_RANK)
    elif which == "range":
        smp.recv_from(2, smp.RankType.MP_RANK)
    elif which == "type":
        smp.send(1, 0, "WORLD")
    elif which == "group":
        smp.barrier("WORLD")
    elif which == "other":
        smp.barrier() if smp.rank() == 0 else smp.allgather(1, smp.WORLD)
    elif which == "again":
        smp.init({"partitions": 2, "microbatches": 4})


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("self", "which is this rank itself"),
        ("range", "'src_rank' is 2 as MP_RANK; allowed is 0 to 1"),
        ("type", "'rank_type' is 'WORLD'; allowed is one of smp.RankType.WORLD_RANK"),
        ("group", "'group' is 'WORLD'; allowed is one of smp.WORLD"),
        ("other", "must make the same calls in the same order"),
        ("again", r"'microbatches' 1 -> 4"),
    ],
)
def test_calls_that_cannot_work_are_refused(which, words):
    for failure in ranks.run(2, make_invalid_calls, which, check=False):
        assert failure.kind == "SMPUsageError" and words in failure.text


def init_again():
    smp.init({"partitions": 2, **ranks.DEFAULTS})
    return smp.core.initialized


def test_the_same_parameters_again_change_nothing():
    assert ranks.run(2, init_again) == [True, True]


def wait_for_all():
    smp.barrier()


def test_a_killed_rank_ends_every_wait_and_the_busy_at_their_next_call():
    with ranks.Job(3, {"partitions": 3}) as job:
        job.call(ranks_and_sizes)
        job.begin(wait_for_all, only=[0])
        os.kill(job.processes[2].pid, signal.SIGKILL)
        waiting = job.result(0)
        job.begin(wait_for_all, only=[1])
        busy = job.result(1)
        for failure in (waiting, busy):
            assert failure.kind == "SMPPeerLostError", "not that of the limit for hanging ranks"
            assert "rank 2 (partition 2) died" in failure.text
            assert "this rank was in barrier over the world group" in failure.text


def test_a_stopped_rank_is_named_after_the_limit():
    with ranks.Job(2, {"partitions": 2, "hang_timeout_s": 8}) as job:
        job.call(ranks_and_sizes)
        os.kill(job.processes[1].pid, signal.SIGSTOP)
        job.begin(wait_for_all, only=[0])
        failure = job.result(0)
        os.kill(job.processes[1].pid, signal.SIGKILL)
    assert failure.kind == "SMPDeadlockError"
    assert "rank 1 (partition 1) did not answer within 8 s" in failure.text
    assert "it has given no sign of life for" in failure.text


def receive_from_each_other():
    smp.recv_from(1 - smp.rank(), smp.RankType.WORLD_RANK)


def test_ranks_that_wait_for_each_other_report_what_the_other_waits_for():
    failures = ranks.run(2, receive_from_each_other, config={"hang_timeout_s": 8}, check=False)
    late = [failure for failure in failures if failure.kind == "SMPDeadlockError"]
    assert late
    assert any("it is alive and itself waits in recv_from rank" in failure.text for failure in late)


def test_a_rank_that_exited_normally_is_an_error_only_for_ranks_that_wait_for_it():
    with ranks.Job(3, {"partitions": 3}) as job:
        job.call(ranks_and_sizes)
        job._pipes[2][0].close()  # its script ends
        assert job.processes[2].wait(120) == 0
        job.begin(exchange_between_the_others, only=[0, 1])
        assert [job.result(rank) for rank in (0, 1)] == ["hello", "hello"]
        job.begin(wait_for_all, only=[0])
        failure = job.result(0)
    assert failure.kind == "SMPPeerLostError"
    assert "rank 2 (partition 2) has come to its end" in failure.text


def exchange_between_the_others():
    if smp.rank() == 0:
        smp.send("hello", 1, smp.RankType.WORLD_RANK)
        return "hello"
    return smp.recv_from(0, smp.RankType.WORLD_RANK)


def test_a_connection_without_the_secret_is_refused():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=connect_with_wrong_secret, args=(theirs,))
        thread.start()
        with pytest.raises(handshake.HandshakeError, match="does not know this job's secret"):
            handshake.accept(ours, secret=b"a" * 32, rank=0)
        thread.join()


def connect_with_wrong_secret(connection):
    with contextlib.suppress(handshake.HandshakeError):
        handshake.introduce(connection, secret=b"b" * 32, rank=1, channel="objects")


def test_a_process_of_another_user_is_refused(monkeypatch):
    with contextlib.closing(PeerListener(secret=b"", rank=0, expected=[(1, "objects")])) as listener:
        address = listener.listen("a-name-of-this-test")
        monkeypatch.setattr(os, "getuid", lambda: 54321)  # what either end compares the other's user with
        with pytest.raises(RanksError, match=f"the other end is a process of user {os.geteuid()}"):
            call(address, secret=b"", rank=1, peer=0, channel="objects", deadline_s=time.monotonic() + 30)
        assert listener.wait(time.monotonic()) == {}


def test_every_rank_names_the_ranks_that_are_missing():
    def start(rank):
        try:
            Store("/launch", RankInfo("smp", rank, 4), secret=b"a" * 32, name="test", timeout_s=0.5)
        except MissingRanksError as error:
            return str(error)

    with ThreadPoolExecutor() as threads:
        errors = list(threads.map(start, (0, 2)))
    assert errors == [errors[0]] * 2
    assert errors[0].startswith("ranks [1, 3] did not report at /launch within 0.5 s")


def test_ranks_also_connect_over_tcp():
    results = ranks.run(2, exchange_by_both, environment={"SMP_SOCKETS": "tcp"})
    assert results == [([0, 1], 1.0), ([0, 1], 0.0)]


def exchange_by_both():
    transport, peer = session.current().transport, 1 - smp.rank()

    @tf.function
    def exchange(x):
        transport.send(x, peer=peer, channel=1, label="tcp")
        return transport.receive(tf.float32, peer=peer, channel=1, label="tcp")

    return smp.allgather(smp.rank(), smp.WORLD), float(exchange(tf.constant(float(smp.rank()))))


def test_ranks_also_connect_through_a_store_at_an_address():
    with reserved_port() as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
        assert ranks.run(2, exchange_by_both, environment={"SMP_STORE": address}) == [([0, 1], 1.0), ([0, 1], 0.0)]


def send_files(root):
    directory = Path(root) / f"of_{smp.rank()}"
    if smp.rank() == 1:
        utils.send_checkpoint_files(directory, 0)
    else:
        utils.receive_checkpoint_files(directory, 1)


def test_checkpoint_files_arrive_unchanged(tmp_path):
    source = tmp_path / "of_1" / "mp_rank_1"
    (source / "deeper").mkdir(parents=True)
    (source / "checkpoint").write_text("ckpt-1")
    (source / "deeper" / "ckpt-1.data").write_bytes(os.urandom(20_000_000))
    (source / "empty").touch()
    ranks.run(2, send_files, str(tmp_path))
    target = tmp_path / "of_0" / "mp_rank_1"
    names = sorted(path.relative_to(source) for path in source.rglob("*") if path.is_file())
    assert sorted(path.relative_to(target) for path in target.rglob("*") if path.is_file()) == names
    assert all((target / name).read_bytes() == (source / name).read_bytes() for name in names)


def test_cores_are_divided_among_the_ranks_of_a_machine():
    four = frozenset(range(4))
    assert [cores_of(rank, {0: four, 1: four}) for rank in (0, 1)] == [{0, 1}, {2, 3}]
    assert [cores_of(rank, dict.fromkeys(range(3), four)) for rank in range(3)] == [{0}, {1}, {2, 3}]
    two = frozenset((5, 7))
    assert [cores_of(rank, dict.fromkeys(range(4), two)) for rank in range(4)] == [{5}, {7}, {5}, {7}]
    assert cores_of(1, {0: frozenset((0,)), 1: frozenset((1, 2))}) == {1, 2}  # already bound


def threads_and_cores():
    threading = tf.config.threading
    return (
        sorted(os.sched_getaffinity(0)),
        threading.get_intra_op_parallelism_threads(),
        threading.get_inter_op_parallelism_threads(),
    )


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_each_rank_runs_on_its_own_cores():
    (first, *pools), (second, *_) = ranks.run(2, threads_and_cores)
    assert not set(first) & set(second)
    assert set(first) | set(second) == os.sched_getaffinity(0)
    assert pools == [len(first)] * 2
    unbound = ranks.run(2, threads_and_cores, config={"bind_cores": False})
    assert [set(cores) for cores, *_ in unbound] == [os.sched_getaffinity(0)] * 2
