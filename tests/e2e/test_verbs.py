"""The command line from the first job to an answered request, and its messages about mistakes."""

import functools
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Verb = Callable[..., "subprocess.CompletedProcess[str]"]

# The model comes from a channel, so the script needs no TensorFlow.
SCRIPT = """
import os, pathlib, tarfile
with tarfile.open(os.environ["SM_CHANNEL_MODEL"] + "/model.tar.gz") as archive:
    archive.extractall(os.environ["SM_MODEL_DIR"], filter="data")
pathlib.Path(os.environ["SM_OUTPUT_DATA_DIR"], "notes.txt").write_text("done")
"""


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_"))}
    environments = os.environ.get("TIDEMILL_ENVIRONMENTS_DIR")
    shared = {"TIDEMILL_ENVIRONMENTS_DIR": environments} if environments else {}
    state = tmp_path_factory.mktemp("verbs") / "state"
    return kept | shared | {"TIDEMILL_STATE_DIR": str(state), "TIDEMILL_PORT": "0", "TIDEMILL_CONFIG": os.devnull}


@pytest.fixture(scope="module")
def verb(variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verb]:
    directory = tmp_path_factory.mktemp("client")

    def run(
        *arguments: str, body: str = "", code: int = 0, environment: dict[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        ended = subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *arguments],
            cwd=directory,
            env=environment or variables,
            input=body,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == code, f"{arguments}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended

    (directory / "train.py").write_text(SCRIPT)
    (directory / "exits.py").write_text("import sys\nsys.exit(3)\n")
    run("up")
    yield run
    run("down", "--stop-jobs")


@pytest.fixture(scope="module")
def remote_verb(verb: Verb, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Verb:
    """Return `verb` for a user of another machine, who has the address of the service and keys, and no files of it."""
    url = json.loads(verb("status", "--json").stdout)["url"]
    keys = json.loads((Path(variables["TIDEMILL_STATE_DIR"]) / "keys.json").read_text())
    elsewhere = variables | {
        "TIDEMILL_STATE_DIR": str(tmp_path_factory.mktemp("elsewhere") / "state"),
        "TIDEMILL_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": keys["access_key_id"],
        "AWS_SECRET_ACCESS_KEY": keys["secret_access_key"],
    }
    return functools.partial(verb, environment=elsewhere)


def test_from_a_job_to_an_answer_and_away_again(remote_verb: Verb, saved_model: Path, tmp_path: Path) -> None:
    verb = remote_verb
    verb("train", "train.py", "--name", "half", "--input", f"model={saved_model}")
    assert "TrainingJobStatus: Completed" in verb("describe", "half").stdout
    assert json.loads(verb("describe", "half", "--json").stdout)["TrainingJobName"] == "half"
    answer = json.loads(verb("download", "half", "-o", str(tmp_path / "half"), "--json").stdout)
    files = answer["files"]
    assert answer["name"] == "half"
    assert [Path(file).name for file in files] == ["model.tar.gz", "output.tar.gz"]
    with tarfile.open(files[0]) as archive:
        assert any(name.endswith("saved_model.pb") for name in archive.getnames())

    deployed = json.loads(verb("deploy", "half", "--name", "answers", "--json").stdout)
    assert deployed == {"name": "answers", "kind": "endpoint", "status": "InService"}
    assert json.loads(verb("invoke", "answers", '{"instances": [4]}').stdout) == {"predictions": [4.0]}
    assert json.loads(verb("invoke", "answers", "-", body="[8, 2]").stdout)["predictions"] == [[6.0, 3.0]]
    asked = json.loads(verb("invoke", "answ", '{"instances": [4]}', "--json").stdout)  # a begin of the name
    assert asked == {"endpoint": "answers", "content_type": "application/json", "body": {"predictions": [4.0]}}
    last = verb("invoke", '{"instances": [4]}')
    assert (json.loads(last.stdout), last.stderr) == ({"predictions": [4.0]}, "tidemill: answers (endpoint)\n")
    assert "the request for answers is missing" in verb("invoke", "answers", code=2).stderr
    (tmp_path / "body.json").write_text('{"instances": [0]}')
    assert json.loads(verb("invoke", "answers", f"@{tmp_path / 'body.json'}").stdout) == {"predictions": [2.0]}
    assert "ModelError" in verb("invoke", "answers", "{", code=1).stderr
    assert "EndpointStatus: InService" in verb("describe", "answers").stdout

    assert "is a job" in verb("delete", "half", code=1).stderr
    gone = json.loads(verb("delete", "answ", "--model", "--json").stdout)
    assert gone == {"name": "answers", "kind": "endpoint", "deleted": True}
    assert "no job, execution or endpoint named 'answers'" in verb("describe", "answers", code=1).stderr


def test_down_with_stop_jobs_deletes_endpoints(verb: Verb, variables: dict[str, str], saved_model: Path) -> None:
    verb("train", "train.py", "--name", "again", "--input", f"model={saved_model}")
    verb("deploy", "again", "--name", "short-lived")
    ended = verb("down", "--stop-jobs")
    assert "deleting 1 endpoint: short-lived" in ended.stdout
    assert "kept" not in ended.stdout
    verb("up")
    assert json.loads(verb("ps", "--json").stdout)["endpoints"] == []


def test_a_script_that_exits_without_a_word_gets_a_reason_at_the_client(verb: Verb) -> None:
    failed = verb("train", "exits.py", "--name", "exits", code=1)
    assert "ExecuteUserScriptError:\nExitCode 3\n" in failed.stderr
    assert "sys.exit(3)" in failed.stderr
    assert "sys.exit(3)" in verb("describe", "exits").stdout
    assert "nothing to download" in verb("download", "exits", code=1).stderr
