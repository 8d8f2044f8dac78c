"""Flags about TensorFlow's sessions and about the method names of signatures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.core.protobuf import config_pb2, saved_model_pb2  # pyrefly: ignore[missing-import]

from tidemill_serving.engine import open_engine
from tidemill_serving.errors import StartFailed
from tidemill_serving.flags import read_flags
from tidemill_serving.options import ServerOptions, read_options

TWO_DEVICES = 'device_count { key: "CPU" value: 2 } intra_op_parallelism_threads: 3 inter_op_parallelism_threads: 2'


def options(*flags: str) -> ServerOptions:
    return read_options(read_flags(["--model_base_path=/models/half", *flags]).arguments(), {})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "session.pbtxt"
    file.write_text(TWO_DEVICES)
    return file


def test_a_session_has_what_its_file_says(config: Path, models: Path) -> None:
    made = options(f"--tensorflow_session_config_file={config}")
    engine = open_engine("c_api", parallelism=made.parallelism, session_config=made.session_config)
    model: Any = engine.load(models / "half_plus/123")
    assert model.session.num_devices == 2
    assert model.run(model.signatures["serving_default"], [np.ones(1, np.float32)], pooled=False)[0].tolist() == [2.5]
    assert open_engine("c_api").load(models / "half_plus/123").session.num_devices == 1  # type: ignore[attr-defined]


def test_flags_override_the_numbers_of_the_file(config: Path) -> None:
    file = f"--tensorflow_session_config_file={config}"
    alone = options(file).parallelism
    assert (alone.intra_op, alone.inter_op) == (3, 2)
    one = options(file, "--tensorflow_intra_op_parallelism=1").parallelism
    assert (one.intra_op, one.inter_op) == (1, 2)
    both = options(file, "--tensorflow_session_parallelism=4").parallelism
    assert (both.intra_op, both.inter_op) == (4, 4)
    config.write_text("gpu_options { per_process_gpu_memory_fraction: 0.25 allow_growth: true }")
    for flags, fraction in (((), 0.25), (("--per_process_gpu_memory_fraction=0.5",), 0.5)):
        read = config_pb2.ConfigProto.FromString(options(file, *flags).session_config)
        assert (read.gpu_options.per_process_gpu_memory_fraction, read.gpu_options.allow_growth) == (fraction, True)
    assert options().session_config == b""


@pytest.mark.parametrize(
    ("text", "flags", "reason"),
    [
        ("device_count {", (), "session.pbtxt: Error parsing text-format tensorflow.ConfigProto: "),
        ("intra_op_threads: 1", (), 'has no field named "intra_op_threads"'),
        ("inter_op_parallelism_threads: -1", (), "inter_op_parallelism_threads -1 and .* expected at least 0"),
        ("", ("--per_process_gpu_memory_fraction=1.5",), "per-process-gpu-memory-fraction 1.5: expected 0, .* to 1"),
    ],
)
def test_a_wrong_configuration_ends_the_start(config: Path, text: str, flags: tuple[str, ...], reason: str) -> None:
    config.write_text(text)
    with pytest.raises(StartFailed, match=reason):
        options(f"--tensorflow_session_config_file={config}", *flags)


def test_signatures_are_called_by_the_method_of_their_name_only(command: Any, base: Callable[..., Path]) -> None:
    directory = base(1, name="examples", source="examples/1")
    file = directory / "1/saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    signatures = saved.meta_graphs[0].signature_def
    signatures["regress"].method_name = "tensorflow/serving/regress"
    signatures["scores"].method_name = "another"
    file.write_bytes(saved.SerializeToString())
    checked = ("--enable_signature_method_name_check", "--host=127.0.0.1")
    server = command(f"--model_base_path={directory}", "--model_name=examples", *checked).start()

    def ask(verb: str, signature: str) -> Any:
        body = {"signature_name": signature, "examples": [{"decimal": 1.5, "whole": 2, "text": "tide"}]}
        return server.request("POST", f"/v1/models/examples:{verb}", body)

    assert ask("regress", "regress").json == {"results": [7.5]}
    for verb, signature, text in (
        (
            "classify",
            "classify",
            "Expected classification signature method_name to be tensorflow/serving/classify. Was:",
        ),
        (
            "regress",
            "regress_column",
            "Expected regression signature method_name to be tensorflow/serving/regress. Was:",
        ),
        ("classify", "scores", "Expected prediction signature method_name to be one of {tensorflow/serving/predict,"),
    ):
        answer = ask(verb, signature)
        assert answer.status == 400
        assert answer.error.startswith(text)
    assert "Was: another" in server.predict("examples", {"signature_name": "scores", "instances": [{"b64": ""}]}).error
    assert server.predict("examples", {"signature_name": "regress", "instances": [{"b64": ""}]}).status == 200
    assert server.terminate() == 0
