"""The models that run with one thread inside operations."""

from pathlib import Path
from typing import Any

import pytest

from tidemill_serving.engine import suffices_one_thread
from tidemill_serving.engine.wheel import open_wheel


@pytest.mark.parametrize(
    ("model", "suffices"),
    [("half_plus/123", True), ("mlp/1", True), ("spin/1", False), ("text/1", False), ("words/1", False)],
)
def test_only_small_dense_networks_run_with_one_thread(models: Path, model: str, suffices: bool) -> None:
    assert suffices_one_thread([models / model]) is suffices
    assert suffices_one_thread([models / "half_plus/123", models / model]) is suffices


@pytest.mark.parametrize(("weights", "suffices"), [((1000, 1000), True), ((2000, 2000), False), ((-1, 4), False)])
def test_large_networks_keep_all_threads(tmp_path: Path, weights: tuple[int, ...], suffices: bool) -> None:
    saved = open_wheel().saved_model.SavedModel()
    graph = saved.meta_graphs.add()
    graph.meta_info_def.tags.append("serve")
    graph.signature_def["serving_default"].outputs["y"].name = "call:0"
    nodes = graph.graph_def.node
    variable = nodes.add(name="w", op="VarHandleOp")
    for size in weights:
        variable.attr["shape"].shape.dim.add(size=size)
    call = nodes.add(name="call", op="StatefulPartitionedCall", input=["x", "w", "^unrelated"])
    call.attr["f"].func.name = "f"
    nodes.add(name="x", op="Placeholder")
    nodes.add(name="unrelated", op="NoOp")
    nodes.add(name="save", op="SaveV2")
    function = graph.graph_def.library.function.add()
    function.signature.name = "f"
    function.node_def.add(name="product", op="MatMul")
    assert suffices_one_thread([write(tmp_path, saved)]) is suffices
    function.node_def.add(name="other", op="Conv2D")
    assert not suffices_one_thread([write(tmp_path, saved)])


def write(directory: Path, saved: Any) -> Path:
    (directory / "saved_model.pb").write_bytes(saved.SerializeToString())
    return directory


def test_the_number_of_threads_is_logged_and_a_setting_overrides_it(models: Path, start: Any) -> None:
    assert "SAGEMAKER_TFS_INTRA_OP_PARALLELISM" in start(models / "half_plus").line("engine.one_thread")
    by_variable = {"environment": {"SAGEMAKER_TFS_INTRA_OP_PARALLELISM": "2"}}
    for settings in (by_variable, {"arguments": ("--tensorflow_intra_op_parallelism=2",)}):
        server = start(models / "half_plus", **settings)
        assert not [line for line in server.log if line.startswith("engine.one_thread")]
