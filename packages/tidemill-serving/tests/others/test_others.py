"""Models as other people write them answer as in Python's TensorFlow: a few of those of ``make matrix-models``."""

from pathlib import Path
from typing import Any

from comparison import Recorded, compare

Server = Any  # a ServerProcess of conftest.py


def test_models_of_others_answer_as_in_python_by_each_protocol(server: Server, models: Path) -> None:
    ways: dict[str, set[str]] = {}
    for file in sorted((models / "others").glob("*.npz")):
        ways[file.stem] = set(compare(server, Recorded.read(file)))
    rows = {"gRPC", "JSON columns", "JSON rows"}
    assert ways == {
        "MobileNet": {*rows, "npy"},
        "bidirectional": {*rows, "npy"},
        "encoder": {*rows, "npy"},
        "module_examples": rows,
        "structured": rows,
        "module_tables": rows,
        "text_classifier": rows,
        "module_types": {"gRPC", "JSON columns"},  # one of its outputs has no rows
    }
