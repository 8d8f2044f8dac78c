"""Decide whether models need more than one thread inside an operation.

TensorFlow fixes the number of threads when it starts, before a model can be loaded and measured. So the traits of the
graphs decide.
"""

from collections.abc import Sequence
from pathlib import Path

from tidemill_serving.engine.saved_model import read_meta_graph
from tidemill_serving.engine.traits import is_small
from tidemill_serving.engine.wheel import Wheel, open_wheel


def suffices_one_thread(paths: Sequence[Path]) -> bool:
    """Return whether all these SavedModels are small dense networks.

    Raises:
        StartFailed: A SavedModel cannot be read, or TensorFlow is not installed.
    """
    try:
        wheel = open_wheel()
    except ImportError:
        return False
    return all(_is_small_model(path, wheel) for path in paths)


def _is_small_model(path: Path, wheel: Wheel) -> bool:
    meta_graph = read_meta_graph(path, wheel=wheel)
    signatures = meta_graph.signature_def.values()
    outputs = [output.name for signature in signatures for output in signature.outputs.values()]
    return is_small(outputs, meta_graph.graph_def)
