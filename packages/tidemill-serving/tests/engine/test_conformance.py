"""The contract of every engine, tested with real SavedModels. Both engines run in this one process."""

import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tidemill_serving._shared.native_build.compiling import CompileError, NativeSources
from tidemill_serving.engine import Engine, LoadedModel, native_call, open_engine
from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import Code, RequestError, StartFailed

DEFAULT = "serving_default"
TYPES: tuple[Any, ...] = (
    *(np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.bool_),
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
)


@pytest.fixture(scope="module", params=("native_calls", "calls_through_ctypes", "session"))
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine under test; the session engine imports TensorFlow into a process that already has its C library."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TensorFlow's own warnings
        if request.param == "calls_through_ctypes":
            patch.setattr(native_call, "find_library", no_library)
        engine = open_engine("c_api")
        assert ("; native calls (" in engine.description) == (request.param != "calls_through_ctypes")
        return open_engine("session") if request.param == "session" else engine


def no_library(sources: NativeSources) -> tuple[Path, str]:
    raise CompileError(f"no {sources.name}")


@pytest.fixture(scope="module")
def load(engine: Engine, models: Path) -> Iterator[Any]:
    """Yield a function that loads each model once for all tests of an engine."""
    loaded: dict[str, LoadedModel] = {}

    def load_model(path: str) -> LoadedModel:
        if path not in loaded:
            loaded[path] = engine.load(models / path)
        return loaded[path]

    yield load_model
    for model in loaded.values():
        model.close()


def run(model: LoadedModel, *feeds: Any, signature: str = DEFAULT, pooled: bool = False) -> list[np.ndarray]:
    return model.run(model.signatures[signature], [np.asarray(feed) for feed in feeds], pooled=pooled)


def strings(*values: bytes | str) -> np.ndarray:
    return np.array(values, dtype=object)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize("pooled", [False, True])
def test_variables_are_restored(load: Any, pooled: bool) -> None:
    (y,) = run(load("half_plus/123"), floats(1, 2, 5), pooled=pooled)
    assert (y.dtype, y.tolist()) == (np.float32, [2.5, 3.0, 4.5])


def test_several_inputs_and_outputs_go_by_the_order_of_their_names(load: Any) -> None:
    scaled, total = run(load("two_inputs/1"), floats(2, 3), np.array([[3, 4], [1, 1]], np.int32))
    assert (scaled.tolist(), total.tolist()) == ([14.0, 6.0], [7, 2])
    assert (scaled.dtype, total.dtype) == (np.float32, np.int32)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (), (0,), (2, 0, 3), (3, 400)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_arrays_of_every_type_and_shape_are_returned_unchanged(
    load: Any, dtype: "np.dtype[Any]", shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    views = [array, array.T, array[::-2]] if array.ndim else [array]
    for feed in views:
        (y,) = run(load("types/1"), feed, signature=np.dtype(dtype).name)
        assert (y.dtype, y.shape) == (feed.dtype, feed.shape)
        np.testing.assert_array_equal(y, feed)


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
def test_integers_keep_all_their_bits(load: Any, dtype: str) -> None:
    limits = np.iinfo(dtype)
    (y,) = run(load("types/1"), np.array([limits.min, limits.max], dtype), signature=dtype)
    assert y.tolist() == [limits.min, limits.max]


@pytest.mark.parametrize(
    "feed",
    [
        strings(b"", b"a\0b", b"\xff\xfe", b"x" * 22, b"y" * 23, b"z" * 100_000),
        np.array(b"scalar", dtype=object),
        np.array([[b"a", b"bc"], [b"", b"d"]], dtype=object).T,
        np.empty((0, 2), dtype=object),
    ],
    ids=["lengths", "scalar", "transposed", "empty"],
)
def test_strings_are_returned_as_bytes(load: Any, feed: np.ndarray) -> None:
    (y,) = run(load("types/1"), feed, signature="string")
    assert (y.dtype, y.shape) == (feed.dtype, feed.shape)
    assert y.tolist() == feed.tolist()


def test_text_is_fed_as_utf_8(load: Any) -> None:
    (y,) = run(load("types/1"), strings("grün", b"ebb"), signature="string")
    assert y.tolist() == ["grün".encode(), b"ebb"]


def test_tables_are_filled_from_assets(load: Any) -> None:
    for model in ("words/1", "legacy_table/1"):
        (found,) = run(load(model), strings(b"flow", b"tide", b"ebb"))
        assert found.tolist() == [1, -1, 0], model


def test_models_of_tensorflow_1_answer(load: Any) -> None:
    assert run(load("tensorflow_1/7"), [[np.float32(1)], [np.float32(2)]])[0].tolist() == [[2.5], [3.0]]
    assert run(load("frozen/1"), floats(2, 4))[0].tolist() == [6.0, 12.0]


def test_a_tensorflow_1_model_accepts_shapes_other_than_the_declared_one(load: Any) -> None:
    assert run(load("tensorflow_1/7"), floats(1, 2))[0].tolist() == [2.5, 3.0]


@pytest.mark.parametrize("name", ["mlp", "tf_keras"])
def test_models_of_keras_3_and_tf_keras_answer_as_in_training(load: Any, models: Path, name: str) -> None:
    known = np.load(models / f"{name}.npz")
    (answers,) = run(load(f"{name}/1"), known["rows"])
    np.testing.assert_allclose(answers, known["answers"], atol=1e-6)


def test_a_checkpoint_in_several_files_is_restored(load: Any) -> None:
    assert run(load("sharded/1"), np.array([0, 511], np.int32))[0].tolist() == [15.0, 511 * 6 + 15.0]


def test_memory_of_a_feed_that_a_model_keeps_stays_valid_after_the_run(load: Any) -> None:
    model = load("counter/1")
    kept = [b"long enough to lie on the heap", b"short"]
    run(model, strings(*kept), signature="keep")
    for turn in range(100):
        run(model, floats(turn)[0], signature="add")
    assert run(model, signature="read")[0].tolist() == kept


def test_a_run_sees_the_state_that_earlier_runs_left(load: Any) -> None:
    model = load("counter/1")
    (before,) = run(model, floats(0)[0], signature="add")
    (after,) = run(model, floats(2.5)[0], signature="add")
    assert after - before == 2.5


def test_a_result_is_not_changed_by_later_runs(load: Any) -> None:
    (first,) = run(load("types/1"), floats(1, 2, 3), signature="float32")
    for value in range(50):
        run(load("types/1"), floats(value, value, value), signature="float32")
    assert first.tolist() == [1.0, 2.0, 3.0]


def test_signatures_that_cannot_be_served_have_a_reason(load: Any) -> None:
    model = load("unusable/1")
    assert run(model, floats(1)).pop().tolist() == [1.0]
    assert "is a ragged tensor" in model.unusable["ragged"]
    assert "qint8 of input x has no JSON form" in model.unusable["qint8"]


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_complex_numbers_can_be_computed_but_not_written_as_json(load: Any, name: str) -> None:
    model = load("unusable/1")
    values = np.array([1 + 2j, -0.5j], name)
    (same,) = run(model, values, signature=name)
    assert (same.dtype, same.tolist()) == (values.dtype, values.tolist())
    assert f"{name} of input x has no JSON form" in model.signatures[name].json_fault
    assert model.signatures["complex_output"].json_fault.startswith("tensor type: complex64 of output y")


def test_the_initializer_is_not_a_signature(load: Any) -> None:
    model = load("words/1")
    assert list(model.signatures) == [DEFAULT]
    assert "__saved_model_init_op" in model.signature_defs


@pytest.mark.parametrize(
    ("model", "feeds", "text"),
    [
        ("checked/1", [floats(-1)], r"assertion failed: \[negative number"),
        ("two_inputs/1", [floats(1, 2, 3), np.ones((2, 2), np.int32)], r"Incompatible shapes: \[2\] vs. \[3\]"),
        ("half_plus/123", [np.array([1.0])], "to be float but double is provided|actual double vs. expect float"),
        ("half_plus/123", [strings(b"1")], "to be float but string is provided|actual string vs. expect float"),
    ],
    ids=["assertion", "shape", "type", "string"],
)
def test_failed_runs_have_tensorflows_code_and_text(load: Any, model: str, feeds: list[np.ndarray], text: str) -> None:
    with pytest.raises(RequestError, match=text) as failure:
        run(load(model), *feeds)
    assert failure.value.code is Code.INVALID_ARGUMENT


def test_a_model_answers_after_a_failed_run(load: Any) -> None:
    with pytest.raises(RequestError):
        run(load("checked/1"), floats(-1))
    assert run(load("checked/1"), floats(4))[0].tolist() == [2.0]


def test_types_and_shapes_are_those_of_the_graph_whatever_the_signature_declares(
    engine: Engine, models: Path, tmp_path: Path
) -> None:
    def lie(signature: Any) -> None:
        signature.inputs["x"].dtype = signature.outputs["root"].dtype = 7  # string
        signature.inputs["x"].tensor_shape.unknown_rank = True
        signature.outputs["root"].tensor_shape.dim.add(size=4)

    change_signature(models / "checked/1", tmp_path, lie)
    model = engine.load(tmp_path)
    specs = model.signatures[DEFAULT].inputs["x"], model.signatures[DEFAULT].outputs["root"]
    assert [(spec.dtype, spec.type_name, spec.shape) for spec in specs] == [(np.float32, "float", (-1,))] * 2
    assert run(model, floats(4, 9))[0].tolist() == [2.0, 3.0]
    assert {info.dtype for info in model.signature_defs[DEFAULT].inputs.values()} == {7}  # shown as it was saved


@pytest.mark.parametrize("tensor", ["absent:0", "serving_default_x:7", "serving_default_x:x", ":0"])
def test_a_signature_of_a_tensor_that_is_not_in_the_graph_cannot_be_served(
    engine: Engine, models: Path, tmp_path: Path, tensor: str
) -> None:
    change_signature(models / "checked/1", tmp_path, lambda signature: setattr(signature.inputs["x"], "name", tensor))
    reason = engine.load(tmp_path).unusable[DEFAULT]
    assert reason == f"input x: Tensor {tensor}, which the signature names, was not found in the graph"


def test_preparing_a_signature_runs_nothing(load: Any) -> None:
    model = load("kept/1")
    (before,) = run(model, floats(0), signature="tick")
    for signature in model.signatures.values():
        model.prepare(signature)
    assert run(model, floats(0), signature="tick")[0] == before + 1


def test_the_c_library_refuses_feeds_of_other_types_before_it_runs_an_operation(engine: Engine, load: Any) -> None:
    """`prepare` relies on this."""
    if engine.name == "session":
        pytest.skip("Python's Session prepares a call without feeds")
    model = load("kept/1")
    (before,) = run(model, floats(0), signature="tick")
    for pooled in (False, True):
        with pytest.raises(RequestError, match=r"Expects arg\[0\] to be float but int32 is provided"):
            run(model, np.zeros(0, np.int32), signature="tick", pooled=pooled)
    assert run(model, floats(0), signature="tick")[0] == before + 1


def test_traits_tell_effects_and_loops_of_each_signature(load: Any) -> None:
    traits = {key: signature.traits for key, signature in load("kept/1").signatures.items()}
    assert {key for key, each in traits.items() if each.has_effects} == {"train", "tick", "draw"}
    assert {key for key, each in traits.items() if each.has_loops} == {"grow"}
    assert {key for key, each in traits.items() if each.is_small} == {DEFAULT}
    for path in ("words/1", "legacy_table/1", "tensorflow_1/7", "checked/1", "spin/1", "keras_objects/1", "types/1"):
        assert not any(signature.traits.has_effects for signature in load(path).signatures.values()), path


def test_a_model_of_keras_3_saved_as_an_object_answers_as_in_python(load: Any, models: Path) -> None:
    known = np.load(models / "keras_objects.npz")
    (answers,) = run(load("keras_objects/1"), known["rows"])
    np.testing.assert_allclose(answers, known["answers"], atol=1e-6)


def test_a_model_whose_variables_nothing_restores_is_refused_with_advice(
    engine: Engine, models: Path, tmp_path: Path
) -> None:
    shutil.copytree(models / "keras_objects/1", tmp_path, dirs_exist_ok=True)
    saved = open_wheel().saved_model.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    saved.meta_graphs[0].ClearField("object_graph_def")
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(
        StartFailed,
        match=r"variables batch_normalization/beta, \S+, \S+, \.\.\. have no value .* by model\.export\(DIRECTORY\)",
    ) as failure:
        engine.load(tmp_path)
    assert str(failure.value).startswith(f"{tmp_path} cannot be served: the variables ")


def test_a_variable_that_a_signature_assigns_needs_no_restoring(engine: Engine, models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "counter/1", tmp_path, dirs_exist_ok=True)
    saved = open_wheel().saved_model.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    saved.meta_graphs[0].saver_def.restore_op_name = "NoOp"
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    model = engine.load(tmp_path)
    assert run(model, strings(b"kept"), signature="keep")[0].tolist() == [b"kept"]


def test_a_damaged_saved_model_is_named(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xffnot a protobuf")
    with pytest.raises(StartFailed, match=f"{tmp_path}/saved_model.pb is not a SavedModel"):
        engine.load(tmp_path)


def test_a_directory_without_a_saved_model_is_named(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=f"{tmp_path}/saved_model.pb cannot be read: .*No such file"):
        engine.load(tmp_path)


def test_a_saved_model_without_a_serving_graph_is_refused(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(StartFailed, match=r"has no graph tagged \['serve'\], only \[\]"):
        engine.load(tmp_path)


def test_damaged_variables_are_reported_with_the_path(engine: Engine, tmp_path: Path, models: Path) -> None:
    shutil.copytree(models / "half_plus/123", tmp_path, dirs_exist_ok=True)
    (tmp_path / "variables/variables.index").write_bytes(b"damaged")
    with pytest.raises(StartFailed, match=f"TensorFlow cannot load {tmp_path}"):
        engine.load(tmp_path)


def test_an_operation_that_tensorflow_does_not_have_is_named(engine: Engine, tmp_path: Path, models: Path) -> None:
    saved = open_wheel().saved_model.SavedModel.FromString((models / "frozen/1/saved_model.pb").read_bytes())
    next(node for node in saved.meta_graphs[0].graph_def.node if node.op == "Mul").op = "TidemillAbsent"
    (tmp_path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(StartFailed, match=f"TensorFlow cannot load {tmp_path}: .*TidemillAbsent"):
        engine.load(tmp_path)


def test_several_models_answer_in_one_process_and_one_may_be_closed(engine: Engine, models: Path) -> None:
    first, second = engine.load(models / "half_plus/123"), engine.load(models / "half_plus/00000124")
    assert (run(first, floats(2))[0].tolist(), run(second, floats(2))[0].tolist()) == ([3.0], [4.0])
    first.close()
    assert run(second, floats(2))[0].tolist() == [4.0]
    second.close()


@pytest.mark.parametrize(
    ("path", "shares"),
    [
        *[(path, True) for path in ("half_plus/123", "mlp/1", "tf_keras/1", "keras_objects/1")],
        ("sharded/1", False),  # reads rows directly from a variable
        ("tensorflow_1/7", False),
        *[(path, False) for path in ("frozen/1", "words/1", "legacy_table/1")],  # no variables
    ],
)
def test_a_second_session_answers_as_the_first_one_and_may_be_closed(
    engine: Engine, load: Any, models: Path, path: str, shares: bool
) -> None:
    model = load(path)
    known = models / f"{path.partition('/')[0]}.npz"
    feeds: dict[str, Any] = {"sharded/1": np.array([0, 511], np.int32), "tensorflow_1/7": [[np.float32(1)]]}
    feeds |= dict.fromkeys(("words/1", "legacy_table/1"), strings(b"flow", b"ebb"))
    feed = np.load(known)["rows"] if known.exists() else feeds.get(path, floats(2, 4))
    (expected,) = run(model, feed)
    assert engine.shares_variables(model) is (shares and engine.name == "c_api")
    twin = engine.load(models / path, twin_of=model)
    for each in (twin, model, twin):
        np.testing.assert_array_equal(run(each, feed)[0], expected)
    twin.close()
    np.testing.assert_array_equal(run(model, feed)[0], expected)


def test_threads_run_one_model_at_the_same_time(load: Any) -> None:
    model = load("two_inputs/1")
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(200):
            scaled, total = run(model, floats(number, turn), np.full((2, 2), number, np.int32))
            expected = [2.0 * number * number, 2.0 * number * turn]
            if scaled.tolist() != expected or total.tolist() != [2 * number] * 2:
                wrong.append((number, turn, scaled, total))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_python_while_a_model_runs(load: Any) -> None:
    model = load("spin/1")
    run(model, np.int32(1))
    ends: list[float] = []

    def spin() -> None:
        run(model, np.int32(2000))
        ends.append(time.monotonic())

    thread = threading.Thread(target=spin)
    thread.start()
    turns = 0
    while not ends:
        turns += 1
        time.sleep(0)
    thread.join()
    assert turns > 1000  # the GIL was released; otherwise the loop would turn once or twice


def change_signature(source: Path, target: Path, change: Any) -> None:
    """Copy a SavedModel, and change its default signature with a function."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    saved = open_wheel().saved_model.SavedModel.FromString((source / "saved_model.pb").read_bytes())
    change(saved.meta_graphs[0].signature_def[DEFAULT])
    (target / "saved_model.pb").write_bytes(saved.SerializeToString())
