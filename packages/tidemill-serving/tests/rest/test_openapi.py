"""The document of the API and the example requests in the log: sent as they are to the models they are made from."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tensorflow.core.protobuf.saved_model_pb2 import SavedModel  # pyrefly: ignore[missing-import]

DEADLINE_S = 60
JSON = "application/json"
HOSTILE = 'it\'s "$(exit 1)" `exit 1`; # \\ \n{é}'

FEATURE = "(data type: float) is required but could not be found"
NOT_IN_SIGNATURES = {
    **{(f"classifier:{verb}", "serving_default"): FEATURE for verb in ("predict", "classify")},
    **{(f"regressor:{verb}", "serving_default"): FEATURE for verb in ("predict", "regress")},
    ("module_examples:predict", "serving_default"): FEATURE,
    ("tensorflow_1:regress", "regress"): FEATURE,
    **{("tensorflow_1:predict", key): FEATURE for key in ("classify", "labels", "regress")},
    **{("tensorflow_1:classify", key): FEATURE for key in ("classify", "labels")},
    **{
        (f"half_plus_three:{verb}", key.format(method)): FEATURE
        for method in ("classify", "regress")
        for verb in ("predict", method)
        for key in ("{}_x_to_y", "tensorflow/serving/{}")
    },
    ("examples:predict", "two"): "Could not parse example input",
    **{("examples:classify", key): "Expected Tensor shape: [batch_size num_classes]" for key in ("flat", "uneven")},
    **{("examples:regress", f"regress_{key}"): "Expected output Tensor shape to be" for key in ("mean", "wide")},
    ("no_rows:predict", "uneven"): "Tensor name: rest has inconsistent batch size: 0 expecting: 1",
}
"""Methods and signatures that want more than names, types and shapes say, with the error that says what."""


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value fits a schema, for the keywords of the document."""
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "integer": int,
        "number": (int, float),
    }
    for keyword, wanted in schema.items():
        if not {
            "type": lambda kind: isinstance(value, kinds[kind]) and isinstance(value, bool) == (kind == "boolean"),
            "properties": lambda each: all(fits(value[key], each[key]) for key in value.keys() & each.keys()),
            "required": lambda keys: all(key in value for key in keys),
            "additionalProperties": lambda _false: value.keys() <= schema["properties"].keys(),
            "items": lambda item: all(fits(each, item) for each in value),
            "prefixItems": lambda items: all(map(fits, value, items)),
            "minItems": lambda size: len(value) >= size,
            "maxItems": lambda size: len(value) <= size,
            "minimum": lambda least: value >= least,
            "maximum": lambda most: value <= most,
            "anyOf": lambda choices: any(fits(value, each) for each in choices),
            "const": lambda constant: value == constant,
            "enum": lambda choices: value in choices,
            **dict.fromkeys(("description", "title", "contentEncoding"), lambda _text: True),
        }[keyword](wanted):
            return False
    return True


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def examples(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield path, key and body of each example request."""
    for path, _, operation in operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
        for key, example in content.get("examples", {}).items():
            yield path, key, example["value"]


def check_form(document: dict[str, Any]) -> None:
    """Check what OpenAPI 3.1 asks for: versions, answers, references and parameters of paths."""
    assert document["openapi"] == "3.1.0"
    assert document["info"].keys() >= {"title", "version"}
    responses = document["components"]["responses"]
    used = set()
    for path, method, operation in operations(document):
        assert path.startswith("/")
        assert method in ("get", "post", "delete")
        assert operation["responses"]["200"]["description"]
        named = {each["name"] for each in document["paths"][path].get("parameters", ()) if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        refs = [each["$ref"] for each in operation["responses"].values() if "$ref" in each]
        used |= {ref.removeprefix("#/components/responses/") for ref in refs}
    assert used == responses.keys()
    assert {json.dumps(each["content"][JSON]["schema"]) for each in responses.values()} == {
        '{"$ref": "#/components/schemas/Error"}'
    }
    assert "Retry-After" in responses["Overloaded"]["headers"]


def run(command: str, directory: Path) -> tuple[int, Any]:
    """Paste a command into a shell; return the status and the body of the answer."""
    (directory / ".curlrc").write_text('silent\nwrite-out = "\\n%{http_code}"\n')
    ran = subprocess.run(
        ["sh", "-c", command],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_S,
        cwd=directory,
        env={**os.environ, "CURL_HOME": str(directory)},
    )
    body, _, status = ran.stdout.rpartition("\n")
    return int(status), json.loads(body)


def logged(log: list[str]) -> dict[str, str]:
    """Return the commands of the log by model."""
    found = {}
    for line in log:
        if line.startswith("model.example name="):
            fields, _, command = line.partition(" command=")
            found[fields.removeprefix("model.example name=").rpartition(" version=")[0]] = command
    return found


def test_each_example_of_the_document_is_answered_by_its_model(server: Any) -> None:
    document = server.get("/openapi.json").json
    check_form(document)
    asked, refused = set(), {}
    for path, key, body in examples(document):
        if "/versions/" in path and "/half_plus/" not in path:
            continue
        if path.startswith("/v1/models/kept"):
            continue  # other tests count what its signatures have changed
        operation = document["paths"][path]["post"]
        assert fits(body, operation["requestBody"]["content"][JSON]["schema"]), (path, body)
        answer = server.request("POST", path, json.dumps(body), {"Content-Type": JSON})
        target = unquote(path).removeprefix("/v1/models/")
        asked.add((target, key))
        if answer.status == 200:
            assert fits(answer.json, operation["responses"]["200"]["content"][JSON]["schema"]), (path, answer.json)
        else:
            assert fits(answer.json, document["components"]["schemas"]["Error"])
            refused[target, key] = answer.error
    assert refused.keys() == NOT_IN_SIGNATURES.keys(), refused
    assert all(NOT_IN_SIGNATURES[each] in error for each, error in refused.items()), refused
    assert asked >= {
        *(("half_plus:predict", "serving_default"), ("half_plus/versions/123:predict", "serving_default")),
        *(("two_inputs:predict", "serving_default"), ("text:predict", "serving_default")),
        *(("spin:predict", "serving_default"), ("no_rows:predict", "scalar"), ("types:predict", "bool_4")),
        *(("examples:regress", "regress_whole"), ("examples:classify", "scores"), ("/invocations", "default model")),
    }


def test_schemas_refuse_what_the_model_refuses(server: Any) -> None:
    document = server.get("/openapi.json").json
    for model, body in (
        ("two_inputs", {"instances": [{"a": 1.0}]}),
        ("two_inputs", {"inputs": {"a": [1.0], "b": [[1, 2.5]]}}),
        ("text", {"inputs": [1]}),
        ("types", {"instances": [1]}),
        ("mixed", {"instances": [{"counts": [1], "flag": 1, "name": "a"}]}),
        ("spin", {"instances": [1]}),
    ):
        schema = document["paths"][f"/v1/models/{model}:predict"]["post"]["requestBody"]["content"][JSON]["schema"]
        assert not fits(body, schema), (model, body)
        assert server.predict(model, body).status == 400


def test_each_command_of_the_log_is_answered_by_its_model(server: Any, tmp_path: Path) -> None:
    commands = logged(server.log)
    document = server.get("/openapi.json").json
    described = {unquote(path.removeprefix("/v1/models/")) for path in document["paths"] if path.count("/") == 3}
    assert {name for name in described if not set(name) & {":", "/"}} == commands.keys()
    assert commands["half_plus"] == (
        f"curl -d '{{\"instances\": [0.5]}}' http://127.0.0.1:{server.port}/v1/models/half_plus:predict"
    )
    assert commands["MobileNet"].startswith("python3 -c ")
    refused = {name for name, command in commands.items() if run(command, tmp_path)[0] != 200}
    assert refused == {"classifier", "regressor", "module_examples"}
    status, answer = run(commands["regressor"], tmp_path)
    assert (status, "Feature: inputs" in answer["error"]) == (400, True)


def with_hostile_names(model: Path, directory: Path, *, renamed_input: str) -> None:
    """Copy a model, with hostile names of one of its inputs and of its only signature."""
    hidden = directory.with_name("." + directory.name)
    shutil.copytree(model, hidden)
    saved = SavedModel.FromString((hidden / "saved_model.pb").read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    renamed = signatures[HOSTILE]
    renamed.CopyFrom(signatures["serving_default"])
    renamed.inputs[HOSTILE].CopyFrom(renamed.inputs[renamed_input])
    del renamed.inputs[renamed_input], signatures["serving_default"]
    (hidden / "saved_model.pb").write_bytes(saved.SerializeToString())
    hidden.rename(directory)


def test_a_later_version_is_shown_if_it_asks_for_another_request(start: Any, models: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    shutil.copytree(models / "half_plus/123", base / "1")
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "half" base_path: "{base}" model_platform: "tensorflow"'
        ' model_version_policy { all {} } version_labels { key: "old one" value: 1 } } }'
    )
    flags = (f"--model_config_file={config}", "--file_system_poll_wait_seconds=0.05", "--host=0.0.0.0")
    server = start(
        tmp_path, arguments=(*flags, "--rest_api_enable_cors_support", "--allow_version_labels_for_unavailable_models")
    )
    url = f"http://127.0.0.1:{server.port}/v1/models/half:predict"
    assert logged(server.log) == {"half": f"curl -d '{{\"instances\": [0.5]}}' {url}"}
    answer = server.get("/openapi.json")
    assert answer.headers["access-control-allow-origin"] == "*"
    check_form(answer.json)
    paths = answer.json["paths"]
    assert {path for path in paths if path.endswith(":predict")} == {
        *("/v1/models/half:predict", "/v1/models/half/versions/1:predict"),
        "/v1/models/half/labels/old%20one:predict",
    }
    assert "/invocations" not in paths
    assert "/monitoring/prometheus/metrics" in paths
    for path, _, body in examples(answer.json):
        assert server.request("POST", path, body).json == {"predictions": [2.25]}

    for version, source, name in ((2, "half_plus/123", "x"), (3, "half_plus/00000124", "x"), (4, "two_inputs/1", "a")):
        with_hostile_names(models / source, base / str(version), renamed_input=name)
        server.line("model.loaded", f"version={version}")
    server.line("model.example", "version=4")
    shown = [each for each in server.log if each.startswith("model.example")]
    assert [each.partition(" command=")[0] for each in shown] == [
        f"model.example name=half version={version}" for version in (1, 2, 4)
    ]
    answers = [{"predictions": [0.25 + 2]}, {"predictions": [{"scaled": 1.0, "total": 2}]}]
    assert run(shown[2].partition(" command=")[2], tmp_path) == (200, answers[1])
    document = server.get("/openapi.json").json
    found = [(path, key, body) for path, key, body in examples(document) if path.endswith("versions/2:predict")]
    ((path, key, body),) = found
    assert (key, body) == (HOSTILE, {"signature_name": HOSTILE, "instances": [0.5]})
    assert server.request("POST", path, body).json == answers[0]
    assert server.terminate() == 0


def test_commands_for_a_unix_socket_and_hostile_names_of_models(
    server_process: type[Any], models: Path, tmp_path: Path
) -> None:
    name = "it's $(exit 1) é {x} 100% ?#"
    shutil.copytree(models / "two_inputs", tmp_path / "models" / name)
    path = tmp_path / "a 'socket"

    class OnSocket(server_process):
        def command(self) -> list[str]:
            port = super().command().index("--port")
            return [*super().command()[:port], *super().command()[port + 2 :]]

    server = OnSocket(tmp_path / "models", unix_socket=path)
    server.launch()
    try:
        server.line("server.ready")
        ((shown, command),) = logged(server.log).items()
        assert shown == name
        assert shlex.split(command)[:3] == ["curl", "--unix-socket", str(path)]
        assert run(command, tmp_path) == (200, {"predictions": [{"scaled": 1.0, "total": 2}]})
        document = server.request("GET", "/openapi.json", unix=True).json
        check_form(document)
        for target, _, body in examples(document):
            answer = server.request("POST", target, json.dumps(body), {"Content-Type": JSON}, unix=True)
            assert answer.json == {"predictions": [{"scaled": 1.0, "total": 2}]}, target
        assert server.terminate() == 0
    finally:
        server.process.kill()
        server.process.wait()
