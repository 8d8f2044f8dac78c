"""The supervisors of a job's instances on one machine: commands for others, notices at once, messages, plans."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_runtime import channel
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.network import NetworkPeers, peers_of
from tidemill_runtime.mpi.options import MPICH, OPEN_MPI, translate
from tidemill_runtime.mpi.peers import read_notice, write_notice
from tidemill_runtime.mpi.plan import FAILED, MpiPlan, Outcome
from tidemill_runtime.mpi.programs import MPI
from tidemill_runtime.mpi.shared_directory import DirectoryPeers
from tidemill_runtime.mpi.sockets import connect, listen

PLAN = MpiPlan(
    argv=["python", "train.py"], directory="/", mpirun=[], host="algo-1", reports="/r", variables={}, others=["algo-2"]
)
ONE_LINE = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
outcomes = st.builds(
    Outcome, st.integers(-64, 255), where=ONE_LINE, pid=st.integers(0, 2**22), reports=ONE_LINE, tail=ONE_LINE
)


# --- commands -------------------------------------------------------------------------------------------------------
def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def reach(directory: Path, *arguments: str, **plan: Any) -> subprocess.Popen[bytes]:
    """Start what mpirun calls in place of ssh."""
    replace(PLAN, **{"shared": str(directory), **plan}).write(directory / "plan.json")
    command = [sys.executable, "-I", "-m", "tidemill_runtime.mpi.reach", str(directory / "plan.json"), *arguments]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("end", ["status", "silence"])
def test_a_command_reaches_the_other_instance_with_its_streams_and_returns_its_status(tmp_path: Path, end: str) -> None:
    peers = DirectoryPeers(tmp_path, host="algo-2", others=["algo-1"])
    started = None
    with peers.listen() as listener:
        started = reach(tmp_path, "-x", "-q", "algo-2", "echo", "a b;", "exit 7")
        connection, _ = listener.accept()
        with connection:
            message = channel.receive(connection)
            assert message is not None
            assert message.content == {"command": "echo a b; exit 7"}, "the words of a command for a shell"
            done = subprocess.run(
                ["/bin/sh", "-c", message.content["command"]],
                stdout=message.descriptors[1],
                stderr=message.descriptors[2],
                check=False,
            )
            for fd in message.descriptors:
                os.close(fd)
            if end == "status":
                channel.send(connection, {"status": done.returncode})
    output, errors = started.communicate(timeout=60)
    assert (output, errors) == (b"a b\n", b"")
    assert started.returncode == (7 if end == "status" else 1), "an instance that ended meanwhile has failed"


def test_an_instance_that_begins_later_is_awaited(tmp_path: Path) -> None:
    started = reach(tmp_path, "algo-2", "true")
    with DirectoryPeers(tmp_path, host="algo-2", others=[]).listen() as listener:
        connection, _ = listener.accept()
        with connection:
            message = channel.receive(connection)
            assert message is not None
            for fd in message.descriptors:
                os.close(fd)
            channel.send(connection, {"status": 0})
    assert started.wait(60) == 0
    assert started.stdout is not None and started.stderr is not None
    started.stdout.close()
    started.stderr.close()


def test_a_job_of_one_instance_has_no_others_to_reach(tmp_path: Path) -> None:
    started = reach(tmp_path, "algo-9", "true", shared="")
    output, errors = started.communicate(timeout=60)
    assert (started.returncode, output, errors) == (1, b"", b"tidemill: algo-9 is no instance of this job\n")


def test_the_plan_decides_how_instances_reach_each_other(tmp_path: Path) -> None:
    assert peers_of(PLAN) is None
    assert isinstance(peers_of(replace(PLAN, shared=str(tmp_path))), DirectoryPeers)
    file = tmp_path / "peers.json"
    addresses = {"algo-1": "127.0.0.1", "algo-2": "127.0.0.1"}
    file.write_text(json.dumps({"addresses": addresses, "secret": "00" * 32}))
    found = peers_of(replace(PLAN, shared=str(tmp_path), network=str(file)))
    assert isinstance(found, NetworkPeers)
    found.close()


# --- notices --------------------------------------------------------------------------------------------------------
def test_instances_that_fail_at_once_leave_one_whole_notice_and_none_fails_over_it(tmp_path: Path) -> None:
    hosts = [f"algo-{number}" for number in range(8)]
    for turn in range(25):
        directory = tmp_path / str(turn)
        directory.mkdir()
        begin = threading.Barrier(len(hosts))
        problems: list[Exception] = []

        def fail(host: str, directory: Path = directory, begin: Any = begin, problems: Any = problems) -> None:
            begin.wait()
            try:
                write_notice(directory, FAILED, Outcome(1, where=host, tail=host * 50), sender=host)
                assert read_notice(directory, FAILED) is not None
            except Exception as error:  # noqa: BLE001 - shown by the assertion below
                problems.append(error)

        threads = [threading.Thread(target=fail, args=(host,)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []
        notice = read_notice(directory, FAILED)
        assert notice is not None and notice.tail == notice.where * 50
        for host in hosts:
            own = Outcome.read(directory / f"{FAILED}.json.{host}")
            assert (own.where, own.tail) == (host, host * 50), "each sender has its own"
        assert sorted(path.name for path in directory.iterdir()) == sorted(
            [f"{FAILED}.json", *(f"{FAILED}.json.{host}" for host in hosts)]
        )


def test_names_of_instances_may_have_dots(tmp_path: Path) -> None:
    for host in ("node.1", "node.2"):
        write_notice(tmp_path, FAILED, Outcome(1, where=host), sender=host)
    assert Outcome.read(tmp_path / f"{FAILED}.json.node.2").where == "node.2"


@given(outcomes, ONE_LINE, st.lists(ONE_LINE, max_size=3), st.dictionaries(ONE_LINE, ONE_LINE, max_size=3))
def test_plans_and_outcomes_are_read_as_they_were_written(
    tmp_path_factory: Any, outcome: Outcome, text: str, words: list[str], variables: dict[str, str]
) -> None:
    directory = tmp_path_factory.mktemp("plan")
    outcome.write(directory / "outcome.json")
    assert Outcome.read(directory / "outcome.json") == outcome
    plan = MpiPlan(argv=words, directory=text, mpirun=words, host=text, reports=text, variables=variables, shared=text)
    plan.write(directory / "plan.json")
    assert replace(MpiPlan.read(directory / "plan.json"), others=()) == plan


# --- sockets and messages -------------------------------------------------------------------------------------------
def test_sockets_are_reached_by_paths_that_are_longer_than_the_kernel_allows(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 20) / ("path" * 20)
    directory.mkdir(parents=True)
    with pytest.raises(OSError, match="No such file"):
        connect(str(directory), "a.sock")
    open_before = open_descriptors()
    with listen(directory / "a.sock") as listener, connect(str(directory), "a.sock") as asking:
        accepted, _ = listener.accept()
        with accepted:
            channel.send(asking, {"over": "a long path"})
            message = channel.receive(accepted)
            assert message is not None and message.content == {"over": "a long path"}
    with pytest.raises(ConnectionRefusedError):
        connect(str(directory), "a.sock")
    assert open_descriptors() == open_before


json_objects = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers() | st.text(max_size=50) | st.lists(st.text()),
    max_size=5,
)


@given(st.lists(st.tuples(json_objects, st.integers(0, channel.MAX_DESCRIPTORS)), min_size=1, max_size=5))
def test_messages_arrive_in_order_with_their_descriptors_alone(messages: list[tuple[dict[str, Any], int]]) -> None:
    left, right = socket.socketpair()
    with left, right, Path("/dev/null").open("rb") as file:
        for content, count in messages:
            channel.send(left, content, descriptors=(file.fileno(),) * count)
        left.close()
        for content, count in messages:
            message = channel.receive(right)
            assert message is not None
            assert (message.content, len(message.descriptors)) == (content, count)
            for fd in message.descriptors:
                assert os.path.sameopenfile(fd, file.fileno()) and not os.get_inheritable(fd)
                os.close(fd)
        assert channel.receive(right) is None


@given(json_objects, st.integers(1, 400))
def test_a_message_that_is_cut_is_an_error_and_leaves_no_descriptor(content: dict[str, Any], cut: int) -> None:
    whole = json.dumps(content).encode()
    data = channel.LENGTH.pack(len(whole)) + whole
    left, right = socket.socketpair()
    open_before = open_descriptors()
    with left, right:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, int(left.fileno()).to_bytes(4, sys.byteorder))
        left.sendmsg([data[: max(1, len(data) - cut)]], [rights])
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="the stream ends inside of a message"):
            channel.receive(right)
        assert open_descriptors() == open_before


def test_a_message_that_claims_too_much_is_refused_before_it_is_read() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(channel.LENGTH.pack(channel.MAX_MESSAGE_BYTES + 1))
        with pytest.raises(ValueError, match=f"at most {channel.MAX_MESSAGE_BYTES} are allowed"):
            channel.receive(right)


# --- options and command lines --------------------------------------------------------------------------------------
OPTIONS = {
    "-x A=1": ({"A": "1"}, (), ()),
    "-x B": ({}, (), ()),
    "-genv C 2": ({"C": "2"}, (), ()),
    "--NCCL_DEBUG WARN": ({"NCCL_DEBUG": "WARN"}, (), ()),
    "-allow-run-as-root": ({}, (), ()),
    "-bind-to core": ({}, ("-bind-to", "core"), ("--bind-to", "core")),
    "--map-by=numa": ({}, ("-map-by", "numa"), ("--map-by", "numa")),
    "-mca btl tcp": ({}, None, ("--mca", "btl", "tcp")),
    "-v": ({}, None, ("-v",)),
}
"""Options with their variables, and their arguments with MPICH (None: ignored) and with Open MPI."""


@given(st.lists(st.sampled_from(list(OPTIONS)), max_size=6), st.sampled_from((MPICH, OPEN_MPI)))
def test_options_together_mean_what_each_means_alone(given_: list[str], vendor: str) -> None:
    found = translate(" ".join(given_), vendor=vendor)
    column = 1 if vendor == MPICH else 2
    arguments, variables = [], {}
    for option in given_:
        variables.update(OPTIONS[option][0])
        arguments += OPTIONS[option][column] or ()
    assert found.arguments == tuple(arguments)
    assert found.variables == variables
    ignored = [option for option in given_ if OPTIONS[option][column] is None]
    assert found.ignored == tuple(ignored)
    assert translate([word for option in given_ for word in option.split()], vendor=vendor) == found


@settings(max_examples=200)
@given(st.lists(st.text("-xN=np a1", max_size=6), max_size=5), st.sampled_from((MPICH, OPEN_MPI)))
def test_any_options_are_translated_or_refused_by_name_and_never_set_the_size_of_the_job(
    words: list[str], vendor: str
) -> None:
    try:
        found = translate(words, vendor=vendor)
    except ConfigurationError as error:
        assert str(error).startswith("custom_mpi_options: ")
        assert any(repr(word)[1:-1] in str(error) for word in words)
    else:
        assert not {"-np", "--np", "-n", "-N", "--n", "--N"} & set(found.arguments)


@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from((MPICH, OPEN_MPI)), st.sampled_from(("", "10.0.0.7")))
def test_each_instance_gets_its_ranks_and_only_several_are_reached(
    count: int, per_host: int, vendor: str, address: str
) -> None:
    hosts = [f"algo-{number + 1}" for number in range(count)]
    command = MPI("/b/mpirun", vendor).command(
        hosts=hosts,
        address=address,
        per_host=per_host,
        num_processes=count * per_host,
        options=translate("", vendor=vendor),
        reach="/reach",
    )
    assert command[:3] == ["/b/mpirun", "-np", str(count * per_host)]
    named = "--host" if vendor == OPEN_MPI else "-hosts"
    assert (named in command) == ("/reach" in command) == (count > 1)
    if count > 1:
        assert command[command.index(named) + 1] == ",".join(f"{host}:{per_host}" for host in hosts)
