"""Whether the shapes of all tensors of a graph follow from the shapes of its inputs, and not from values.

Only known ops count. A graph with another op may have such shapes too, but nothing depends on knowing that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill_tensorflow.compiler.graphs.random_numbers import REPLACED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_BY_SHAPES = """
    Abs Acos Acosh Add AddN AddV2 Asin Asinh AssignAddVariableOp AssignSubVariableOp AssignVariableOp Atan Atan2
    Atanh AvgPool AvgPool3D BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor
    Cast Ceil ClipByValue Const Conv2D Conv3D Cos Cosh Cumprod Cumsum DepthToSpace DepthwiseConv2dNative DivNoNan
    Einsum Elu EmptyTensorList EnsureShape Equal Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod FusedBatchNormV3
    GatherNd Greater GreaterEqual Identity IdentityN Inv Invert IsFinite IsInf IsNan L2Loss LeakyRelu LeftShift Less
    LessEqual Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr LogSoftmax MatMul Maximum MaxPool MaxPool3D Minimum
    Mul MulNoNan Neg NoOp NotEqual OnesLike Pack PartitionedCall Placeholder Pow PreventGradient Rank ReadVariableOp
    RealDiv Reciprocal Relu Relu6 ResourceGather ResourceGatherNd RightShift Rint Round Rsqrt Select SelectV2 Selu
    Shape Sigmoid Sign Sin Sinh Size Softmax SoftmaxCrossEntropyWithLogits Softplus Softsign SpaceToDepth
    SparseSoftmaxCrossEntropyWithLogits Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall
    StatelessRandomGetKeyCounter StatelessWhile StopGradient Sub Tan Tanh TensorListElementShape
    TensorListFromTensor TensorListGetItem TensorListLength TensorListPushBack TensorListSetItem TensorListStack
    TensorScatterAdd TensorScatterUpdate Unpack While Xdivy Xlogy ZerosLike
"""
"""Ops with results whose shapes follow from the shapes of their inputs and from attributes."""
_BY_VALUES = {
    "All": (1,),
    "Any": (1,),
    "ArgMax": (1,),
    "ArgMin": (1,),
    "BatchToSpaceND": (1, 2),
    "BroadcastTo": (1,),
    "ConcatV2": (-1,),
    "Conv2DBackpropInput": (0,),
    "Conv3DBackpropInputV2": (0,),
    "DepthwiseConv2dNativeBackpropInput": (0,),
    "ExpandDims": (1,),
    "Fill": (0,),
    "GatherV2": (2,),
    "Max": (1,),
    "Mean": (1,),
    "Min": (1,),
    "MirrorPad": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Prod": (1,),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "ReverseV2": (1,),
    "ScatterNd": (2,),
    "Slice": (1, 2),
    "SpaceToBatchND": (1, 2),
    "Split": (0,),
    "SplitV": (1, 2),
    "StridedSlice": (1, 2, 3),
    "Sum": (1,),
    "TensorListReserve": (0, 1),
    "Tile": (1,),
    "TopKV2": (1,),
    "Transpose": (1,),
    **dict.fromkeys(REPLACED, (0,)),
}
"""Ops with inputs whose values decide about shapes, and the indices of these inputs."""
_ON_SIZES = """
    Add AddV2 Cast ConcatV2 ExpandDims Fill FloorDiv FloorMod GatherV2 Identity Max Maximum Min Minimum Mul Pack Prod
    Range Reshape Squeeze StridedSlice Sub Sum
"""
"""Ops that compute sizes from other sizes."""
_OF_LISTS = frozenset({"TensorListLength", "TensorListStack"})
"""Ops whose results have the length of a list in their shapes or as a size."""
_FIXED_LISTS = frozenset({"TensorListFromTensor", "TensorListReserve"})
_CARRIES = frozenset({"Identity", "StatelessWhile", "TensorListSetItem", "While"})
"""Ops from which a list comes as long as it was; the outputs of a loop are in the order of its inputs."""
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_SIZES = frozenset({"Const", "Rank", "Shape", "Size"})
_SHAPED, _COMPUTED = frozenset(_BY_SHAPES.split()), _SIZES | frozenset(_ON_SIZES.split())


def shapes_follow_from_inputs(graph_def: GraphDef) -> bool:
    """Return whether all shapes in a graph, and in the functions that it uses, follow from the shapes of its inputs.

    What a loop carries from iteration to iteration never counts as a size.
    """
    library = {function.signature.name: function for function in graph_def.library.function}
    waiting = [_Scope({node.name: node for node in graph_def.node}, frozenset())]
    seen = set()
    while waiting:
        scope = waiting.pop()
        if not scope.shapes_follow():
            return False
        for name, sizes in scope.called(library):
            if (name, sizes) not in seen:
                seen.add((name, sizes))
                waiting.append(_Scope({node.name: node for node in library[name].node_def}, sizes))
    return True


@dataclass(frozen=True)
class _Scope:
    """Nodes of a graph or of a function.

    Attributes:
        sizes: Arguments of the function that are computed from constants and shapes alone.
    """

    nodes: Mapping[str, NodeDef]
    sizes: frozenset[str]

    def shapes_follow(self) -> bool:
        """Return whether the shapes of all results follow from the shapes of the inputs."""
        for node in self.nodes.values():
            if node.op in _OF_LISTS and not self._has_fixed_length(_data(node)[0]):
                return False
            if node.op in _SHAPED:
                continue
            if node.op not in _BY_VALUES:
                return False
            inputs = _data(node)
            if not all(self._is_size(inputs[index]) for index in _BY_VALUES[node.op]):
                return False
        return True

    def called(self, library: Mapping[str, FunctionDef]) -> Iterator[tuple[str, frozenset[str]]]:
        """Yield the names of the functions that the nodes use, each with the arguments that are sizes."""
        for node in self.nodes.values():
            for value in node.attr.values():
                if value.HasField("func") and value.func.name in library:
                    given = zip(library[value.func.name].signature.input_arg, _data(node))
                    own = [argument.name for argument, reference in given if self._is_size(reference)]
                    yield value.func.name, frozenset(own if node.op in _CALLS else ())

    def _has_fixed_length(self, reference: str) -> bool:
        """Return whether a list has the length with which it was reserved; loops may push any number of elements."""
        while (node := self.nodes.get(reference.partition(":")[0])) is not None:
            if node.op not in _CARRIES:
                return node.op in _FIXED_LISTS
            reference = _data(node)[int(reference.rpartition(":")[2]) if ":" in reference else 0]
        return False

    def _is_size(self, reference: str) -> bool:
        """Return whether a value is computed from constants and shapes alone."""
        waiting, seen = [reference], set()
        while waiting:
            name = waiting.pop().partition(":")[0]
            if name in seen or name in self.sizes:
                continue
            seen.add(name)
            node = self.nodes.get(name)
            if node is None or node.op not in _COMPUTED:
                return False
            if node.op not in _SIZES:
                waiting += _data(node)
        return True


def _data(node: NodeDef) -> list[str]:
    return [reference for reference in node.input if not reference.startswith("^")]
