"""Verbs that use the service: status, env, ps, logs, stop, down --stop-jobs, run."""

import json
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tidemill.sdk.connection import find_local_service
from tidemill.server.background import end_service
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Toy = Callable[..., None]

JOBS = "/aws/sagemaker/TrainingJobs"


@pytest.fixture(scope="module")
def variables(
    child_variables: Callable[[Path], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return one environment for all tests of this file, so that they can share the service."""
    return child_variables(tmp_path_factory.mktemp("service"))


@pytest.fixture(scope="module")
def state_dir(variables: dict[str, str]) -> Path:
    return Path(variables["TIDEMILL_STATE_DIR"])


@pytest.fixture(scope="module")
def started(run_verb: Run, variables: dict[str, str], state_dir: Path) -> Iterator[None]:
    up = run_verb(variables, "up")
    assert up.returncode == 0, up.stderr
    yield
    running = find_service(StateDirectory(state_dir))
    if running is not None:
        end_service(running)


@pytest.fixture
def tidemill(run_verb: Run, variables: dict[str, str]) -> Run:
    return lambda *arguments, **changes: run_verb(variables | changes, *arguments)


@pytest.fixture
def toy(started: None, tidemill: Run, state_dir: Path) -> Toy:
    """Return a running service; calling it sets the service's answers."""
    if find_service(StateDirectory(state_dir)) is None:
        assert tidemill("up").returncode == 0

    def holds(*, jobs: object = None, endpoints: object = None, logs: object = None) -> None:
        content = {"jobs": jobs or {}, "endpoints": endpoints or {}, "logs": logs or {}}
        (state_dir / "toy.json").write_text(json.dumps(content))

    holds()
    return holds


def test_status_without_a_service_exits_with_one(run_verb: Run, variables: dict[str, str], tmp_path: Path) -> None:
    ended = run_verb(variables, "status", "--json", "--state-dir", str(tmp_path))
    assert ended.returncode == 1
    answer = {"running": False, "state_dir": str(tmp_path), "selected": "this user's own service"}
    assert json.loads(ended.stdout) == answer


def test_status_prints_the_address_of_the_service_and_what_runs(tidemill: Run, toy: Toy, state_dir: Path) -> None:
    toy(jobs={"digits": "InProgress", "old": "Completed"}, endpoints={"live": "InService"})
    answer = json.loads(tidemill("status", "--json").stdout)
    record = json.loads((state_dir / "service.json").read_text())
    assert answer["running"]
    assert answer["healthy"]
    assert (answer["url"], answer["pid"]) == (record["url"], record["pid"])
    assert answer["isolation"] == "mount"
    assert answer["jobs"] == ["digits"]
    assert answer["endpoints"] == ["live"]
    shown = tidemill("status").stdout
    assert "digits" in shown
    assert "live" in shown


def test_a_default_port_in_use_does_not_fail_the_first_start(
    run_verb: Run, child_variables: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    variables = child_variables(tmp_path)
    del variables["TIDEMILL_PORT"]
    # No other service of this machine takes or leaves the port of this address.
    host = ".".join(["127", *(str(secrets.randbelow(254) + 1) for _ in range(3))])
    variables["TIDEMILL_HOST"] = host
    with socket.create_server((host, 8780)):
        refused = run_verb(variables, "up", "--port", "8780")
        assert refused.returncode == 1
        assert "--port N or TIDEMILL_PORT" in refused.stderr
        up = run_verb(variables, "up")
    running = find_service(StateDirectory(tmp_path / "state"))
    assert running is not None
    try:
        assert "port 8780 is in use by" in up.stderr
        assert "TIDEMILL_PORT" in up.stderr
        assert running.url.startswith(f"http://{host}:") and not running.url.endswith(":8780")
        assert running.url in up.stdout
        assert f"AWS_ENDPOINT_URL={running.url}" in run_verb(variables, "env").stdout
        assert "nothing runs" in run_verb(variables, "ps").stdout
        found = find_local_service(tmp_path / "state")
        assert found is not None
        assert found.url == running.url
    finally:
        end_service(running)


def test_a_shell_that_evaluates_env_points_aws_clients_to_the_service(
    tidemill: Run, toy: Toy, variables: dict[str, str], state_dir: Path
) -> None:
    record = json.loads((state_dir / "service.json").read_text())
    keys = json.loads((state_dir / "keys.json").read_text())
    exports = tidemill("env").stdout
    shell = subprocess.run(
        ["sh", "-euc", 'eval "$EXPORTS"; env'],
        env=variables | {"EXPORTS": exports, "AWS_PROFILE": "work", "AWS_SESSION_TOKEN": "old"},
        capture_output=True,
        text=True,
        check=True,
    )
    seen = dict(line.partition("=")[::2] for line in shell.stdout.splitlines())
    assert seen["AWS_ENDPOINT_URL"] == record["url"]
    assert seen["AWS_ACCESS_KEY_ID"] == keys["access_key_id"]
    assert seen["AWS_SECRET_ACCESS_KEY"] == keys["secret_access_key"]
    assert seen["AWS_DEFAULT_REGION"] == seen["AWS_REGION"] == "us-west-2"
    assert seen["AWS_EC2_METADATA_DISABLED"] == "true"
    assert seen["SAGEMAKER_SUPPRESS_V2_WARNING"] == "1"
    assert seen["SAGEMAKER_VALIDATE_ROLE"] == "false"
    assert Path(seen["SAGEMAKER_USER_CONFIG_OVERRIDE"]).is_file()
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & seen.keys()


def test_env_quotes_a_state_directory_with_blanks_and_quotes(tidemill: Run, tmp_path: Path) -> None:
    odd = str(tmp_path / "it's $(odd)")
    assert tidemill("up", "--state-dir", odd).returncode == 0
    try:
        exports = tidemill("env", "--state-dir", odd).stdout
        shell = subprocess.run(
            ["sh", "-euc", f'{exports}\nprintf %s "$SAGEMAKER_USER_CONFIG_OVERRIDE"'],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shell.stdout == f"{odd}/client/sagemaker.yaml"
        asked = tidemill("env", "--state-dir", odd, "--json")
        assert json.loads(asked.stdout)["SAGEMAKER_USER_CONFIG_OVERRIDE"] == shell.stdout
        hint = tidemill("up", "--state-dir", odd).stdout
        assert f"tidemill down --state-dir {shlex.quote(odd)}" in hint
    finally:
        assert tidemill("down", "--state-dir", odd).returncode == 0


def test_up_turns_the_warm_start_on_and_status_shows_it(tidemill: Run, toy: Toy, tmp_path: Path) -> None:
    assert json.loads(tidemill("status", "--json").stdout)["warm"] is False
    assert "warm start off (`tidemill up --warm`)" in tidemill("status").stdout
    refused = tidemill("up", "--warm").stderr
    assert "--warm has no effect on it: end it by `tidemill down`" in refused
    warm = ("--state-dir", str(tmp_path / "warm"))
    assert tidemill("up", "--warm", *warm).returncode == 0
    try:
        assert "warm start on" in tidemill("status", *warm).stdout
    finally:
        assert tidemill("down", *warm).returncode == 0


def test_ps_lists_what_runs_and_with_all_what_has_ended(tidemill: Run, toy: Toy) -> None:
    toy(jobs={"digits": "InProgress", "old": "Completed"}, endpoints={"live": "InService"})
    running = tidemill("ps").stdout
    assert "digits" in running
    assert "InProgress" in running
    assert "live" in running
    assert "old" not in running
    everything = tidemill("ps", "--all").stdout
    assert "old" in everything
    assert "3m12s" in everything
    listed = json.loads(tidemill("ps", "--all", "--json").stdout)
    assert [job["TrainingJobName"] for job in listed["jobs"]] == ["digits", "old"]


def test_a_profile_or_proxy_of_the_shell_does_not_send_the_verbs_elsewhere(tidemill: Run, toy: Toy) -> None:
    elsewhere = {
        "AWS_PROFILE": "no-such-profile",
        "HTTP_PROXY": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "another",
    }
    ended = tidemill("ps", **elsewhere)
    assert ended.returncode == 0, ended.stderr
    assert "nothing runs" in ended.stdout


def test_logs_are_read_to_their_end_without_escape_sequences(tidemill: Run, toy: Toy) -> None:
    lines = ["one", "\x1b[31mtwo\x1b[0m", "three", "four", "five"]
    toy(
        jobs={"digits": "Completed"},
        logs={JOBS: {"digits/algo-1-1700000000": lines, "digits2/algo-1-17": ["not mine"]}},
    )
    assert tidemill("logs", "digits").stdout.splitlines() == ["one", "two", "three", "four", "five"]
    assert tidemill("logs", "digits", "--raw").stdout.splitlines()[1] == lines[1]
    assert tidemill("logs", "-f", "digits").stdout.splitlines() == ["one", "two", "three", "four", "five"]


def test_lines_of_several_instances_name_their_instance(tidemill: Run, toy: Toy) -> None:
    streams = {
        "digits/algo-10-1700000000": [[2, "d"], [4, "f"], [6, "g"]],
        "digits/algo-2-1700000000": [[1, "a"], [2, "c"]],
        "digits/algo-1-1700000000": [[2, "b"], [3, "e"]],
    }
    toy(jobs={"digits": "Completed"}, logs={JOBS: streams})
    expected = ["[algo-2] a", "[algo-1] b", "[algo-2] c", "[algo-10] d", "[algo-1] e", "[algo-10] f", "[algo-10] g"]
    assert tidemill("logs", "digits").stdout.splitlines() == expected
    assert tidemill("logs", "-f", "digits").stdout.splitlines() == expected


def test_logs_of_a_job_that_has_written_nothing_are_empty(tidemill: Run, toy: Toy) -> None:
    toy(jobs={"digits": "Completed"})
    ended = tidemill("logs", "digits")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_logs_of_an_endpoint_are_found_by_its_name(tidemill: Run, toy: Toy) -> None:
    toy(endpoints={"live": "InService"}, logs={"/aws/sagemaker/Endpoints/live": {"AllTraffic/i-1": ["ready"]}})
    assert tidemill("logs", "live").stdout == "ready\n"


def test_logs_of_an_unknown_name_are_an_error_in_one_line(tidemill: Run, toy: Toy) -> None:
    ended = tidemill("logs", "nobody")
    assert ended.returncode == 1
    assert "no job, execution or endpoint named 'nobody'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_following_ends_with_the_job(tidemill: Run, toy: Toy, variables: dict[str, str]) -> None:
    stream = {"digits/algo-1-1700000000": ["first"]}
    toy(jobs={"digits": "InProgress"}, logs={JOBS: stream})
    command = [sys.executable, "-m", "tidemill.cli", "logs", "-f", "digits"]
    with subprocess.Popen(
        command,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "first\n"
        assert tidemill("down").returncode == 0  # the next service has another port, which the follower finds
        assert "does not answer; trying again" in follower.stdout.readline()
        assert tidemill("up").returncode == 0
        toy(jobs={"digits": "Completed"}, logs={JOBS: {"digits/algo-1-1700000000": ["first", "last"]}})
        assert follower.stdout.read() == "last\n"
        assert follower.wait(60) == 0


def test_stop_requests_the_stop_of_the_job(tidemill: Run, toy: Toy) -> None:
    toy(jobs={"digits": "InProgress"})
    assert "digits is stopping" in tidemill("stop", "digits").stdout
    assert "old" not in tidemill("ps").stdout
    unknown = tidemill("stop", "nobody")
    assert unknown.returncode == 1
    assert unknown.stderr == (
        "tidemill: no job, execution or endpoint named 'nobody' (Requested resource not found.);"
        " `tidemill ps --all` lists them\n"
    )


def test_down_lists_what_continues_to_run(tidemill: Run, toy: Toy) -> None:
    toy(jobs={"digits": "InProgress", "old": "Failed"}, endpoints={"live": "InService", "gone": "Deleting"})
    ended = tidemill("down")
    assert ended.returncode == 0
    assert "1 job still running: digits" in ended.stdout
    assert "1 endpoint kept, unreachable until `tidemill up`: live" in ended.stdout
    assert "1 endpoint being deleted, which the next `tidemill up` ends: gone" in ended.stdout


def test_down_with_stop_jobs_waits_for_them(tidemill: Run, toy: Toy, state_dir: Path) -> None:
    toy(jobs={"digits": "InProgress", "mnist": "InProgress"}, endpoints={"live": "InService"})
    ended = tidemill("down", "--stop-jobs")
    assert ended.returncode == 0, ended.stderr
    assert "stopping 2 jobs: digits, mnist" in ended.stdout
    assert "deleting 1 endpoint: live" in ended.stdout
    assert "still running" not in ended.stdout
    assert json.loads((state_dir / "toy.json").read_text())["endpoints"] == {}
    assert json.loads((state_dir / "toy.json").read_text())["jobs"] == {"digits": "Stopped", "mnist": "Stopped"}
