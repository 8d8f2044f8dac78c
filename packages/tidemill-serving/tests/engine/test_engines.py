"""Both engines load the same models and give the same answers."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tidemill_serving.engine import Parallelism, open_engine
from tidemill_serving.engine.placement import measure
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import Code, RequestError, StartFailed

ENGINE_SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from tidemill_serving.engine import open_engine
from tidemill_serving.errors import RequestError

models, name = Path(sys.argv[1]), sys.argv[2]
open_engine("binding")  # so that the session engine has to undo what this one did to TensorFlow's import
engine = open_engine(name)

def run(path, signature, *feeds):
    model = engine.load(models / path)
    try:
        outputs = model.run(model.signatures[signature], list(feeds), pooled=False)
        texts = lambda a: [v.decode("latin-1") for v in a.ravel()]
        return [[str(a.dtype), texts(a) if a.dtype == object else a.tolist()] for a in outputs]
    except RequestError as error:
        return error.code.name
    finally:
        model.close()

mlp = np.load(models / "mlp.npz")
words = np.array([b"flow", b"tide"], dtype=object)
print(json.dumps({
    "linear": run("half_plus/123", "serving_default", np.array([1, 2, 5], np.float32)),
    "two": run("two_inputs/1", "serving_default", np.array([2], np.float32), np.array([[3, 4]], np.int32)),
    "text": run("text/1", "serving_default", np.array([b"a\\xff"], dtype=object)),
    "words": run("words/1", "serving_default", words),
    "tensorflow_1": run("tensorflow_1/7", "serving_default", np.array([[1], [2]], np.float32)),
    "other_shape": run("tensorflow_1/7", "serving_default", np.array([1, 2], np.float32)),
    "mlp": run("mlp/1", "serving_default", mlp["rows"]),
    "wrong_type": run("half_plus/123", "serving_default", np.array([1.0])),
    "scalar_text": run("types/1", "string_0", np.array(b"a\\0", dtype=object)),
    "scalar_truth": run("types/1", "bool_0", np.array(True)),
    "negative": run("checked/1", "serving_default", np.array([-1], np.float32)),
}))
"""


@pytest.fixture(scope="module")
def answers(models: Path) -> dict[str, dict]:
    """What each engine, in a process of its own, answers."""
    import json

    collected = {}
    for name in ("binding", "session"):
        command = [sys.executable, "-c", ENGINE_SCRIPT, str(models), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        collected[name] = json.loads(done.stdout)
    return collected


def test_the_engines_agree(answers: dict[str, dict]) -> None:
    binding, session = answers["binding"], answers["session"]
    assert binding.keys() == session.keys()
    for key in binding.keys() - {"mlp"}:
        assert binding[key] == session[key], key
    np.testing.assert_allclose(binding["mlp"][0][1], session["mlp"][0][1], atol=1e-6)


def test_answers_are_right(answers: dict[str, dict], models: Path) -> None:
    binding = answers["binding"]
    assert binding["linear"] == [["float32", [2.5, 3.0, 4.5]]]
    assert binding["two"] == [["float32", [14.0]], ["int32", [7]]]
    assert binding["text"] == [["int32", [2]], ["object", ["aÿ"]], ["object", ["aÿ"]]]
    assert binding["words"] == [["int64", [1, -1]]]
    assert binding["tensorflow_1"] == [["float32", [[2.5], [3.0]]]]
    np.testing.assert_allclose(binding["mlp"][0][1], np.load(models / "mlp.npz")["answers"], atol=1e-6)


def test_scalars_are_arrays_of_the_declared_type(answers: dict[str, dict]) -> None:
    assert answers["binding"]["scalar_text"] == [["object", ["a\0"]]]
    assert answers["binding"]["scalar_truth"] == [["bool", True]]


def test_a_signature_that_declares_other_types_than_the_model_returns_is_refused(models: Path, tmp_path: Path) -> None:
    engine = open_engine("binding")
    source = models / "checked/1/saved_model.pb"
    saved = open_wheel().saved_model.SavedModel.FromString(source.read_bytes())
    saved.meta_graphs[0].signature_def["serving_default"].outputs["root"].dtype = 3  # DT_INT32
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    model = engine.load(tmp_path)
    with pytest.raises(RequestError, match=r"{.root.: .int32.}, but the model returned {.root.: .float32.}") as error:
        model.run(model.signatures["serving_default"], [np.array([4], np.float32)], pooled=False)
    assert error.value.http_status == 400


def test_a_tensorflow_1_model_takes_shapes_other_than_the_declared_one(answers: dict[str, dict]) -> None:
    assert answers["binding"]["other_shape"] == [["float32", [2.5, 3.0]]]


def test_a_failed_run_has_the_status_code_of_tensorflow(answers: dict[str, dict]) -> None:
    assert answers["binding"]["wrong_type"] == "INVALID_ARGUMENT"
    assert answers["binding"]["negative"] == "INVALID_ARGUMENT"


def test_tensorflow_is_not_imported_by_the_binding_engine(models: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tidemill_serving.engine import open_engine;"
        "open_engine('binding').load(Path(sys.argv[1]));"
        "print([name for name in ('keras', 'pandas', 'tensorflow.python.framework.ops') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(models / "half_plus/123")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
    assert done.stderr == ""


def test_a_damaged_saved_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xffnot a protobuf")
    with pytest.raises(StartFailed, match="is not a SavedModel"):
        open_engine("binding").load(tmp_path)


def test_a_saved_model_without_a_serving_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(StartFailed, match=r"has no graph tagged \['serve'\], only \[\]"):
        open_engine("binding").load(tmp_path)


def test_damaged_variables_are_reported_with_the_path(tmp_path: Path, models: Path) -> None:
    (tmp_path / "variables").mkdir()
    source = models / "half_plus/123"
    (tmp_path / "saved_model.pb").write_bytes((source / "saved_model.pb").read_bytes())
    (tmp_path / "variables/variables.index").write_bytes(b"damaged")
    with pytest.raises(StartFailed, match=f"TensorFlow cannot load {tmp_path}"):
        open_engine("binding").load(tmp_path)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(StartFailed, match="'tfs' is not one of auto, binding, session"):
        open_engine("tfs")


def test_signatures_say_whether_rows_may_share_a_run(models: Path) -> None:
    engine = open_engine("binding", parallelism=Parallelism(inter_op=1, intra_op=1))
    batchable = {
        name: engine.load(models / name).signatures["serving_default"].batchable
        for name in ("half_plus/123", "two_inputs/1", "spin/1", "mlp/1")
    }
    assert batchable == {"half_plus/123": True, "two_inputs/1": True, "spin/1": False, "mlp/1": True}


def test_a_model_with_loops_or_one_that_takes_no_blanks_is_placed_on_a_thread(models: Path) -> None:
    engine = open_engine("binding")
    small = engine.load(models / "half_plus/123")
    assert measure(small, small.signatures["serving_default"]).one_row_s is not None
    looping = engine.load(models / "spin/1")
    assert not measure(looping, looping.signatures["serving_default"]).on_loop
    parsing = engine.load(models / "tensorflow_1/7")
    placement = measure(parsing, parsing.signatures["regress"])
    assert (placement.on_loop, placement.one_row_s) == (False, None)


def test_the_initialiser_is_no_signature(models: Path) -> None:
    model = open_engine("binding").load(models / "words/1")
    assert list(model.signatures) == ["serving_default"]
    assert "__saved_model_init_op" in model.signature_defs


def test_a_run_may_be_spread_over_threads(models: Path) -> None:
    model = open_engine("binding").load(models / "two_inputs/1")
    feeds = [np.array([2], np.float32), np.array([[3, 4]], np.int32)]
    for pooled in (False, True):
        scaled, total = model.run(model.signatures["serving_default"], feeds, pooled=pooled)
        assert (scaled.tolist(), total.tolist()) == ([14.0], [7])


def test_error_codes_keep_their_http_status() -> None:
    assert RequestError(Code.of(5), "gone").http_status == 404
    assert Code.of(99) is Code.UNKNOWN
