"""Digests that are equal for equal graphs in different processes."""

from __future__ import annotations

import hashlib
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_NUMBERS = re.compile(r"_\d+|(?<![\w.:])\d+")
"""Numbers in names, and names that are numbers, as functions give them to variables without a name."""
_OF_PROCESS = frozenset({"_gradient_op_type", "_class", "_output_shapes", "_user_specified_name"})
"""Attributes that differ from process to process, or that follow from others."""


def fingerprint(graph_def: GraphDef) -> str:
    """Return a digest of a graph with its loops and branches. Numbers in node and function names do not count."""
    digest = hashlib.sha256()
    for node in graph_def.node:
        _add(digest, node)
    # By their content, too: names that differ in numbers alone have another order in each process.
    for name, content in sorted(map(_of_function, graph_def.library.function)):
        digest.update(f"{name} {content}".encode())
    return digest.hexdigest()


def machine() -> str:
    """Return what step times depend on besides the graph: TensorFlow's build, the processor model, the CPU count."""
    import os

    model = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{tf.version.VERSION} {tf.version.GIT_VERSION} {model} {len(os.sched_getaffinity(0))}"


def _of_function(function: FunctionDef) -> tuple[str, str]:
    digest = hashlib.sha256()
    for node in function.node_def:
        _add(digest, node)
    return _neutral(function.signature.name), digest.hexdigest()


def _add(digest: hashlib._Hash, node: NodeDef) -> None:
    names = [_neutral(name) for name in node.input]
    # The order of control inputs differs from process to process.
    names.sort(key=lambda name: name if name.startswith("^") else "")
    digest.update(f"{_neutral(node.name)} {node.op} {names}".encode())
    for key in sorted(node.attr.keys() - _OF_PROCESS):
        value = node.attr[key]
        names = [value.func.name, *(each.name for each in value.list.func)]
        text = _neutral(" ".join(names)).encode() if any(names) else value.SerializeToString(deterministic=True)
        digest.update(key.encode() + text)


def _neutral(name: str) -> str:
    return _NUMBERS.sub("_", name)
