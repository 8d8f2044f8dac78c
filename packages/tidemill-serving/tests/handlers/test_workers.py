"""Workers that die, hang and spin, under load: only their own requests fail."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py
DEADLINE_S = 60


def _pids(server: Server) -> set[int]:
    """Return the pids of the current workers: for each slot of the pool the worker that was loaded last."""
    places: dict[str, int] = {}
    for line in server.log:
        if line.startswith("handler.loaded"):
            fields = dict(each.split("=", 1) for each in line.split()[1:])
            places[fields["worker"]] = int(fields["pid"])
    return set(places.values())


def test_two_requests_run_at_the_same_time_in_two_processes(scripted: Server, tmp_path: Path) -> None:
    fifos = [tmp_path / "a", tmp_path / "b"]
    for fifo in fifos:
        os.mkfifo(fifo)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(scripted.invoke, f"wait {fifo}") for fifo in fifos]
        for fifo in fifos:
            with fifo.open("w"):  # opens when a handler reads it: both handlers do, although neither has answered
                pass
        bodies = {answer.result(DEADLINE_S).body for answer in answers}
    assert len(bodies) == 2


def test_models_answer_while_every_worker_spins(scripted: Server, tmp_path: Path) -> None:
    fifos = [tmp_path / "a", tmp_path / "b"]
    for fifo in fifos:
        os.mkfifo(fifo)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(scripted.invoke, f"wait {fifo}") for fifo in fifos]
        writers = [fifo.open("w") for fifo in fifos]
        assert scripted.predict("half_plus", {"instances": [1.0]}).json == {"predictions": [3.5]}
        assert scripted.get("/ping").status == 200
        for writer in writers:
            writer.close()
        assert [answer.result(DEADLINE_S).status for answer in answers] == [200, 200]


def test_a_worker_killed_under_load_loses_only_its_own_request(scripted: Server, tmp_path: Path) -> None:
    since = len(scripted.log)

    def invoke(number: int) -> tuple[int, bytes]:
        answer = scripted.invoke("kill" if number == 50 else "pid")
        return answer.status, answer.body

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(invoke, range(150)))
    lost = [(status, body) for status, body in answers if status != 200]
    assert len(lost) == 1
    assert lost[0][0] == 502
    assert b"ended before it answered (killed by SIGKILL)" in lost[0][1]
    ended = scripted.line("handler.worker_ended", since=since)
    assert ended.endswith("end=killed by SIGKILL requests_lost=1")
    again = scripted.line("handler.loaded", since=since)
    number = ended.split("worker=")[1].split()[0]
    assert f"worker={number} " in again
    assert scripted.invoke("pid").status == 200


def test_an_idle_worker_that_is_killed_loses_nothing(scripted: Server) -> None:
    since = len(scripted.log)
    victim = int(scripted.invoke("pid").body)
    os.kill(victim, signal.SIGKILL)
    assert "requests_lost=0" in scripted.line("handler.worker_ended", f"pid={victim}", since=since)
    scripted.line("handler.loaded", since=since)
    assert victim not in _pids(scripted)
    assert len(_pids(scripted)) == 2


def test_a_handler_that_exits_ends_only_its_worker(scripted: Server) -> None:
    since = len(scripted.log)
    answer = scripted.invoke("exit 3")
    assert answer.status == 502
    assert "exit status" in answer.error
    scripted.line("handler.worker_ended", since=since)
    scripted.line("handler.loaded", since=since)
    assert scripted.invoke("pid").status == 200


def test_a_handler_that_does_not_return_is_killed_and_its_worker_replaced(
    start: Any, scripted: Server, tmp_path: Path
) -> None:
    environment = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "1"}
    server = start(scripted.model_dir, environment=environment)
    before = server.invoke("pid").body
    for word in ("hang", "spin"):
        since = len(server.log)
        answer = server.invoke(f"{word} {tmp_path / word}")
        assert (answer.status, answer.error) == (504, "Timed out: the handler did not answer within 1 s")
        assert (tmp_path / word).exists()
        assert "killed by SIGKILL" in server.line("handler.worker_ended", since=since)
        server.line("handler.loaded", since=since)
    assert server.invoke("pid").body != before


def test_a_request_in_progress_is_answered_before_the_server_exits(
    start: Any, scripted: Server, tmp_path: Path
) -> None:
    server = start(scripted.model_dir, environment={"SAGEMAKER_GUNICORN_WORKERS": "1"})
    os.mkfifo(tmp_path / "f")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.invoke, f"wait {tmp_path / 'f'}")
        with (tmp_path / "f").open("w") as fifo:
            server.process.send_signal(signal.SIGTERM)
            server.line("server.draining")
            fifo.write("in time")
        assert answer.result(DEADLINE_S).body == b"in time"
    assert server.wait() == 0


def test_workers_end_with_a_server_that_is_killed(start: Any, scripted: Server, tmp_path: Path) -> None:
    server = start(scripted.model_dir, environment={"SAGEMAKER_GUNICORN_WORKERS": "2"})
    os.mkfifo(tmp_path / "f")
    pool = ThreadPoolExecutor(1)
    pool.submit(server.invoke, f"spin {tmp_path / 'spinning'}")
    with pytest.raises(AssertionError, match="the log ended"):
        server.process.kill()
        server.line("never")  # the log ends when the last process that can write to it has ended
    pool.shutdown(wait=True)


def test_ports_are_taken_from_the_safe_range(start: Any, scripted: Server) -> None:
    port = int(scripted.request("POST", "/invocations", "context").json["rest_uri"].split("/")[2].partition(":")[2])
    with pytest.raises(AssertionError, match=f"no port of {port} to {port} .SAGEMAKER_SAFE_PORT_RANGE. is free"):
        start(scripted.model_dir, environment={"SAGEMAKER_SAFE_PORT_RANGE": f"{port}-{port}"})
