"""The container's API for the models of a multi-model endpoint, on one real server."""

import io
import json
import os
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py
Place = Callable[..., str]

SCRIPT = """
import json, os

def input_handler(data, context):
    return json.dumps({"instances": [float(each) for each in data.read().decode().split(",")]})

def output_handler(response, context):
    answer = {"model": context.model_name, "process": os.getpid(), **response.json()}
    return json.dumps(answer), "application/json"
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models-of-endpoint")


@pytest.fixture(scope="module")
def endpoint(root: Path, server_process: Any) -> Iterator[Server]:
    environment = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "30"}
    running = server_process(root, environment=environment).start()
    yield running
    assert running.terminate() == 0, running.log


@pytest.fixture
def place(root: Path, models: Path) -> Place:
    """Return a function that puts a model and files into a directory of the endpoint, and returns its name."""

    def make(model: str = "half_plus", files: dict[str, str] | None = None) -> str:
        name = f"m-{uuid.uuid4().hex[:8]}"
        (root / name).mkdir()
        (root / name / model).symlink_to(models / model)
        for file, text in (files or {}).items():
            (root / name / file).parent.mkdir(parents=True, exist_ok=True)
            (root / name / file).write_text(text)
        return name

    return make


def load(server: Server, name: str, url: str | None = None, **members: Any) -> Any:
    body = {"model_name": name, "url": url or f"/opt/ml/models/{name}", **members}
    return server.request("POST", "/models", body, {"Content-Type": "application/json"})


def invoke(server: Server, name: str, body: str, **headers: str) -> Any:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return server.request("POST", f"/models/{name}/invoke", body, {"Content-Type": "application/json", **named})


def test_a_model_is_loaded_invoked_and_unloaded(endpoint: Server, place: Place) -> None:
    name = place()
    missing = invoke(endpoint, name, '{"instances": [1]}')
    assert (missing.status, missing.error) == (404, f"Model {name} is not loaded yet.")
    loaded = load(endpoint, name)
    assert loaded.status == 200
    assert loaded.json["success"].startswith(f"Successfully loaded model {name}, ")
    answer = invoke(endpoint, name, '{"instances": [1.0, 2.0, 5.0]}')
    assert (answer.status, answer.json) == (200, {"predictions": [3.5, 4.0, 5.5]})
    described = endpoint.get("/openapi.json").json["paths"]
    assert described["/models/{model_name}/invoke"].keys() == {"post", "parameters"}
    assert described["/models/{model_name}"].keys() == {"get", "delete", "parameters"}
    assert f"/v1/models/{name}/versions/123:predict" in described
    assert "/invocations" not in described
    unloaded = endpoint.request("DELETE", f"/models/{name}")
    assert (unloaded.status, unloaded.json) == (200, {"success": f"Successfully unloaded model {name}."})
    assert invoke(endpoint, name, '{"instances": [1]}').status == 404
    assert load(endpoint, name).status == 200  # and again


def test_the_body_is_passed_to_the_model_unchanged(endpoint: Server, place: Place) -> None:
    name = place()
    load(endpoint, name)
    assert "Is not object" in invoke(endpoint, name, "[1, 2, 5]").error
    attributes = "tfs-model-version=123"
    answer = invoke(
        endpoint, name, '{"instances": [1]}', Accept="application/mine", X_Amzn_SageMaker_Custom_Attributes=attributes
    )
    assert (answer.json, answer.headers["content-type"]) == ({"predictions": [2.5]}, "application/mine")


def test_models_are_listed_with_their_status(endpoint: Server, place: Place) -> None:
    name = place()
    before = endpoint.get("/models").json
    assert name not in before
    load(endpoint, name)
    listed = endpoint.get("/models").json
    assert listed.keys() - before.keys() == {name}
    versions = listed[name]["model_version_status"]
    assert [(each["version"], each["state"]) for each in versions] == [("124", "AVAILABLE"), ("123", "AVAILABLE")]
    assert endpoint.get(f"/models/{name}").json == listed[name]
    assert endpoint.get(f"/v1/models/{name}").json == listed[name]
    missing = endpoint.get("/models/none-such")
    assert (missing.status, missing.error) == (404, "Model none-such is not loaded yet.")


def test_models_are_listed_in_pages_on_request(endpoint: Server, place: Place) -> None:
    name = place()
    load(endpoint, name)
    page = endpoint.get("/models?next_page_token=").json
    assert {"modelName": name, "modelUrl": f"/opt/ml/models/{name}"} in page["models"]
    assert "nextPageToken" not in page
    assert endpoint.get(f"/models?next_page_token={name}").json["models"] == [
        each for each in page["models"] if each["modelName"] > name
    ]


def test_a_model_is_not_loaded_twice(endpoint: Server, place: Place) -> None:
    name = place()
    assert load(endpoint, name).status == 200
    again = load(endpoint, name)
    assert (again.status, again.error) == (409, f"Model {name} is already loaded.")


def test_a_missing_model_has_no_valid_base_path(endpoint: Server, root: Path) -> None:
    for name, url in (("ghost", "/opt/ml/models/ghost"), ("outside", "/etc"), ("up", "/opt/ml/models/../../etc")):
        missing = load(endpoint, name, url)
        assert (missing.status, missing.error) == (404, f"Could not find valid base path {url} for servable {name}")
    (root / "empty/v1").mkdir(parents=True)
    assert load(endpoint, "empty").status == 404
    deleted = endpoint.request("DELETE", "/models/ghost")
    assert (deleted.status, deleted.error) == (404, "Model ghost is not loaded yet")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ('{"model_name": "m", "uri": "/opt/ml/models/m"}', 500, "'url'"),
        ('{"url": "/opt/ml/models/m"}', 500, "'model_name'"),
        ("not json", 400, "is no JSON"),
        ("[1]", 400, "must be an object"),
        ('{"model_name": "a/b", "url": "/opt/ml/models/m"}', 400, "has a / or a :"),
    ],
)
def test_an_invalid_load_request_is_refused(endpoint: Server, body: str, status: int, text: str) -> None:
    answer = endpoint.request("POST", "/models", body)
    assert answer.status == status
    assert text in answer.error


def test_a_model_larger_than_the_memory_is_refused_before_it_is_loaded(
    endpoint: Server, root: Path, models: Path
) -> None:
    (root / "huge/1/variables").mkdir(parents=True)
    (root / "huge/1/saved_model.pb").write_bytes((models / "half_plus/123/saved_model.pb").read_bytes())
    with (root / "huge/1/variables/variables.data-00000-of-00001").open("wb") as file:
        file.truncate(1 << 42)
    refused = load(endpoint, "huge")
    assert refused.status == 507
    assert refused.error.startswith("Memory exhausted: the model has ")


def test_loading_a_model_is_abandoned_at_the_time_limit(start: Any, tmp_path: Path, models: Path) -> None:
    slow = tmp_path / "slow/1"
    (slow / "variables").mkdir(parents=True)
    (slow / "saved_model.pb").write_bytes((models / "half_plus/123/saved_model.pb").read_bytes())
    (slow / "variables/variables.index").write_bytes(b"")
    (slow / "variables/variables.index").unlink()
    os.mkfifo(slow / "variables/variables.index")  # no process ever writes to it
    environment = {"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_TFS_WAIT_TIME_SECONDS": "1"}
    server = start(tmp_path, environment=environment)
    late = load(server, "slow")
    assert (late.status, late.error) == (408, "Timed out when loading model slow")
    assert server.get("/ping").status == 200
    assert server.terminate() == 0


def test_a_broken_model_fails_its_load_alone(endpoint: Server, root: Path, place: Place) -> None:
    name = place()
    load(endpoint, name)
    (root / "broken/1").mkdir(parents=True)
    (root / "broken/1/saved_model.pb").write_bytes(b"this is no SavedModel")
    answer = load(endpoint, "broken")
    assert answer.status == 500
    assert "is not a SavedModel" in answer.error
    assert endpoint.get("/models/broken").status == 404
    assert invoke(endpoint, name, '{"instances": [1]}').status == 200


def test_each_model_runs_its_own_code_in_a_separate_process(endpoint: Server, place: Place) -> None:
    first = place(files={"code/inference.py": SCRIPT})
    second = place(files={"code/inference.py": SCRIPT.replace("float(each)", "10 * float(each)")})
    plain = place()
    for name in (first, second, plain):
        assert load(endpoint, name).status == 200
    answers = [invoke(endpoint, name, "1,2").json for name in (first, second)]
    assert [each["predictions"] for each in answers] == [[3.5, 4.0], [8.0, 13.0]]
    assert [each["model"] for each in answers] == [first, second]
    processes = [each["process"] for each in answers]
    assert len(set(processes)) == 2
    assert invoke(endpoint, plain, '{"instances": [1]}').json == {"predictions": [3.5]}
    since = len(endpoint.log)
    assert endpoint.request("DELETE", f"/models/{first}").status == 200
    endpoint.line("model.unloaded", first, since=since)
    assert not Path(f"/proc/{processes[0]}").exists()
    assert Path(f"/proc/{processes[1]}").exists()


@pytest.mark.parametrize(
    ("files", "status", "text"),
    [
        ({"code/inference.py": "raise KeyError('weights')"}, 500, "could not be loaded: KeyError: 'weights'"),
        ({"code/inference.py": SCRIPT, "code/requirements.txt": "no such package"}, 500, "could not be installed"),
    ],
)
def test_a_model_whose_code_cannot_run_is_not_loaded(
    endpoint: Server, place: Place, files: dict[str, str], status: int, text: str
) -> None:
    name = place(files=files)
    answer = load(endpoint, name)
    assert answer.status == status
    assert text in answer.error
    assert endpoint.get(f"/models/{name}").status == 404
    assert endpoint.get(f"/v1/models/{name}").status == 404


def write_package(directory: Path, name: str) -> str:
    """Write a package that defines ``NAME``, and return the line that requires it."""
    (directory / name).mkdir(parents=True)
    (directory / name / "__init__.py").write_text(f"NAME = {name!r}")
    setup = f"from setuptools import setup\nsetup(name={name!r}, version='1', packages=[{name!r}])"
    (directory / "setup.py").write_text(setup)
    return f"{directory}\n"


def test_packages_for_all_models_and_for_one_are_installed_before_its_code_is_imported(
    start: Any, models: Path, tmp_path: Path
) -> None:
    root, temporary = tmp_path / "root", tmp_path / "temporary"
    script = "import {0}\ndef handler(data, context): return {1}, 'text/plain'"
    files = {
        "code/requirements.txt": write_package(tmp_path / "common", "tides"),
        "code/inference.py": script.format("tides", "tides.NAME"),
        "own/model/code/requirements.txt": write_package(tmp_path / "single", "waves"),
        "own/model/code/inference.py": script.format("tides, waves", "tides.NAME + waves.NAME"),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in ("own", "plain"):
        (root / name / "model").mkdir(parents=True, exist_ok=True)
        (root / name / "model/half_plus").symlink_to(models / "half_plus")
    temporary.mkdir()
    environment = {"SAGEMAKER_MULTI_MODEL": "true", "PIP_NO_BUILD_ISOLATION": "0", "TMPDIR": str(temporary)}
    endpoint = start(root, environment=environment)
    for name, answer in (("own", b"tideswaves"), ("plain", b"tides")):
        assert load(endpoint, name, f"/opt/ml/models/{name}/model/half_plus").status == 200
        assert invoke(endpoint, name, "").body == answer
    assert len(list(temporary.glob("tidemill-packages-*"))) == 2
    assert endpoint.request("DELETE", "/models/own").status == 200
    assert len(list(temporary.glob("tidemill-packages-*"))) == 1
    assert invoke(endpoint, "plain", "").body == b"tides"


def test_an_archive_is_unpacked_for_its_model_and_removed_with_it(start: Any, models: Path, tmp_path: Path) -> None:
    root, archives = tmp_path / "root", tmp_path / "archives"
    root.mkdir()
    archives.mkdir()
    environment = {"SAGEMAKER_MULTI_MODEL": "true"}
    endpoint = start(root, environment=environment, arguments=("--archives", str(archives)))
    with tarfile.open(archives / "m.tar.gz", "w:gz") as archive:
        archive.add(models / "half_plus/123", "1")
        script = tarfile.TarInfo("code/inference.py")
        script.size = len(SCRIPT)
        archive.addfile(script, io.BytesIO(SCRIPT.encode()))
    loaded = load(endpoint, "packed", "/opt/ml/models/packed/model", archive="m.tar.gz")
    assert loaded.status == 200, loaded.body
    assert list(archives.iterdir()) == []
    assert (root / "packed/model/code/inference.py").exists()
    assert invoke(endpoint, "packed", "1,2").json["predictions"] == [2.5, 3.0]
    assert endpoint.request("DELETE", "/models/packed").status == 200
    assert not (root / "packed/model").exists()
    (archives / "bad.tar.gz").write_bytes(b"no archive")
    bad = load(endpoint, "packed", "/opt/ml/models/packed/model", archive="bad.tar.gz")
    assert bad.status == 400
    assert "InvalidArchive" in bad.error
    outside = load(endpoint, "packed", "/opt/ml/models/packed/model", archive="../m.tar.gz")
    assert (outside.status, "is no file of the directory of archives" in outside.error) == (400, True)


def test_the_endpoint_is_healthy_without_a_model(start: Any, tmp_path: Path) -> None:
    server = start(tmp_path, environment={"SAGEMAKER_MULTI_MODEL": "true"})
    assert server.get("/ping").status == 200
    assert json.loads(server.get("/models").body) == {}
