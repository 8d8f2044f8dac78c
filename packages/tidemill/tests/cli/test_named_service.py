"""Which service a command uses: flags, then the environment, then the settings, then this user's own service."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidemill.sdk.connection import connect
from tidemill.server.background import end_service
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Toy:
    """A running service with one job."""

    variables: dict[str, str]
    state_dir: Path
    url: str

    @property
    def keys(self) -> dict[str, str]:
        """The variables with the keys of its owner."""
        keys = json.loads((self.state_dir / "keys.json").read_text())
        return {"AWS_ACCESS_KEY_ID": keys["access_key_id"], "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"]}


@pytest.fixture(scope="module")
def services(
    run_verb: Run, child_variables: Callable[[Path], dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Toy, Toy]]:
    """Two services: this user's own, and one that is named by its URL."""
    started: list[Toy] = []
    try:
        for name in ("own", "named"):
            variables = child_variables(tmp_path_factory.mktemp(name))
            state_dir = Path(variables["TIDEMILL_STATE_DIR"])
            assert run_verb(variables, "up").returncode == 0
            record = find_service(StateDirectory(state_dir))
            assert record is not None
            started.append(Toy(variables, state_dir, record.url))
            holds = {"jobs": {f"job-of-{name}": "InProgress"}, "endpoints": {}, "logs": {}}
            (state_dir / "toy.json").write_text(json.dumps(holds))
        yield started[0], started[1]
    finally:
        for toy in started:
            record = find_service(StateDirectory(toy.state_dir))
            if record is not None:
                end_service(record)


@pytest.fixture
def settings_file(tmp_path: Path, services: tuple[Toy, Toy]) -> str:
    path = tmp_path / "config.toml"
    path.write_text(f'endpoint_url = "{services[1].url}"\n')
    return str(path)


@pytest.mark.matrix
def test_each_way_of_naming_a_service_selects_it_for_commands_and_sdk(
    run_verb: Run, services: tuple[Toy, Toy], settings_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, named = services
    nowhere = "http://127.0.0.1:9"
    ways: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
        "--endpoint-url": ({"AWS_ENDPOINT_URL": nowhere}, ("--endpoint-url", named.url)),
        "TIDEMILL_ENDPOINT_URL": ({"TIDEMILL_ENDPOINT_URL": named.url, "AWS_ENDPOINT_URL": nowhere}, ()),
        "AWS_ENDPOINT_URL": ({"AWS_ENDPOINT_URL": named.url}, ()),
        "the setting endpoint_url": ({"TIDEMILL_CONFIG": settings_file}, ()),
    }
    for named_by, (changes, flags) in ways.items():
        variables = own.variables | named.keys | changes
        status = json.loads(run_verb(variables, "status", "--json", *flags).stdout)
        assert (status["url"], status["selected"]) == (named.url, f"named by {named_by}")
        assert status["jobs"] == ["job-of-named"]
        assert "state_dir" not in status
        for name, value in (variables if not flags else {}).items():
            monkeypatch.setenv(name, value)
        if not flags:
            jobs = connect().client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
            assert [job["TrainingJobName"] for job in jobs] == ["job-of-named"]
        for name in changes:
            monkeypatch.delenv(name, raising=False)


def test_the_environment_wins_over_the_settings_and_a_state_directory_over_the_environment(
    run_verb: Run, services: tuple[Toy, Toy], settings_file: str
) -> None:
    own, named = services
    variables = own.variables | own.keys | {"TIDEMILL_CONFIG": settings_file, "AWS_ENDPOINT_URL": own.url}
    status = json.loads(run_verb(variables, "status", "--json").stdout)
    # The URL is that of this user's own service, so its files are known too.
    assert (status["jobs"], status["state_dir"]) == (["job-of-own"], str(own.state_dir))
    variables = own.variables | {"AWS_ENDPOINT_URL": named.url}
    assert "job-of-own" in run_verb(variables, "ps", "--state-dir", str(own.state_dir)).stdout
    both = run_verb(variables, "ps", "--state-dir", str(own.state_dir), "--endpoint-url", named.url)
    assert both.stderr == "tidemill: --endpoint-url and --state-dir name two services; give one of them\n"


def test_commands_act_on_the_named_service_only(run_verb: Run, services: tuple[Toy, Toy]) -> None:
    own, named = services
    variables = own.variables | named.keys | {"AWS_ENDPOINT_URL": named.url}
    assert "job-of-named" in run_verb(variables, "ps").stdout
    assert "job-of-named" in run_verb(variables, "describe", "job-of-named").stdout
    assert run_verb(variables, "logs", "job-of-named").returncode == 0
    for verb in ("stop", "describe", "logs", "interrupt", "download"):
        refused = run_verb(variables, verb, "job-of-own")
        assert refused.returncode == 1, (verb, refused.stdout)
        assert "Traceback" not in refused.stderr
    assert json.loads((own.state_dir / "toy.json").read_text())["jobs"] == {"job-of-own": "InProgress"}


def test_what_needs_the_state_directory_names_the_way_if_another_service_is_selected(
    run_verb: Run, services: tuple[Toy, Toy]
) -> None:
    own, named = services
    variables = own.variables | {"AWS_ENDPOINT_URL": named.url}
    for verb in ("down", "gc"):
        refused = run_verb(variables, verb)
        assert refused.returncode == 1
        assert f"{named.url} (named by AWS_ENDPOINT_URL)" in refused.stderr
        assert f"tidemill {verb} --state-dir {own.state_dir}" in refused.stderr
    assert find_service(StateDirectory(own.state_dir)) is not None
    # `env` sets AWS_ENDPOINT_URL, so its old value means nothing to it; other ways of naming do.
    assert f"AWS_ENDPOINT_URL={own.url}" in run_verb(variables, "env").stdout
    refused = run_verb(own.variables | {"TIDEMILL_ENDPOINT_URL": named.url}, "env")
    assert refused.returncode == 1
    assert f"export AWS_ENDPOINT_URL={named.url}" in refused.stderr
    assert f"The other commands and the SDK use {named.url}" in run_verb(variables, "up").stderr


def test_a_named_service_without_keys_is_an_error_that_says_so(run_verb: Run, services: tuple[Toy, Toy]) -> None:
    own, named = services
    variables = own.variables | {"AWS_ENDPOINT_URL": named.url, "AWS_EC2_METADATA_DISABLED": "true"}
    ended = run_verb(variables, "ps")
    assert ended.returncode == 1
    assert "there are no keys for the service" in ended.stderr
    assert "tidemill keys add" in ended.stderr
