"""The life cycle of the service process, with real processes, sockets and signals."""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.core.process import ProcessId
from tidemill.server.background import wait_for_end
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory
from tidemill.wire.gateway import LIMITS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def state(variables: dict[str, str]) -> StateDirectory:
    return StateDirectory(Path(variables["TIDEMILL_STATE_DIR"]))


def foreground(variables: dict[str, str], *arguments: str) -> tuple["subprocess.Popen[bytes]", str]:
    """Start a service in the foreground; return it with the URL that it wrote when it was ready."""
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "tidemill.cli", "up", "--foreground", "--ready-fd", str(writer), *arguments]
    process = subprocess.Popen(command, env=variables, pass_fds=[writer], stderr=subprocess.DEVNULL)
    os.close(writer)
    with os.fdopen(reader) as ready:
        return process, ready.read().strip()


def test_a_detached_service_answers_and_is_found(tidemill: Run, state: StateDirectory) -> None:
    started = tidemill("up")
    assert started.returncode == 0, started.stderr
    record = find_service(state)
    assert record is not None
    assert f"tidemill runs at {record.url} (pid {record.pid})" in started.stdout
    assert 'eval "$(tidemill env)"' in started.stdout
    with urllib.request.urlopen(f"{record.url}/healthz") as reply:
        health = json.load(reply)
    assert health["status"] == "ok"
    assert health["objects_set_aside"] > 1000, "full collections would visit all live objects"
    # Detached: in its own session, so that neither Ctrl-C nor a closed terminal reaches it.
    assert os.getsid(record.pid) == record.pid
    assert "service.started" in state.service_log.read_text()


def test_up_reports_that_a_service_already_runs(tidemill: Run, state: StateDirectory) -> None:
    tidemill("up")
    record = find_service(state)
    again = tidemill("up")
    assert again.returncode == 0
    assert "runs already" in again.stdout
    assert find_service(state) == record


def test_a_second_service_on_one_state_directory_exits_with_three(tidemill: Run, state: StateDirectory) -> None:
    tidemill("up")
    record = find_service(state)
    assert record is not None
    second = tidemill("up", "--foreground")
    assert second.returncode == 3
    assert f"{state.root} is in use by pid {record.pid} ({record.url})" in second.stderr
    assert "Traceback" not in second.stderr
    assert record.process.alive


def test_two_concurrent_starts_result_in_one_service(
    variables: dict[str, str], tidemill: Run, state: StateDirectory
) -> None:
    command = [sys.executable, "-m", "tidemill.cli", "up"]
    starts = [
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [start.communicate(timeout=120) for start in starts]
    assert [start.returncode for start in starts] == [0, 0], outputs
    assert len({re.findall(r"pid \d+", out)[0] for out, _ in outputs}) == 1


def test_down_ends_the_service_in_order(tidemill: Run, state: StateDirectory) -> None:
    tidemill("up")
    record = find_service(state)
    assert record is not None
    ended = tidemill("down")
    assert ended.returncode == 0
    assert not record.process.alive
    assert not state.service_file.exists()
    assert (state.root / "toy-closed").exists()
    assert "service.ended" in state.service_log.read_text()
    assert "no service runs" in tidemill("down").stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_foreground_with_status_zero(
    variables: dict[str, str], state: StateDirectory, number: signal.Signals
) -> None:
    process, url = foreground(variables)
    assert url.startswith("http://127.0.0.1:")
    process.send_signal(number)
    assert process.wait(60) == 0
    assert not state.service_file.exists()


def test_after_kill_nine_the_next_start_takes_over(variables: dict[str, str], state: StateDirectory) -> None:
    process, _ = foreground(variables)
    keys = state.keys_file.read_bytes()
    process.kill()
    process.wait()
    assert state.service_file.exists()
    assert find_service(state) is None
    process, url = foreground(variables)
    record = find_service(state)
    assert record is not None
    assert (record.pid, record.url) == (process.pid, url)
    assert state.keys_file.read_bytes() == keys
    process.terminate()
    assert process.wait(60) == 0


def test_a_service_with_a_cluster_accepts_a_connection_from_each_of_many_agents(variables: dict[str, str]) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = LIMITS.connections + 100
    if hard < many + 2000:
        pytest.skip(f"this system allows {hard} descriptors")
    process, url = foreground({**variables, "TIDEMILL_EXECUTOR": "ray"})
    host, _, port = url.removeprefix("http://").partition(":")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, many + 500), hard))
    try:
        signed = f"GET /agent HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: the toy believes it\r\n\r\n".encode()
        with contextlib.ExitStack() as stack:
            agents = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(many)]
            for each in agents:
                each.sendall(signed)
            for each in agents:
                assert each.recv(12) == b"HTTP/1.1 400"
            with urllib.request.urlopen(f"{url}/healthz") as reply:
                assert reply.status == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        process.terminate()
        assert process.wait(60) == 0


def test_a_taken_port_names_its_owner(tidemill: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = tidemill("up", "--port", str(port))
    assert refused.returncode == 1
    assert f"port {port} on 127.0.0.1 is in use by pid {os.getpid()}" in refused.stderr
    assert "--port" in refused.stderr


def test_a_public_address_is_refused_before_anything_is_created(tidemill: Run, state: StateDirectory) -> None:
    refused = tidemill("up", "--foreground", "--host", "0.0.0.0")
    assert refused.returncode == 1
    assert "not a loopback address" in refused.stderr
    assert not state.root.exists()


@pytest.mark.parametrize(
    ("failure", "text"),
    [("refuses", "the toy refuses to start; wind it up"), ("crashes", "RuntimeError: a spring broke")],
)
def test_a_failed_start_prints_the_reason_in_one_line(
    tidemill: Run, state: StateDirectory, failure: str, text: str
) -> None:
    failed = tidemill("up", TOY_FAILS=failure)
    assert failed.returncode == 1
    assert text in failed.stderr
    assert failed.stderr.count("\n") == 1
    log = state.service_log.read_text()
    assert "service.start_failed" in log
    assert ("Traceback" in log) == (failure == "crashes")
    assert not state.service_file.exists()


def test_everything_the_service_writes_is_private(tidemill: Run, state: StateDirectory) -> None:
    tidemill("up")
    open_to_others = [path for path in [state.root, *state.root.rglob("*")] if path.lstat().st_mode & 0o077]
    assert open_to_others == []


def test_waiting_for_an_exited_process_returns_immediately() -> None:
    process = subprocess.Popen(["/bin/true"])
    identity = ProcessId.of(process.pid)
    process.wait()
    assert identity is None or wait_for_end(identity, timeout_s=60)
