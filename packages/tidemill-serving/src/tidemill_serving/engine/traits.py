"""What the graph of a signature tells about its runs, without a run.

A few traits decide where a signature may run and whether requests may share a run: see `placement` and `batching`.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill_serving.engine.graph import nodes_behind

_DT_RESOURCE = 20  # of the enumeration DataType
_MAX_WEIGHTS = 2_000_000  # 32 rows then take about a millisecond of one core
_LOOPS = frozenset({"While", "StatelessWhile", "Enter", "RefEnter"})
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
# Without Reshape, which turns the positions of a sequence into rows, so that one request has many.
# fmt: off
_DENSE_OPS = _CALLS | _VARIABLES | {
    "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ConcatV2", "Const", "Elu", "Erf", "Erfc", "Exp", "ExpandDims",
    "Identity", "IdentityN", "LeakyRelu", "Log", "Log1p", "LogSoftmax", "MatMul", "Maximum", "Minimum", "Mul", "Neg",
    "NoOp", "Pack", "Placeholder", "Pow", "ReadVariableOp", "RealDiv", "Reciprocal", "Relu", "Relu6", "Rsqrt", "Selu",
    "Sigmoid", "Softmax", "Softplus", "Softsign", "Sqrt", "Square", "SquaredDifference", "Squeeze", "Sub", "Tanh",
}
# Operations that TensorFlow registers as stateful, although a run leaves nothing for the next one. The functions that
# they call are inspected too.
_WITHOUT_EFFECT = _CALLS | _VARIABLES | {
    "Assert", "BoostedTreesPredict", "Case", "CheckNumerics", "CheckNumericsV2", "DisableCopyOnRead", "Empty",
    "GuaranteeConst", "If", "IsVariableInitialized", "LookupTableExport", "LookupTableExportV2", "LookupTableFind",
    "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2", "ReadVariableOp", "RefEnter", "RefExit",
    "RefIdentity", "RefMerge", "RefNextIteration", "RefSelect", "RefSwitch", "ResourceGather", "ResourceGatherNd",
    "StackCloseV2", "StackPopV2", "StackPushV2", "StatelessRandomGetAlg", "TensorArrayCloseV3", "TensorArrayConcatV3",
    "TensorArrayGatherV3", "TensorArrayGradV3", "TensorArrayReadV3", "TensorArrayScatterV3", "TensorArraySizeV3",
    "TensorArraySplitV3", "TensorArrayV3", "TensorArrayWriteV3", "VarIsInitializedOp", "VariableShape", "While",
    "XlaCallModule", "XlaLaunch",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of the runs of a signature.

    Attributes:
        has_loops: The graph has a loop, so that the time of a run may depend on the values fed.
        has_effects: A run may leave something for later runs or wait for them: it writes a variable or a table, draws
            from a generator, or uses an operation that TensorFlow registers as stateful.
        is_small: Only operations of dense networks, with so few weights that several threads inside one operation
            cost more than they save, and that a run of a few rows takes less time than its hand-over to another
            thread.
    """

    has_loops: bool = False
    has_effects: bool = False
    is_small: bool = False


NO_TRAITS = Traits()


def traits_of(outputs: Sequence[str], graph: Any, *, definition: Callable[[str], Any | None]) -> Traits:
    """Return the traits of the runs that compute these tensors.

    Args:
        graph: The GraphDef that has them.
        definition: Returns the OpDef of an operation by its name, or None if it is not known.
    """
    nodes = list(nodes_behind(outputs, graph))
    ops = {node.op for node in nodes}
    return Traits(
        has_loops=not ops.isdisjoint(_LOOPS),
        has_effects=any(_may_write(definition(op)) for op in ops - _WITHOUT_EFFECT),
        is_small=_is_small(nodes),
    )


def is_small_model(meta_graph: Any) -> bool:
    """Return whether the runs of all signatures together have the trait ``is_small``.

    Args:
        meta_graph: The MetaGraphDef.
    """
    signatures = meta_graph.signature_def.values()
    outputs = [output.name for signature in signatures for output in signature.outputs.values()]
    return _is_small(nodes_behind(outputs, meta_graph.graph_def))


def _may_write(definition: Any | None) -> bool:
    """Return whether a run of an operation may leave something: it is stateful, or gets a variable of TensorFlow 1.

    An operation that only creates handles of resources, such as a table's, leaves nothing by itself.
    """
    if definition is None or any(argument.is_ref for argument in definition.input_arg):
        return True
    handles_only = definition.output_arg and all(_is_handle(argument) for argument in definition.output_arg)
    return bool(definition.is_stateful and not handles_only)


def _is_handle(argument: Any) -> bool:
    return bool(argument.type == _DT_RESOURCE or argument.is_ref)


def _is_small(nodes: Iterable[Any]) -> bool:
    """Recognize models so small that several threads inside one operation cost more than they save.

    TensorFlow splits a matrix product over all cores. For a small product, waking the threads, waiting for the last
    one and reading the weights into several caches takes longer than the product: a perceptron of 0.7 million weights
    used 1.5 times the CPU time with two threads, and answered a quarter fewer requests per second.
    """
    weights = 0
    for node in nodes:
        if node.op not in _DENSE_OPS:
            return False
        if node.op in _VARIABLES:
            weights += _size(node.attr["shape"].shape)
        elif node.op == "Const":
            weights += _size(node.attr["value"].tensor.tensor_shape)
    return weights <= _MAX_WEIGHTS


def _size(shape: Any) -> int:
    """Return the number of elements; an unknown shape counts as too large."""
    sizes = [dimension.size for dimension in shape.dim]
    return _MAX_WEIGHTS + 1 if shape.unknown_rank or min(sizes, default=0) < 0 else math.prod(sizes)
