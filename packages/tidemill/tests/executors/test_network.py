"""Isolation mode ``full``: what a job can reach from its own network, tested from inside, and what is left of it."""

import errno
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.process import ProcessId
from tidemill.errors import LaunchError
from tidemill.executors.networks import JobNetworks
from tidemill.instance.process_tree import marked
from tidemill.instance.status import InstanceOutcome
from tidemill.sandbox import detect
from tidemill.sandbox.network import JobNetwork, network_failure

_FAILURE = network_failure()
pytestmark = pytest.mark.skipif(_FAILURE is not None, reason=f"no network namespaces here: {_FAILURE}")

PROBE = """
import errno, json, os, socket, urllib.request
def probe(host, port):
    try:
        socket.create_connection((host, port), timeout=20).close()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return 'reached'
def say(value):
    print('=', json.dumps(value), flush=True)
"""


@pytest.fixture(scope="module")
def service():
    """Yield the URL of a server that replaces the service, and answers with the requested Host."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.headers["Host"].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def stage(make_stage, service):
    """Return a stage whose executor gives networks to jobs of several instances."""
    return make_stage("auto", service_url=service)


@pytest.fixture(params=["full:bubblewrap", "full:unshare"])
def full_stage(request, make_stage, service):
    return make_stage(request.param, service_url=service)


@pytest.fixture(scope="module")
def stranger():
    """Yield the port of a server on the machine's loopback that is not the service."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def results_of(stage, ref) -> list[object]:
    return [json.loads(line[2:]) for line in stage.lines(ref) if line.startswith("= ")]


def holder_of(stage, ref) -> JobNetwork:
    file = JobNetworks(stage.state_dir).file(ref)
    return JobNetwork.from_json(json.loads(file.read_text())["network"])


def no_process_is_left(stage, ref) -> bool:
    """Return whether no process of a job is left, neither marked nor in its network namespaces."""
    wanted = ref.job_id.encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes():
                return False
        except OSError:
            continue
    return True


def test_one_instance_reaches_the_service_and_nothing_else(full_stage, service, stranger):
    port = int(service.rpartition(":")[2])
    script = (
        f"{PROBE}\nsay(urllib.request.urlopen({service!r}).read().decode())\n"
        f"say([probe('127.0.0.1', {stranger}), probe('10.255.255.1', {port}), probe('192.0.2.1', 80)])\n"
        "say([socket.gethostname(), socket.gethostbyname('algo-1'), sorted(os.listdir('/sys/class/net'))])\n"
        "say(json.load(open('/opt/ml/input/config/resourceconfig.json'))['network_interface_name'])\n"
    )
    config = {"hyperparameters": {"script": script}, "resourceconfig": {"network_interface_name": "lo"}}
    ref, ended = full_stage.run(hosts=("algo-1",), config=config)
    lines = full_stage.lines(ref)
    assert ended.outcome is InstanceOutcome.COMPLETED, lines
    host, reached, (name, address, interfaces), interface = results_of(full_stage, ref)
    assert host == service.removeprefix("http://")  # signatures cover it
    assert reached == ["ECONNREFUSED", "ENETUNREACH", "ENETUNREACH"]
    assert (name, address) == ("algo-1", holder_of(full_stage, ref).instances[0][0])
    assert "eth0" in interfaces
    assert interface == "eth0"
    assert any("isolation=full" in line for line in lines)
    assert ended.record["isolation"] == "full"


def test_a_closed_network_leads_to_no_service_and_packages_are_not_installed_from_outside(stage, service, stranger):
    port = int(service.rpartition(":")[2])
    ref, ended = stage.run(
        f"{PROBE}\nsay([probe('127.0.0.1', {port}), probe('127.0.0.1', {stranger}), probe('192.0.2.1', 80)])",
        hosts=("algo-1",),
        closed=True,
    )
    assert ended.outcome is InstanceOutcome.COMPLETED, stage.lines(ref)
    assert results_of(stage, ref) == [["ECONNREFUSED", "ECONNREFUSED", "ENETUNREACH"]]
    assert any("EnableNetworkIsolation" in line for line in stage.lines(ref))


def test_one_instance_keeps_the_machines_network_unless_it_needs_another(stage, stranger):
    ref, ended = stage.run(f"{PROBE}\nsay(probe('127.0.0.1', {stranger}))", hosts=("algo-1",))
    assert results_of(stage, ref) == ["reached"]
    assert ended.record["isolation"] == "mount"


def test_a_single_instance_that_listens_on_all_interfaces_gets_its_own_network(stage):
    ref, ended = stage.run("pass", hosts=("algo-1",), serves_network=True)
    assert ended.outcome is InstanceOutcome.COMPLETED, stage.lines(ref)
    assert ended.record["isolation"] == "full"


def test_a_closed_job_is_refused_where_there_are_no_networks(make_stage):
    stage = make_stage("mount")
    with pytest.raises(LaunchError, match="EnableNetworkIsolation cannot be honored: isolation is set to mount"):
        stage.start("", closed=True)


TALK = """
with socket.create_server(('0.0.0.0', 8890)) as server:
    me, other = socket.gethostname(), 'algo-2' if socket.gethostname() == 'algo-1' else 'algo-1'
    for _ in range(600):  # the other may not have started yet
        try:
            client = socket.create_connection((other, 8890), timeout=60)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    server.settimeout(60)
    inner, peer = server.accept()
    client.sendall(me.encode())
    client.shutdown(socket.SHUT_WR)
    say([me, inner.makefile().read(), peer[0]])
    server.settimeout(None)
    while True:
        with server.accept()[0] as caller:
            caller.sendall(b'instance')
"""


def _answer(address: str, port: int) -> bytes:
    """Return the answer of the first server that answers at an address; empty if none does."""
    try:
        with socket.create_connection((address, port), timeout=2) as client:
            return client.recv(100)
    except OSError:
        return b""


def two(stage, script, **changes):
    """Launch a job of two instances."""
    first = stage.spec(script, **changes)
    second = replace(
        first, ref=replace(first.ref, instance_index=1), log=StreamName("jobs", _stream_of_second(first.ref))
    )
    stage.executor.launch([first, second])
    return first.ref, second.ref


def log_of_second(stage, ref) -> list[str]:
    return stage.lines(ref, stream=_stream_of_second(ref))


def _stream_of_second(ref: InstanceRef) -> str:
    return f"{ref.job_id}-2"


def test_two_instances_talk_by_name_over_a_fixed_port_and_another_job_cannot(full_stage):
    first, second = two(full_stage, f"{PROBE}\nimport time\n{TALK}")
    full_stage.wait(first, lambda: bool(results_of(full_stage, first)))
    full_stage.wait(second, lambda: any(line.startswith("= ") for line in log_of_second(full_stage, first)))
    addresses = [address for address, _ in holder_of(full_stage, first).instances]
    assert results_of(full_stage, first)[0] == ["algo-1", "algo-2", addresses[1]]
    [line] = [line for line in log_of_second(full_stage, first) if line.startswith("= [")]
    assert json.loads(line[2:]) == ["algo-2", "algo-1", addresses[0]]
    # Both instances answer every caller. The machine cannot reach them, though a router may accept the call instead.
    # Another job, whose own server listens on the same port, cannot reach them either.
    assert b"instance" not in _answer(addresses[0], 8890)
    ref, _ = full_stage.run(
        f"{PROBE}\nserver = socket.create_server(('127.0.0.1', 8890))\n"
        f"say([probe(address, 8890) for address in {addresses}])",
        hosts=("algo-1",),
    )
    assert "reached" not in results_of(full_stage, ref)[0]
    full_stage.executor.reap(first.job_id)
    assert no_process_is_left(full_stage, first)


def test_the_end_of_the_holder_ends_the_instance_and_leaves_nothing(stage):
    ref = stage.start("import time; print('up', flush=True); time.sleep(600)")
    stage.wait_for_line(ref, "up")
    holder = holder_of(stage, ref).holder
    os.kill(holder.pid, signal.SIGKILL)
    ended = stage.ended(ref)
    assert ended.outcome is InstanceOutcome.FAILED and ended.lost
    assert f"the network of the job is gone: its process {holder.pid} " in ended.failure
    assert "SIGKILL" in ended.failure
    assert any(line.startswith("tidemill: the network of the job is gone") for line in stage.lines(ref))
    stage.executor.reap(ref.job_id)
    assert no_process_is_left(stage, ref)


def test_a_holder_ignores_signals_of_terminals_and_others_find_their_sender_in_the_log_of_the_job(stage):
    ref = stage.start("import time; print('up', flush=True); time.sleep(600)")
    stage.wait_for_line(ref, "up")
    holder = holder_of(stage, ref).holder
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        os.kill(holder.pid, number)
    ended = stage.ended(ref)
    assert ended.lost
    assert f"ended by SIGTERM of process {os.getpid()} (" in ended.failure
    assert any(f"ended by SIGTERM of process {os.getpid()} (" in line for line in stage.lines(ref))


def test_a_network_is_kept_if_its_holder_cannot_be_looked_at(stage, monkeypatch):
    """A process with too many open files must not take a live holder for one that has ended, and end it."""
    networks, spec = JobNetworks(stage.state_dir), stage.spec("", hosts=("algo-1",))
    file = networks.ensure(spec)
    holder = holder_of(stage, spec.ref).holder
    read = Path.read_text

    def too_many(self, *arguments, **named):
        if self.name == "stat" and self.is_relative_to("/proc"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(self))
        return read(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", too_many)
        assert holder.alive
        assert not holder.certainly_alive, "no signal may reach another process"
        assert networks.ensure(spec) == file
    assert holder.alive
    networks.end(spec.ref.job_id)
    assert not holder.alive


def test_the_network_outlives_the_service_and_ends_with_the_job(stage, service):
    ref = stage.start(
        f"{PROBE}\nimport time\nprint('up', flush=True)\n"
        "while not os.path.exists('/opt/ml/go'): time.sleep(0.05)\n"
        f"say(urllib.request.urlopen({service!r}).status)"
    )
    stage.wait_for_line(ref, "up")
    stage.reopen()
    stage.executor.recover(finished=lambda _: False)
    (stage.directory(ref).ml / "go").touch()
    assert stage.ended(ref).outcome is InstanceOutcome.COMPLETED
    assert results_of(stage, ref) == [200]
    holder = holder_of(stage, ref).holder
    assert holder.alive
    stage.executor.reap(ref.job_id)
    assert not holder.alive
    assert not JobNetworks(stage.state_dir).file(ref).exists()
    assert no_process_is_left(stage, ref)


def test_a_killed_instance_leaves_nothing_but_the_network_and_reap_ends_that(stage):
    ref = stage.start("import time; print('up', flush=True); time.sleep(600)")
    stage.wait_for_line(ref, "up")
    stage.executor.kill(ref)
    assert holder_of(stage, ref).holder.alive
    stage.executor.reap(ref.job_id)
    assert no_process_is_left(stage, ref)


def test_a_new_attempt_gets_its_own_network_and_the_old_one_ends(stage):
    spec = stage.spec("import time; print('up', flush=True); time.sleep(600)")
    stage.executor.launch([spec])
    old = holder_of(stage, spec.ref).holder
    again = replace(spec, ref=replace(spec.ref, attempt=2))
    stage.executor.launch([again])
    assert not old.alive
    assert holder_of(stage, again.ref).holder.alive


def test_a_network_of_a_service_that_was_killed_while_making_it_is_found(stage):
    """The file is written first; a holder that is not in it yet carries the mark of its job."""
    networks, spec = JobNetworks(stage.state_dir), stage.spec("", hosts=("algo-1",))
    file = networks.ensure(spec)
    lost = holder_of(stage, spec.ref).holder
    file.write_text('{"version": 1}')
    networks.ensure(spec)
    assert not lost.alive
    found = holder_of(stage, spec.ref).holder
    assert found.alive
    file.write_text('{"version": 1}')
    networks.end(spec.ref.job_id)
    assert not found.alive


TRIAL = "from tidemill.sandbox.network import network_failure; print(network_failure())"


def trials_of(pid: int) -> list[int]:
    """Return the live processes of the trial network that a process has made."""
    return [each for each, mark in marked("trial/network/") if mark.split("/")[3] == str(pid) and ProcessId.of(each)]


@pytest.mark.parametrize("where", ["when the network is made", "at the first process", "while it is entered"])
def test_the_trial_network_of_a_killed_start_ends_with_it(where, wait_until):
    faults = {"TIDEMILL_FAULTS": "sandbox.trial.made:exit"} if where == "when the network is made" else {}
    start = subprocess.Popen([sys.executable, "-c", TRIAL], env={**os.environ, **faults}, stdout=subprocess.DEVNULL)
    if where == "at the first process":
        wait_until(lambda: trials_of(start.pid) or start.poll() is not None)
        start.kill()
    elif where == "while it is entered":
        wait_until(lambda: len(trials_of(start.pid)) > 1 or start.poll() is not None)
        start.kill()
    start.wait()
    wait_until(lambda: not trials_of(start.pid))


def test_a_start_removes_the_trial_network_that_an_earlier_one_left(wait_until, tmp_path):
    go, hits = tmp_path / "go", tmp_path / "hits"
    start = subprocess.Popen(
        [sys.executable, "-c", TRIAL],
        env={**os.environ, "TIDEMILL_FAULTS": f"sandbox.trial.made:wait={go}", "TIDEMILL_FAULTS_LOG": str(hits)},
        stdout=subprocess.DEVNULL,
    )
    wait_until(hits.exists)
    [holder] = trials_of(start.pid)
    assert network_failure() is None
    assert trials_of(start.pid) == [holder], "its owner lives"
    os.kill(holder, signal.SIGSTOP)  # it cannot end by itself; from now on any start on this machine may remove it
    start.kill()
    start.wait()
    assert network_failure() is None
    wait_until(lambda: not trials_of(start.pid))


def test_isolation_full_can_be_requested_and_is_logged():
    found = detect("full")
    assert found.always
    assert not found.no_network
    assert "network of its own" in found.reason
    assert detect("mount").no_network == "isolation is set to mount"
