"""`tidemill config`: the settings with their origin, and changes of the file."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.cli import main

FILE = """\
# ours
max_instances = 3

[remote_s3."team-*"]
endpoint_url = "http://127.0.0.1:9000"
"""

Config = Callable[..., tuple[int, str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config/config.toml"
    path.parent.mkdir()
    path.write_text(FILE)
    return path


@pytest.fixture
def config(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Config:
    for name in ("TIDEMILL_ENDPOINT_URL", "AWS_ENDPOINT_URL_SAGEMAKER", "AWS_ENDPOINT_URL", "TIDEMILL_MAX_INSTANCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TIDEMILL_CONFIG", str(file))

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["config", *arguments])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out + shown.err

    return run


def test_each_setting_says_where_it_comes_from(
    config: Config, file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEMILL_LOG_LEVEL", "debug")
    monkeypatch.setenv("TIDEMILL_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1/db")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:7")
    shown = {each["name"]: each for each in json.loads(config("show", "--json")[1])}
    assert shown["max_instances"] == {"name": "max_instances", "value": 3, "origin": "file", "where": f"{file}:2"}
    assert shown["remote_s3"]["where"] == f"{file}:4"
    assert (shown["log_level"]["value"], shown["log_level"]["where"]) == ("debug", "TIDEMILL_LOG_LEVEL")
    assert (shown["endpoint_url"]["value"], shown["endpoint_url"]["where"]) == (
        "http://127.0.0.1:7",
        "AWS_ENDPOINT_URL",
    )
    assert shown["port"] == {"name": "port", "value": 8780, "origin": "default", "where": None}
    everything = config("show", "--origin")[1] + config("show", "--json")[1] + config("show")[1]
    assert "hunter2" not in everything
    assert "environment TIDEMILL_DATABASE_URL" in everything
    by_flag = json.loads(config("show", "--json", "--state-dir", str(tmp_path))[1])
    first = next(each for each in by_flag if each["name"] == "state_dir")
    assert (first["value"], first["origin"], first["where"]) == (str(tmp_path), "flag", "--state-dir")
    assert "port" not in config("show", "--changed")[1]


def test_set_and_unset_change_one_line_of_the_file(config: Config, file: Path) -> None:
    assert config("set", "max_instances", "5")[0] == 0
    assert file.read_text() == FILE.replace("= 3", "= 5")
    assert config("set", "default_framework", "2.20")[0] == 0
    assert 'default_framework = "2.20"\n' in file.read_text()  # a number in TOML, but a version is text
    assert config("set", "isolation", "mount")[0] == 0
    assert file.read_text().index("isolation") < file.read_text().index("[remote")
    assert json.loads(config("show", "--json", "--changed")[1])[0]["where"]
    for name in ("max_instances", "default_framework", "isolation"):
        assert config("unset", name)[0] == 0
    assert file.read_text() == FILE.replace("max_instances = 3\n", "")
    assert "has no setting port" in config("unset", "port")[1]
    before = file.read_text()
    for arguments, why in (
        (("set", "no_such", "1"), "there is no setting 'no_such'"),
        (("set", "max_instances", "0"), "greater than or equal to 1"),
        (("set", "isolation", "docker"), "mount"),
        (("set", "remote_s3", "{}"), "is a table"),
        (("unset", "remote_s3"), "has more than one line"),
    ):
        code, shown = config(*arguments)
        assert (code, why in shown) == (1, True), shown
    assert file.read_text() == before


def test_set_makes_the_file_for_its_owner_only(config: Config, file: Path) -> None:
    file.unlink()
    file.parent.rmdir()
    assert config("set", "database_url", "postgresql://me:hunter2@127.0.0.1/db")[0] == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert "hunter2" in file.read_text()
    assert "hunter2" not in config("set", "database_url", "postgresql://me:hunter2@127.0.0.1/db")[1]


def test_the_address_of_a_collector_has_no_password_that_commands_would_show(
    config: Config, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = config("set", "otlp_endpoint", "http://me:hunter2@127.0.0.1:4318")
    assert (refused[0], "OTEL_EXPORTER_OTLP_HEADERS" in refused[1], "hunter2" in refused[1]) == (1, True, False)
    monkeypatch.setenv("TIDEMILL_OTLP_ENDPOINT", "http://me:hunter2@127.0.0.1:4318")
    code, shown = config("show")
    assert (code, "hunter2" in shown) == (1, False), shown


@pytest.mark.parametrize(
    "text",
    [
        'webhooks.a = {url = "ftp://x", secret = "hunter2hunter2hunter2"}',
        'webhooks.a = {url = "https://x", secret = ["hunter2hunter2hunter2"]}',
        'webhooks = [{url = "https://x", secret = "hunter2hunter2hunter2"}]',
        'database_url = ["postgresql://me:hunter2@127.0.0.1/db"]',
        'remote_s3.a = {endpoint_url = "https://me:hunter2@x", nothing = "hunter2"}',
    ],
)
def test_the_error_of_a_setting_shows_no_secret_beside_it(config: Config, file: Path, text: str) -> None:
    file.write_text(text)
    code, shown = config("show")
    assert (code, text.partition(" ")[0] in shown, "hunter2" in shown) == (1, True, False), shown
