"""The models whose operations always run on one thread each."""

from pathlib import Path

import pytest

from tidemill_serving.engine.saved_model import read_meta_graph
from tidemill_serving.engine.traits import is_small_model
from tidemill_serving.engine.wheel import open_wheel


@pytest.mark.parametrize(
    ("model", "suffices"),
    [("half_plus/123", True), ("mlp/1", True), ("spin/1", False), ("text/1", False), ("words/1", False)],
)
def test_only_small_dense_networks_run_with_one_thread(models: Path, model: str, suffices: bool) -> None:
    assert is_small_model(read_meta_graph(models / model, wheel=open_wheel(), tags=["serve"])) is suffices


@pytest.mark.parametrize(("weights", "suffices"), [((1000, 1000), True), ((2000, 2000), False), ((-1, 4), False)])
def test_large_networks_keep_all_threads(weights: tuple[int, ...], suffices: bool) -> None:
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
    assert is_small_model(saved.meta_graphs[0]) is suffices
    function.node_def.add(name="other", op="Conv2D")
    assert not is_small_model(saved.meta_graphs[0])
