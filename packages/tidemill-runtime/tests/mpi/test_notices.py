"""Plans, outcomes and notices: files through which the supervisors of a job on one machine tell each other its end."""

from __future__ import annotations

import json

import pytest

from tidemill_runtime import channel
from tidemill_runtime.mpi.peers import read_notice, write_notice
from tidemill_runtime.mpi.plan import ENDED, FAILED, MpiPlan, Outcome
from tidemill_runtime.mpi.shared_directory import DirectoryPeers

OUTCOME = Outcome(-9, where="rank 1 on algo-2", pid=7, reports="/r/1", tail="Zeile ä\n")


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = MpiPlan(
        argv=["python", "train.py", "ä"],
        directory="/opt/ml/code",
        mpirun=[],
        host="algo-2",
        reports="/r",
        variables={"A": "1"},
        shared="/shared",
        others=["algo-1"],
    )
    plan.write(tmp_path / "plan.json")
    assert MpiPlan.read(tmp_path / "plan.json") == plan


def test_an_outcome_is_never_half_written(tmp_path, monkeypatch):
    file = tmp_path / "outcome.json"
    OUTCOME.write(file)
    assert Outcome.read(file) == OUTCOME
    monkeypatch.setattr(type(file), "replace", lambda *_: pytest.fail("killed"))
    with pytest.raises(pytest.fail.Exception):
        Outcome(1).write(file)
    assert Outcome.read(file) == OUTCOME


@pytest.mark.parametrize("text", ["", '{"exit_code": 1', '{"exit_code": 1, "unknown": 2}', "{}"])
def test_what_is_no_outcome_is_an_error(tmp_path, text):
    (tmp_path / "outcome.json").write_text(text)
    with pytest.raises((ValueError, TypeError)):
        Outcome.read(tmp_path / "outcome.json")


def test_the_first_notice_of_a_name_stays_and_others_are_apart(tmp_path):
    assert read_notice(tmp_path, FAILED) is None
    write_notice(tmp_path, FAILED, OUTCOME, sender="algo-2")
    write_notice(tmp_path, FAILED, Outcome(1), sender="algo-1")
    assert read_notice(tmp_path, FAILED) == OUTCOME
    assert read_notice(tmp_path, ENDED) is None
    assert json.loads((tmp_path / f"{FAILED}.json.algo-1").read_text())["exit_code"] == 1, (
        "who came second is seen, too"
    )


def test_a_notice_wakes_the_instances_that_have_begun_and_waits_for_no_other(tmp_path):
    one, two = (
        DirectoryPeers(tmp_path, host=host, others=others) for host, others in (("a", ["b", "c"]), ("b", ["a"]))
    )
    with two.listen() as listener:
        one.notify(FAILED, OUTCOME)  # c has not begun
        connection, _ = listener.accept()
        with connection:
            assert channel.receive(connection).content == {}
    assert two.read_notice(FAILED) == OUTCOME


def test_a_supervisor_that_begins_again_replaces_the_socket_of_the_killed_one(tmp_path):
    peers = DirectoryPeers(tmp_path, host="a", others=[])
    with peers.listen(), peers.listen():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a.sock"]
