"""What shows that other processes train the same model, and which of them decides."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tidemill_tensorflow.compiler.several import job
from tidemill_tensorflow.compiler.several.groups import group_of, group_of_smp, ranks_of_smp

VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SMP_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SMP_SIZE")
HOROVOD, SMP = "horovod.tensorflow", "smdistributed.modelparallel.tensorflow.session"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that knows of no other."""
    for name in (*VARIABLES, "TF_CONFIG", "HOROVOD_ELASTIC"):
        monkeypatch.delenv(name, raising=False)
    for name in (HOROVOD, SMP):
        monkeypatch.delitem(sys.modules, name, raising=False)


class Horovod:
    """Horovod as the script has initialized it."""

    Sum = "sum"

    def __init__(self, rank: int, size: int, *, initialized: bool = True) -> None:
        self.rank, self.size, self.is_initialized = (lambda: rank), (lambda: size), (lambda: initialized)


class Group:
    """A group of smp whose members all say the same."""

    def __init__(self, rank: int, ranks: tuple[int, ...], *, others: tuple[Any, ...] = ()) -> None:
        self.rank, self.size, self.ranks, self.others = rank, len(ranks), ranks, others

    def allgather_objects(self, value: Any, *, what: str) -> list[Any]:
        assert what.startswith("the training compiler's ")
        return [value, *(self.others or [value] * (self.size - 1))]


def smp(world: Group, replica: Group, partition: Group, *, initialized: bool = True) -> Any:
    session = SimpleNamespace(world_group=world, mp_group=replica, dp_group=partition)
    return SimpleNamespace(is_initialized=lambda: initialized, current=lambda: session)


@pytest.mark.parametrize("name", VARIABLES[:3])
def test_a_launchers_variable_says_which_rank_is_first(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for rank, first in (("0", True), ("1", False), ("10", False)):
        monkeypatch.setenv(name, rank)
        assert job.is_first() is first


def test_a_single_process_is_the_first_and_a_variable_without_a_number_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert job.is_first() and not job.has_several_processes()
    monkeypatch.setenv("PMI_RANK", "three")
    monkeypatch.setenv("PMI_SIZE", "several")
    assert job.is_first() and not job.has_several_processes()


def test_horovod_counts_when_it_is_initialized_with_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMP_RANK", "0")
    for library, several in (
        (Horovod(1, 2), True),
        (Horovod(0, 1), False),
        (Horovod(1, 2, initialized=False), False),
    ):
        monkeypatch.setitem(sys.modules, HOROVOD, library)
        assert job.has_several_processes() is several
        assert (job.horovod() is library) is several
        assert job.is_first() is not several, "Horovod's rank goes before that of a launcher"


def test_smp_counts_when_it_is_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Group(1, (0, 1))
    monkeypatch.setitem(sys.modules, SMP, smp(world, world, Group(0, (1,)), initialized=False))
    assert job.model_parallelism() is None and not job.has_several_processes()
    monkeypatch.setitem(sys.modules, SMP, smp(world, world, Group(0, (1,))))
    assert job.has_several_processes() and not job.is_first()
    monkeypatch.setitem(sys.modules, SMP, smp(Group(0, (0,)), Group(0, (0,)), Group(0, (0,))))
    assert not job.has_several_processes() and job.is_first()


@pytest.mark.parametrize(
    ("version", "library", "plain"),
    [
        ("2.21.0", "tf.distribute", False),
        ("2.20.0", "tf.distribute", True),
        ("2.21.0", "Horovod", False),
        ("2.20.0", "Horovod", True),
        ("3.0.0", "smp", False),
        ("2.12.1", "smp", True),
    ],
)
def test_several_processes_need_a_version_on_which_they_are_tested(
    monkeypatch: pytest.MonkeyPatch, version: str, library: str, plain: bool
) -> None:
    monkeypatch.setattr(tf, "__version__", version)
    if library in ("Horovod", "smp"):
        monkeypatch.setitem(sys.modules, HOROVOD, Horovod(1, 2))
    if library == "smp":  # also together with Horovod
        monkeypatch.setitem(sys.modules, SMP, smp(Group(1, (0, 1)), Group(1, (0, 1)), Group(0, (1,))))
    reason = job.why_plain()
    assert (reason is not None) is plain
    assert reason is None or (f"several processes of {library} " in reason and version in reason)


def nodes(*ops: str, **attributes: Any) -> list[NodeDef]:
    found = []
    for op in ops:
        node = NodeDef(op=op)
        for name, value in attributes.items():
            if isinstance(value, bytes):
                node.attr[name].s = value
            else:
                node.attr[name].i = value
        found.append(node)
    return found


def test_ops_of_all_ranks_of_horovod_have_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HOROVOD, Horovod(1, 2))
    for given in (
        nodes("HorovodCollective", members=b"0,1"),
        nodes("HorovodAllreduce", process_set_id=0),
        nodes("HorovodAllreduce"),
    ):
        group = group_of(given)
        assert group is not None and (group.rank, group.size) == (1, 2)


@pytest.mark.parametrize(
    "given",
    [
        nodes("HorovodCollective", members=b"1"),
        nodes("HorovodAllreduce", process_set_id=3),
        [*nodes("HorovodCollective", members=b"0,1"), *nodes("CollectiveReduceV2")],
        nodes("NcclAllReduce"),
    ],
    ids=["a process set", "a set of another Horovod", "two libraries", "an unknown library"],
)
def test_ops_of_some_ranks_or_of_unknown_libraries_have_none(
    monkeypatch: pytest.MonkeyPatch, given: list[NodeDef]
) -> None:
    monkeypatch.setitem(sys.modules, HOROVOD, Horovod(1, 2))
    assert group_of(given) is None


def test_ranks_that_may_join_later_have_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HOROVOD, Horovod(1, 2))
    monkeypatch.setenv("HOROVOD_ELASTIC", "1")
    assert group_of(nodes("HorovodCollective", members=b"0,1")) is None


@pytest.mark.parametrize(
    ("averages", "others", "ranks"),
    [(False, (False,), (2, 3)), (True, (False,), (0, 1, 2, 3)), (False, (True,), (0, 1, 2, 3))],
)
def test_replicas_of_a_pipeline_decide_together_if_one_rank_averages(
    monkeypatch: pytest.MonkeyPatch, averages: bool, others: tuple[bool, ...], ranks: tuple[int, ...]
) -> None:
    world, replica = Group(2, (0, 1, 2, 3)), Group(0, (2, 3), others=others)
    monkeypatch.setitem(sys.modules, SMP, smp(world, replica, Group(1, (0, 2))))
    assert ranks_of_smp(averages=averages) == ranks
    group = group_of_smp(ranks)
    assert (group.rank, group.size) == ((2, 4) if len(ranks) == 4 else (0, 2))


def test_a_group_of_smp_sums_what_its_ranks_say(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Group(0, (0, 1), others=([10, 20],))
    monkeypatch.setitem(sys.modules, SMP, smp(world, world, Group(0, (0,))))
    assert ranks_of_smp(averages=True) == (0, 1), "there is one replica"
    assert group_of_smp((0, 1)).sum([1, 2]) == [11, 22]
