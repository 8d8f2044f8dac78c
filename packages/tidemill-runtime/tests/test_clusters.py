"""Clusters of instances: TF_CONFIG for any groups of hosts, the end of a job with parameter servers, choices by GPU."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_runtime.devices import Devices
from tidemill_runtime.environment import Environment
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.launchers import parameter_server
from tidemill_runtime.launchers.base import Script
from tidemill_runtime.launchers.mpi import MPILauncher
from tidemill_runtime.launchers.parameter_server import FAILED, GRACE_S, ClusterMember, Master
from tidemill_runtime.launchers.python import command_of
from tidemill_runtime.process import Child
from tidemill_runtime.tf_config import has_parameter_servers, parameter_server_config, tf_config_variables
from tidemill_runtime.warm.eligibility import FROZEN_PREFIXES, LOCALE, MADE_ANEW, difference

SERVERS, MIRRORED = "sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled"


def environments(base: Path, hosts: list[str], groups: dict[str, list[str]], **given_: Any) -> list[Environment]:
    """Return the view of each instance of a job."""
    config = base / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "hyperparameters.json").write_text(json.dumps({name: json.dumps(each) for name, each in given_.items()}))
    found = []
    for host in hosts:
        resources: dict[str, Any] = {"current_host": host, "hosts": hosts}
        if groups:
            resources["instance_groups"] = [{"instance_group_name": n, "hosts": each} for n, each in groups.items()]
            resources["current_group_name"] = next(name for name, each in groups.items() if host in each)
        (config / "resourceconfig.json").write_text(json.dumps(resources))
        found.append(Environment.read({"SAGEMAKER_BASE_DIR": str(base)}, devices=Devices(2, 0, 0)))
    return found


clusters = st.integers(1, 5).flatmap(
    lambda count: st.tuples(st.just([f"algo-{n + 1}" for n in range(count)]), st.sets(st.integers(1, count)))
)


@settings(max_examples=60)
@given(clusters, st.booleans())
def test_every_instance_has_its_own_task_in_one_cluster(
    tmp_path_factory: Any, cluster: tuple[list[str], set[int]], mirrored: bool
) -> None:
    hosts, ends = cluster
    bounds = [0, *sorted(ends), len(hosts)]
    groups = {f"g{n}": hosts[a:b] for n, (a, b) in enumerate(itertools.pairwise(bounds)) if a < b} if ends else {}
    taking = list(groups)[:1]
    given_: dict[str, Any] = {MIRRORED if mirrored else SERVERS: True}
    if groups:
        given_["sagemaker_distribution_instance_groups"] = taking
    views = environments(tmp_path_factory.mktemp("ml"), hosts, groups, **given_)
    members = groups[taking[0]] if groups else hosts
    configs = {}
    for host, view in zip(hosts, views, strict=True):
        assert view.distribution_hosts == members
        assert view.is_master == (host == members[0])
        assert has_parameter_servers(view) == (not mirrored and len(members) > 1 and host in members)
        text = tf_config_variables(view).get("TF_CONFIG")
        assert (text is not None) == (host in members and (mirrored or len(members) > 1))
        if text is not None:
            configs[host] = json.loads(text)
    if not configs:
        return
    assert len({json.dumps(each["cluster"]) for each in configs.values()}) == 1, "all see one cluster"
    tasks = [(each["task"]["type"], each["task"]["index"]) for each in configs.values()]
    first = configs[members[0]]["cluster"]
    assert tasks == [(kind, index) for kind in first if kind != "ps" for index in range(len(first[kind]))]
    for (kind, index), host in zip(tasks, configs, strict=True):
        assert first[kind][index].rpartition(":")[0] == host
    if not mirrored:
        for index, host in enumerate(members):
            server = json.loads(parameter_server_config(views[hosts.index(host)])["TF_CONFIG"])
            assert server["cluster"] == first and server["task"] == {"type": "ps", "index": index}
            assert first["ps"][index].rpartition(":")[0] == host


def test_the_port_of_a_single_worker_is_free(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (view,) = environments(tmp_path, ["algo-1"], {}, **{MIRRORED: True})
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # another program of this machine has it: the case of this test
            taken.bind(("", 8890))
        (address,) = json.loads(tf_config_variables(view)["TF_CONFIG"])["cluster"]["worker"]
        assert address.rpartition(":")[2] != "8890"
    assert "port 8890 of this machine is in use" in capfd.readouterr().err


# --- the end of a job with parameter servers ------------------------------------------------------------------------
class Process(Child):
    """A process whose end the test decides."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None
        self.signals: list[int] = []

    def exit_code(self) -> int | None:
        return self.code

    def signal_group(self, number: int) -> None:
        self.signals.append(number)
        if number == signal.SIGKILL:
            self.code = -9


class FakeMaster:
    """The first instance, from the view of another one."""

    ended = False

    def has_ended(self, *, now: bool = False) -> bool:
        return self.ended


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(parameter_server.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def member(tmp_path: Path) -> Any:
    """Return a function that makes an instance of the cluster; its timer ends with the test."""

    def make(master: FakeMaster | None = None) -> tuple[ClusterMember, Process, Process]:
        script, server = Process(11), Process(12)
        made = ClusterMember(
            script,
            server,
            name="algo-2",
            master=master,
            ended_file=tmp_path / "ended",
            reports=tmp_path,  # type: ignore[arg-type]
        )
        return made, script, server

    handler = signal.getsignal(signal.SIGALRM)
    yield make
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)


def test_the_end_of_the_first_script_is_the_end_of_its_instance_and_shown_to_the_others(
    member: Any, tmp_path: Path
) -> None:
    one, script, _ = member()
    assert one.exit_code() is None
    script.code = 0
    assert one.exit_code() == 0
    assert (tmp_path / "ended").exists()
    failed, script, _ = member()
    script.code = 3
    assert failed.exit_code() == 3


def test_a_server_of_another_instance_goes_on_after_its_script_until_the_master_has_ended(
    member: Any, clock: list[float]
) -> None:
    master = FakeMaster()
    one, script, server = member(master)
    script.code = 0
    assert one.exit_code() is None, "others still need its server"
    server.code = 0
    master.ended = True
    assert one.exit_code() == 0
    assert script.signals == []


def test_a_script_that_runs_after_the_master_is_asked_to_end_and_then_killed_and_is_no_failure(
    member: Any, clock: list[float]
) -> None:
    master = FakeMaster()
    one, script, _ = member(master)
    master.ended = True
    for after_s, wanted in ((0.0, []), (GRACE_S, [signal.SIGTERM]), (2 * GRACE_S, [signal.SIGTERM, signal.SIGKILL])):
        clock[0] = 100.0 + after_s
        assert one.exit_code() is None
        assert script.signals == wanted
    assert one.exit_code() == 0


@pytest.mark.parametrize("code", [1, -11])
def test_a_server_that_ends_first_fails_the_instance_with_its_own_exception(
    member: Any, tmp_path: Path, code: int
) -> None:
    one, script, server = member(FakeMaster())
    (tmp_path / "12.json").write_text(json.dumps({"type": "OSError", "message": "port in use"}))
    server.code = code
    assert one.exit_code() is None
    assert script.signals == [signal.SIGKILL]
    assert one.exit_code() == FAILED
    report = json.loads((tmp_path / "11.json").read_text())
    how = "by signal 11" if code < 0 else "with exit code 1"
    assert report["message"] == (
        f"the parameter server of algo-2 ended {how} before the script did: OSError: port in use"
    )


def test_a_script_that_was_signaled_decides_whatever_its_server_does(member: Any) -> None:
    one, script, server = member()
    one.signal_group(signal.SIGTERM)
    server.code, script.code = 1, -15
    assert one.exit_code() == -15


def test_the_master_has_ended_when_its_server_was_there_and_is_gone_or_its_file_is_there(
    tmp_path: Path, clock: list[float]
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        master = Master(address, {})
        assert not master.has_ended(), "it has not begun"
        listener.listen()
        assert not master.has_ended(), "at most one look a second"
        assert not master.has_ended(now=True)
    assert not master.has_ended()
    clock[0] += 2
    assert master.has_ended()
    other = Master(address, {"TIDEMILL_JOB_DIRECTORY": str(tmp_path)})
    assert not other.has_ended()
    (tmp_path / "master-ended").touch()
    assert other.has_ended(now=True)
    (tmp_path / "master-ended").unlink()
    assert other.has_ended(now=True), "an end is for good"


# --- what decides how a script starts -------------------------------------------------------------------------------
@pytest.mark.parametrize("value", [0, -1, 1.5, "two", True, [2]])
def test_numbers_of_ranks_are_whole_and_positive(tmp_path: Path, value: Any) -> None:
    for name in ("sagemaker_mpi_num_of_processes_per_host", "sagemaker_mpi_num_processes"):
        (view,) = environments(tmp_path, ["algo-1"], {}, sagemaker_mpi_enabled=True, **{name: value})
        with pytest.raises(ConfigurationError, match=rf"{name}=.*: expected a whole number from 1"):
            MPILauncher(view)


def test_instances_of_one_machine_need_a_directory_and_a_network_of_their_own(tmp_path: Path) -> None:
    views = environments(tmp_path, ["localhost", "algo-2"], {}, sagemaker_mpi_enabled=True)
    launcher = MPILauncher(views[0])
    script = Script(argv=("python",), shown=(), directory=tmp_path, variables={})
    with pytest.raises(ConfigurationError, match=r"on 2 instances: TIDEMILL_JOB_DIRECTORY names no directory"):
        launcher._shared(script)
    named = Script(argv=(), shown=(), directory=tmp_path, variables={"TIDEMILL_JOB_DIRECTORY": str(tmp_path)})
    with pytest.raises(ConfigurationError, match=r"localhost is 127\..*it needs isolation mode full"):
        launcher._shared(named)


@pytest.mark.parametrize(
    ("kind", "name", "content", "wanted"),
    [
        ("script", "train.py", "", ("py", "--", "train.py", "-a")),
        ("package", "pkg/train.py", "", ("py", "-m", "pkg.train", "-a")),
        ("package", "train", "", ("py", "-m", "train", "-a")),
        ("command", "run.sh", "#!/bin/bash\n", ("./run.sh", "-a")),
        ("command", "run.sh", "echo 1\n", ("/bin/sh", "./run.sh", "-a")),
        ("command", "bin/run", "\x7fELF", ("./bin/run", "-a")),
        ("command", "empty", "", ("/bin/sh", "./empty", "-a")),
    ],
)
def test_the_kind_of_an_entry_point_decides_its_command(
    tmp_path: Path, kind: str, name: str, content: str, wanted: tuple[str, ...]
) -> None:
    from tidemill_runtime.code import EntryPoint

    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    file.chmod(0o600)
    assert command_of(EntryPoint(name, kind, tmp_path), ("-a",), python="py") == wanted
    assert os.access(file, os.X_OK) == (kind == "command")


variables_of = st.dictionaries(
    st.sampled_from(("TF_A", "PYTHONHASHSEED", "CUDA_X", "MY_VARIABLE", "PATH", "TF_CONFIG", "PYTHONPATH", *LOCALE)),
    st.sampled_from(("", "C", "1")),
)


@given(variables_of, variables_of)
def test_a_script_is_forked_only_if_a_fresh_interpreter_would_read_the_same(
    warm: dict[str, str], wanted: dict[str, str]
) -> None:
    def read_at_import(variables: dict[str, str]) -> dict[str, str]:
        return {n: v for n, v in variables.items() if n.startswith(FROZEN_PREFIXES) and n not in MADE_ANEW}

    def locale(variables: dict[str, str]) -> str:
        return next((variables[name] for name in LOCALE if variables.get(name)), "")

    same = read_at_import(warm) == read_at_import(wanted) and locale(warm) == locale(wanted)
    told = difference(warm, wanted)
    assert (told == "") == same
    also = difference(warm, wanted, also={"MY_VARIABLE"})
    assert (also == "") == (same and warm.get("MY_VARIABLE") == wanted.get("MY_VARIABLE"))


@given(st.lists(st.integers(-1, 5).map(str) | st.just(""), min_size=1, max_size=5), st.integers(0, 3))
def test_the_gpus_are_those_before_the_first_number_of_no_gpu(visible: list[str], listed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        lines = "".join(f"GPU {number}: Tide\n" for number in range(listed))
        patch.setattr(
            "tidemill_runtime.devices._output_of", lambda *command: lines if command[0] != "neuron-ls" else ""
        )
        count = Devices.present({"CUDA_VISIBLE_DEVICES": ",".join(visible)}).num_gpus
        assert Devices.present({}).num_gpus == listed
    named = [name for name in visible if name]
    good = next((i for i, name in enumerate(named) if name == "-1" or (listed and int(name) >= listed)), len(named))
    assert count == (min(good, listed) if listed else good)
