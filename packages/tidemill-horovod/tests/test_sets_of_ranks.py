"""Subsets of ranks: process sets against a dictionary, and the groups of mpirun's ranks that `hvd.init` takes."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import horovod.tensorflow as hvd
from horovod.tensorflow import mpi, process_sets
from horovod.tensorflow._shared.ranks.errors import RanksError
from others import among

SIZE = 4
subsets = st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=5)


def alone(rank: int) -> Any:
    """Return a group whose other ranks send what this one sends."""
    return among(rank, SIZE, lambda array: [array] * SIZE)


@settings(max_examples=60)
@given(st.integers(0, SIZE - 1), st.lists(st.tuples(st.sampled_from(("add", "init", "remove", "use")), subsets)))
def test_sets_are_those_of_a_dictionary_by_their_ranks_and_ids_are_not_used_again(
    rank: int, calls: list[tuple[str, list[int]]]
) -> None:
    model: dict[tuple[int, ...], int] = {}
    ids = itertools.count(1)
    known: dict[tuple[int, ...], list[hvd.ProcessSet]] = {}
    with alone(rank):
        for call, given_ranks in calls:
            ranks = tuple(sorted(set(given_ranks)))
            new = hvd.ProcessSet(given_ranks)
            if call == "add" and ranks in model:
                with pytest.raises(ValueError, match="was added before"):
                    hvd.add_process_set(new)
            elif call in ("add", "init"):
                if call == "add":
                    hvd.add_process_set(new)
                else:
                    hvd.init(process_sets=[new])
                model.setdefault(ranks, 0)
                model[ranks] = model[ranks] or next(ids)
                known.setdefault(ranks, []).append(new)
            elif call == "remove":
                one = known[ranks][-1] if known.get(ranks) else new  # also an equal set, and one that is removed
                assert hvd.remove_process_set(one) is (ranks in model)
                model.pop(ranks, None)
            else:
                check_use(known.get(ranks, [new])[0], is_registered=ranks in model, is_member=rank in ranks)
            assert process_sets.get_process_set_ids_and_ranks() == {
                0: list(range(SIZE)),
                **{id_: list(one) for one, id_ in model.items()},
            }
            for one, id_ in model.items():
                assert process_sets.find_process_set(id_).ranks == list(one)
                assert [each.process_set_id for each in known[one][-1:]] == [id_]
        assert not hvd.remove_process_set(hvd.global_process_set)
    assert all(one.size() is None for each in known.values() for one in each), "sets end with their group"


def check_use(one: hvd.ProcessSet, *, is_registered: bool, is_member: bool) -> None:
    if not is_registered:
        with pytest.raises(ValueError, match=r"is not registered: call hvd\.add_process_set first"):
            process_sets.members_of("allreduce", one)
    elif not is_member:
        with pytest.raises(ValueError, match="call it on the ranks of the set only"):
            process_sets.members_of("allreduce", one)
    else:
        assert process_sets.members_of("allreduce", one) == one.ranks
        assert (one.size(), one.included()) == (len(one.ranks), True)
        assert one.ranks[one.rank()] == hvd.rank()


@given(st.lists(st.integers(-2, SIZE + 1), max_size=5))
def test_only_sets_of_ranks_that_exist_are_registered(ranks: list[int]) -> None:
    with alone(0):
        if ranks and set(ranks) <= set(range(SIZE)):
            assert hvd.add_process_set(ranks).ranks == sorted(set(ranks))
        else:
            with pytest.raises(ValueError, match=r"hvd\.add_process_set: ranks of a process set are .*; allowed are"):
                hvd.add_process_set(ranks)
            with pytest.raises(ValueError, match=r"hvd\.init: ranks of a process set are"):
                hvd.init(process_sets=[ranks])
            assert process_sets.get_process_set_ids_and_ranks() == {0: [0, 1, 2, 3]}


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=2, max_size=2))
def test_sets_are_equal_if_and_only_if_their_ranks_are(pair: list[list[int]]) -> None:
    one, other = map(hvd.ProcessSet, pair)
    assert (one == other) == (set(pair[0]) == set(pair[1]))
    assert one != other or hash(one) == hash(other)
    assert hvd.ProcessSet(np.array(pair[0], int)) == one


def test_a_set_that_differs_between_the_ranks_is_refused_and_takes_no_id() -> None:
    with among(0, SIZE, lambda array: [array, array, array, array + 1]):
        with pytest.raises(ValueError, match=r"ranks are .* here and others on other ranks: give all the same"):
            hvd.add_process_set([0, 1])
        assert process_sets.get_process_set_ids_and_ranks() == {0: [0, 1, 2, 3]}


class World:
    """The ranks of an mpirun, as mpi4py shows them to one of them."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_group(self) -> Any:
        return self

    def Incl(self, ranks: list[int]) -> list[int]:
        assert len(set(ranks)) == len(ranks) and all(type(one) is int for one in ranks), "MPI aborts the job"
        return ranks

    def Create_group(self, group: list[int]) -> list[int]:
        return group

    Allreduce = Dup = Get_rank


@given(
    st.integers(1, 5).flatmap(lambda size: st.tuples(st.integers(0, size - 1), st.just(size))),
    st.lists(st.integers(-2, 6) | st.sampled_from((np.int64(0), np.int32(1), 0.5, "0", None)), min_size=1, max_size=5),
)
def test_a_list_of_ranks_makes_a_group_in_its_order_or_is_refused_before_mpi_sees_it(
    place: tuple[int, int], ranks: list[Any]
) -> None:
    rank, size = place
    world = World(rank, size)
    integers = [int(one) for one in ranks if isinstance(one, (int, np.integer))]
    allowed = len(integers) == len(ranks) == len(set(integers)) and set(integers) <= set(range(size))
    if allowed and rank in integers:
        assert mpi._subset(world, ranks) == integers
    else:
        with pytest.raises(RanksError, match=rf"this process is rank {rank} of {size}; give ranks that exist"):
            mpi._subset(world, ranks)


def test_communicators_of_mpi4py_are_told_from_lists_and_from_those_of_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1, 3)
    assert mpi.is_mpi_communicator(world) and not mpi.is_mpi_communicator([0, 1])
    monkeypatch.setattr(mpi, "start_mpi", lambda launcher: type("MPI", (), {"COMM_WORLD": world}))
    assert mpi.find_members(world) is world
    assert mpi.find_members([2, 1]) == [2, 1]
    assert mpi.find_members(None) == mpi.find_members([]) == world.Dup()

    def missing(launcher: object) -> None:
        raise ImportError("no module")

    monkeypatch.setattr(mpi, "start_mpi", missing)
    with pytest.raises(RanksError, match=r"mpi4py cannot be imported \(no module\): install mpi4py"):
        mpi.find_members(None)


def test_a_second_init_names_the_same_group_or_is_refused() -> None:
    hvd.shutdown()
    hvd.init()
    for same in (None, [], ()):
        hvd.init(same)
    with pytest.raises(ValueError, match=r"comm is \[0, 1\], but Horovod was initialized before with None"):
        hvd.init([0, 1])
    hvd.shutdown()
    hvd.init([0])
    hvd.init()
    hvd.init([0])
    hvd.shutdown()
    for wrong in (7, "0", [1], {0}):
        with pytest.raises(ValueError, match=r"hvd\.init: comm is .*; allowed is None, a list of ranks"):
            hvd.init(wrong)
        assert not hvd.is_initialized()


@given(st.text(max_size=6) | st.floats().map(str), st.sampled_from(("HOROVOD_START_TIMEOUT",)))
def test_a_limit_is_a_finite_number_that_is_not_negative(text: str, name: str) -> None:
    from horovod.tensorflow.engine import _number

    try:
        wanted = float(text or 120.0)
    except ValueError:
        wanted = -1.0
    with pytest.MonkeyPatch.context() as patch:
        if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
            return
        patch.setenv(name, text)
        if 0 <= wanted < float("inf"):
            assert _number(name, 120.0) == wanted
        else:
            with pytest.raises(RanksError, match=f"{name} is .*allowed is a number >= 0"):
                _number(name, 120.0)
