"""``inference.py`` of a TensorFlow-Serving-based endpoint, in real worker processes of a real server."""

import json
import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

Server = Any  # a ServerProcess of conftest.py


def test_the_log_names_the_loaded_handlers_and_their_file(scripted: Server) -> None:
    loaded = [line for line in scripted.log if line.startswith("handler.loaded")]
    script = scripted.model_dir / "code/inference.py"
    assert [line.split(" pid=")[0] for line in loaded] == [
        f"handler.loaded handlers=handler file={script} worker=0",
        f"handler.loaded handlers=handler file={script} worker=1",
    ]
    assert scripted.log.count("imported by inference") == 2  # one whole line each, although two processes write
    assert not [line for line in scripted.log if "fork" in line]


def test_the_context_has_every_field_in_order(scripted: Server) -> None:
    attributes = "tfs-model-name=half_plus,tfs-model-version=123,tfs-method=classify,other=1"
    answer = scripted.invoke(
        "context", "text/x-mine", Accept="text/y-mine", X_Amzn_SageMaker_Custom_Attributes=attributes
    )
    context = answer.json
    port = int(context["rest_uri"].split("/")[2].partition(":")[2])
    assert list(context.items()) == [
        ("model_name", "half_plus"),
        ("model_version", "123"),
        ("method", "classify"),
        ("rest_uri", f"http://localhost:{port}/v1/models/half_plus/versions/123:classify"),
        ("grpc_port", context["grpc_port"]),
        ("channel", "Channel"),
        ("custom_attributes", attributes),
        ("request_content_type", "text/x-mine"),
        ("accept_header", "text/y-mine"),
        ("content_length", 7),
    ]
    assert answer.headers["content-type"] == "text/y-mine"
    assert len({port, context["grpc_port"], scripted.port}) == 3


def test_a_request_without_headers_gets_the_defaults_of_the_container(scripted: Server) -> None:
    context = scripted.request("POST", "/invocations", "context").json
    assert (context["model_name"], context["model_version"], context["method"]) == ("half_plus", None, None)
    assert context["rest_uri"].endswith("/v1/models/half_plus:predict")
    assert (context["request_content_type"], context["accept_header"]) == ("application/json", "application/json")
    assert context["custom_attributes"] is None


def test_a_handler_calls_the_model_over_its_loopback_port(scripted: Server) -> None:
    answer = scripted.invoke('predict {"instances": [1.0, 2.0, 5.0]}')
    assert (answer.status, answer.json) == (200, {"predictions": [3.5, 4.0, 5.5]})


def test_the_document_of_the_api_leaves_the_body_to_the_code(scripted: Server) -> None:
    paths = scripted.get("/openapi.json").json["paths"]
    assert paths["/invocations"]["post"]["requestBody"]["content"] == {"*/*": {"schema": {}}}
    assert "/v1/models/half_plus:predict" in paths


def test_a_handler_calls_the_model_by_grpc(scripted: Server) -> None:
    assert scripted.invoke("grpc [1.0, 2.0, 5.0]").json == ["half_plus", 124, "serving_default", [3.5, 4.0, 5.5]]
    large = scripted.invoke(f"grpc {json.dumps([1.0] * 1_100_000)}").json  # more than the 4 MB of grpcio's default
    assert large == ["half_plus", 124, "serving_default", [3.5] * 1_100_000]
    attributes = "tfs-model-name=other"
    unknown = scripted.invoke("grpc [1.0]", X_Amzn_SageMaker_Custom_Attributes=attributes)
    assert unknown.json == ["NOT_FOUND", "Servable not found for request: Latest(other)"]


def test_bytes_and_any_content_type_are_passed_on_unchanged(scripted: Server) -> None:
    answer = scripted.invoke(b"other", "application/x-unheard-of")
    assert (answer.status, answer.body) == (200, b"\x00\xffother")
    assert answer.headers["content-type"] == "application/octet-stream"


def test_a_body_of_megabytes_is_passed_in_both_directions(scripted: Server) -> None:
    word = b"x" * 5_000_000
    assert scripted.invoke(word).body == b"\x00\xff" + word


def test_prints_and_standard_error_of_a_handler_are_in_the_log(scripted: Server) -> None:
    since = len(scripted.log)
    assert scripted.invoke("print of the handler").body == b"printed"
    assert scripted.line("of the handler", since=since) == "of the handler"
    assert scripted.line("to standard error", since=since) == "to standard error"


def test_an_error_of_a_handler_is_answered_500_and_logged_with_the_users_frames(scripted: Server) -> None:
    since = len(scripted.log)
    answer = scripted.invoke('raise a "quoted" reason')
    assert (answer.status, answer.json) == (500, {"error": 'a "quoted" reason'})
    assert answer.headers["content-type"] == "application/json"
    scripted.line("ValueError: a", since=since)
    shown = scripted.log[scripted.log.index("Traceback (most recent call last):", since) :]
    code = scripted.model_dir / "code"
    frames = [line.strip() for line in shown if line.startswith("  File")]
    assert frames[0].startswith(f'File "{code}/inference.py", line ') and frames[0].endswith("in handler")
    assert frames[1] == f'File "{code}/lib/helper.py", line 3, in fail'
    assert len(frames) == 2


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("None", "handler must return (body, content_type), but it returned NoneType: None"),
        ("'text'", "handler must return (body, content_type), but it returned str: 'text'"),
        ("({'a': 1}, 'application/json')", "the body that handler returned is dict: {'a': 1}; return text or bytes"),
    ],
)
def test_an_invalid_return_value_is_explained(scripted: Server, result: str, text: str) -> None:
    answer = scripted.invoke("return " + result)
    assert answer.status == 500
    assert answer.error.startswith(text)


def test_a_line_break_in_a_content_type_makes_no_header(scripted: Server) -> None:
    answer = scripted.invoke("return ('body', 'text/plain\\r\\nX-Forged: 1')")
    assert (answer.status, answer.body) == (200, b"body")
    assert "x-forged" not in answer.headers


def test_ping_and_the_models_own_routes_are_answered_beside_the_handlers(scripted: Server) -> None:
    assert scripted.get("/ping").status == 200
    assert scripted.predict("half_plus/versions/123", {"instances": [1.0]}).json == {"predictions": [2.5]}


def test_the_loopback_port_serves_the_models_and_nothing_else(scripted: Server, server_process: Any) -> None:
    uri = scripted.request("POST", "/invocations", "context").json["rest_uri"]
    models = server_process(scripted.model_dir, port=int(uri.split("/")[2].partition(":")[2]))
    assert models.predict("half_plus", {"instances": [1.0]}).status == 200
    assert models.get("/v1/models/half_plus").status == 200
    assert models.get("/ping").status == 404
    assert models.invoke("pid").status == 404


PAIR = """
import json

def input_handler(data, context):
    text = data.read().decode()
    if context.request_content_type == "text/csv":
        return json.dumps({"instances": [float(each) for each in text.split(",")]})
    if context.request_content_type == "application/json":
        return text
    raise ValueError(f"unsupported content type {context.request_content_type}")

def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    assert response.json() == json.loads(response.text) and response.ok
    return response.content, context.accept_header
"""


@pytest.fixture(scope="module")
def pair(archive: Any, server_process: Any) -> Any:
    environment = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "4"}
    running = server_process(archive("half_plus", {"code/inference.py": PAIR}), environment=environment).start()
    yield running
    assert running.terminate() == 0, running.log


def test_input_and_output_handlers_wrap_the_model(pair: Server) -> None:
    answer = pair.invoke("1,2,5", "text/csv", Accept="text/mine")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/mine")
    assert answer.body == b'{\n    "predictions": [3.5, 4.0, 5.5\n    ]\n}'
    chosen = pair.invoke('{"instances": [1]}', X_Amzn_SageMaker_Custom_Attributes="tfs-model-version=123")
    assert chosen.json == {"predictions": [2.5]}
    assert "handlers=input_handler,output_handler" in pair.line("handler.loaded")


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("", "application/json", "document is empty"),
        ("{}", "application/json", "Missing 'inputs' or 'instances' key"),
        ("1", "unsupported-type", "unsupported content type unsupported-type"),
    ],
)
def test_an_error_of_the_pair_is_a_500_with_its_text(pair: Server, body: str, content_type: str, text: str) -> None:
    answer = pair.invoke(body, content_type)
    assert answer.status == 500
    assert text in answer.error


@pytest.mark.parametrize(
    ("files", "texts"),
    [
        (
            {"code/inference.py": "import json\n\ndef f():\n    return 1 / 0\n\nf()"},
            ("ZeroDivisionError: division by zero", "inference.py", "in f"),
        ),
        ({"code/inference.py": "def handler(data, context:\n"}, ("SyntaxError", "inference.py")),
        ({"code/inference.py": "raise SystemExit(3)"}, ("could not be loaded: SystemExit: 3",)),
        ({"code/inference.py": "import os; os._exit(4)"}, ("its process ended without a report",)),
        (
            {"code/inference.py": "def input_handler(data, context): ..."},
            ("has no handlers: define handler(data, context), or both",),
        ),
    ],
)
def test_a_script_that_cannot_be_loaded_fails_the_start(
    start: Any, archive: Any, files: dict[str, str], texts: tuple[str, ...]
) -> None:
    with pytest.raises(AssertionError, match="exit status 1") as failure:
        start(archive("half_plus", files))
    assert "server.failed" in str(failure.value)
    for text in texts:
        assert text in str(failure.value)
    assert "tidemill_serving/handlers" not in str(failure.value)


def test_lib_wins_over_requirements_with_a_warning(start: Any, archive: Any) -> None:
    script = "import helper\ndef handler(data, context): return 'ok', 'text/plain'"
    files = {"code/inference.py": script, "code/lib/helper.py": "", "code/requirements.txt": "no-such-package-xyz"}
    server = start(archive("half_plus", files))
    assert "reason=code/lib has the packages" in server.line("handler.requirements_ignored")
    assert server.invoke("").body == b"ok"


def test_needed_packages_are_reported_without_running_code_or_variables_of_the_user(
    archive: Any, tmp_path: Path
) -> None:
    attack = "open({!r}, 'w')".format(str(tmp_path / "ran"))
    files = {"code/inference.py": attack, "code/requirements.txt": "some-package==1\n", "code/sitecustomize.py": attack}
    directory = archive("half_plus", files)
    read_fd, write_fd = os.pipe()
    variables = tmp_path / "variables.json"
    variables.write_text(json.dumps({"TIDEMILL_NEEDS_FD": str(write_fd), "PYTHONPATH": str(directory / "code")}))
    with variables.open("rb") as file:
        command = [sys.executable, "-I", "-m", "tidemill_serving", "--report-needs", "--model-dir", str(directory)]
        subprocess.run(
            [*command, "--kind", "tensorflow-serving", "--code-dir", "/none"],
            env={"TIDEMILL_VARIABLES_FD": str(file.fileno())},
            pass_fds=(file.fileno(), write_fd),
            check=True,
        )
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        assert json.load(pipe) == {"requirements": str(directory / "code/requirements.txt")}
    assert not (tmp_path / "ran").exists()


def test_workers_run_in_the_environment_that_the_starting_process_names(
    archive: Any, tmp_path: Path, start: Any
) -> None:
    venv.EnvBuilder(symlinks=True, with_pip=False).create(tmp_path)
    (packages,) = (tmp_path / "lib").glob("python*/site-packages")
    (packages / "below.pth").write_text(f"import site; site.addsitedir({site.getsitepackages()[0]!r})\n")
    script = "import sys\ndef handler(data, context): return sys.prefix, 'text/plain'"
    files = {"code/inference.py": script, "code/requirements.txt": "no-such-package-xyz"}
    given = {"TIDEMILL_ENVIRONMENT": str(tmp_path), "TIDEMILL_OVERLAY": str(tmp_path)}
    server = start(archive("half_plus", files), environment={**os.environ, **given})
    assert server.invoke("").body.decode() == str(tmp_path)


def test_packages_of_requirements_are_installed_for_the_workers(archive: Any, tmp_path: Path, start: Any) -> None:
    package = tmp_path / "package"
    (package / "tides").mkdir(parents=True)
    (package / "tides/__init__.py").write_text("NAME = 'spring'")
    setup = "from setuptools import setup\nsetup(name='tides', version='1', packages=['tides'])"
    (package / "setup.py").write_text(setup)
    script = "import tides\ndef handler(data, context): return tides.NAME, 'text/plain'"
    files = {"code/inference.py": script, "code/requirements.txt": str(package) + "\n"}
    environment = {**os.environ, "PIP_NO_BUILD_ISOLATION": "0", "TMPDIR": str(tmp_path)}
    server = start(archive("half_plus", files), environment=environment)
    assert server.invoke("").body == b"spring"
