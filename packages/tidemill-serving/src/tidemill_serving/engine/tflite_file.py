"""Read the signatures of a TensorFlow Lite model: the parts of its flatbuffer that its interpreter does not report.

A model names its signatures in the flatbuffer, or in the metadata that TensorFlow Serving's tools add. A model without
signatures gets ``serving_default``, with its tensors' names, as in TensorFlow Serving.
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill_serving.engine.base import Signature
from tidemill_serving.engine.signatures import GraphTensor, Signatures, signature_or_reason
from tidemill_serving.engine.traits import Traits
from tidemill_serving.engine.wheel import Wheel

_METADATA = b"signature_defs_metadata"
_PREDICT = "tensorflow/serving/predict"
_DEFAULT = "serving_default"
_LOOPS = frozenset({"WHILE", "STABLEHLO_WHILE"})
_STATE = frozenset({"ASSIGN_VARIABLE", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "MULTINOMIAL"})
"""Operations whose result depends on earlier runs of the same interpreter, or that change such results."""
_TYPES = {"FLOAT32": "DT_FLOAT", "FLOAT64": "DT_DOUBLE", "FLOAT16": "DT_HALF"}
"""Names in DataType that are not those of the flatbuffer with ``DT_`` before them."""
_UNKNOWN_TYPE = 0


@dataclass(frozen=True, slots=True)
class Tensors:
    """The tensors of a signature.

    Attributes:
        subgraph: Number of the subgraph that computes the outputs.
        inputs: Numbers of the input tensors, sorted by the inputs' names.
        outputs: Numbers of the output tensors, sorted by the outputs' names.
    """

    subgraph: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TfliteFile:
    """What the server needs to know about a TensorFlow Lite model.

    Attributes:
        signatures: Its signatures.
        tensors: The tensors of each signature that can be served, by its key.
        keeps_state: Runs may change the results of later runs of the same interpreter.
        resets: Some tensors keep the values of the last run, and have to be reset before the next one.
    """

    signatures: Signatures
    tensors: Mapping[str, Tensors]
    keeps_state: bool
    resets: bool


def read_tflite(content: bytes, *, wheel: Wheel) -> TfliteFile:
    """Read a model that TensorFlow Lite has accepted.

    Args:
        content: The flatbuffer.
        wheel: The messages of TensorFlow.
    """
    schema = _schema()
    model = schema.Model.GetRootAs(content, 0)
    reader = _TfliteReader(model, wheel=wheel, types=_names(schema.TensorType))
    operations = _operations(model, _names(schema.BuiltinOperator))
    keeps_state = not operations.isdisjoint(_STATE)
    traits = Traits(has_loops=not operations.isdisjoint(_LOOPS), has_effects=keeps_state)
    served: dict[str, Signature] = {}
    unusable: dict[str, str] = {}
    tensors: dict[str, Tensors] = {}
    definitions: dict[str, Any] = {}
    for key, number, definition in sorted(reader.definitions(), key=lambda each: each[0]):
        definitions[key] = definition
        graph = _Subgraph(reader, number)
        found = signature_or_reason(key, definition, graph.tensor, wheel=wheel, traits=traits)
        if isinstance(found, str):
            unusable[key] = found
            continue
        served[key] = found
        inputs = tuple(graph.number(spec.tensor) for spec in found.inputs.values())
        outputs = tuple(graph.number(spec.tensor) for spec in found.outputs.values())
        tensors[key] = Tensors(number, inputs, outputs)
    return TfliteFile(Signatures(served, unusable, definitions), tensors, keeps_state, reader.has_variables())


def custom_operations(content: bytes) -> list[str]:
    """Return the operations of a model that TensorFlow Lite does not define, TensorFlow's own (``Flex...``) included.

    Args:
        content: The flatbuffer, which TensorFlow Lite has checked.
    """
    model = _schema().Model.GetRootAs(content, 0)
    codes = [model.OperatorCodes(index).CustomCode() for index in range(model.OperatorCodesLength())]
    return sorted(code.decode() for code in codes if code is not None)


def _schema() -> Any:
    return importlib.import_module("tensorflow.lite.python.schema_py_generated")


class _TfliteReader:
    def __init__(self, model: Any, *, wheel: Wheel, types: Mapping[int, str]) -> None:
        self.model = model
        self._wheel = wheel
        self._types = types

    def definitions(self) -> Iterator[tuple[str, int, Any]]:
        """Yield key, number of the subgraph, and SignatureDef of each signature."""
        from_metadata = list(self._metadata())
        if from_metadata:
            yield from from_metadata
            return
        for index in range(self.model.SignatureDefsLength()):
            each = self.model.SignatureDefs(index)
            number = each.SubgraphIndex()
            inputs = [each.Inputs(position) for position in range(each.InputsLength())]
            outputs = [each.Outputs(position) for position in range(each.OutputsLength())]
            roles = [{tensor.Name().decode(): tensor.TensorIndex() for tensor in role} for role in (inputs, outputs)]
            yield each.SignatureKey().decode(), number, self._definition(number, *roles)
        if not self.model.SignatureDefsLength():
            graph = self.model.Subgraphs(0)
            inputs = [graph.Inputs(position) for position in range(graph.InputsLength())]
            outputs = [graph.Outputs(position) for position in range(graph.OutputsLength())]
            names = {number: _plain(name) for number, name in enumerate(names_of(graph))}
            roles = [{names[number]: number for number in role} for role in (inputs, outputs)]
            yield _DEFAULT, 0, self._definition(0, *roles)

    def has_variables(self) -> bool:
        graphs = [self.model.Subgraphs(number) for number in range(self.model.SubgraphsLength())]
        return any(graph.Tensors(number).IsVariable() for graph in graphs for number in range(graph.TensorsLength()))

    def type_number(self, tensor: Any) -> int:
        name = self._types.get(tensor.Type(), "")
        numbers = dict(self._wheel.types.DataType.items())
        return int(numbers.get(_TYPES.get(name, f"DT_{name}"), _UNKNOWN_TYPE))

    def _metadata(self) -> Iterator[tuple[str, int, Any]]:
        for index in range(self.model.MetadataLength()):
            entry = self.model.Metadata(index)
            if entry.Name() != _METADATA:
                continue
            flexbuffers = importlib.import_module("flatbuffers.flexbuffers")
            stored = flexbuffers.GetRoot(self.model.Buffers(entry.Buffer()).DataAsNumpy().tobytes()).AsMap
            for key in stored.Keys:
                message = bytes(stored[key.AsKey].AsStringBytes)
                yield key.AsKey, 0, self._wheel.meta_graph.SignatureDef.FromString(message)

    def _definition(self, number: int, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> Any:
        definition = self._wheel.meta_graph.SignatureDef(method_name=_PREDICT)
        graph = self.model.Subgraphs(number)
        names = names_of(graph)
        for infos, role in ((definition.inputs, inputs), (definition.outputs, outputs)):
            for alias, position in role.items():
                tensor = graph.Tensors(position)
                infos[alias].name = names[position]
                infos[alias].dtype = self.type_number(tensor)
                shape = shape_of(tensor)
                infos[alias].tensor_shape.unknown_rank = shape is None
                for size in shape or ():
                    infos[alias].tensor_shape.dim.add(size=size)
        return definition


class _Subgraph:
    """The tensors of a subgraph by their names."""

    def __init__(self, reader: _TfliteReader, number: int) -> None:
        self._reader = reader
        graph = reader.model.Subgraphs(number)
        self._tensors = [graph.Tensors(position) for position in range(graph.TensorsLength())]
        self._numbers = {name: position for position, name in enumerate(names_of(graph))}
        for name, position in list(self._numbers.items()):
            self._numbers.setdefault(_plain(name), position)

    def number(self, name: str) -> int:
        return self._numbers[name]

    def tensor(self, name: str) -> GraphTensor | None:
        if name not in self._numbers:
            return None
        tensor = self._tensors[self._numbers[name]]
        return GraphTensor(self._reader.type_number(tensor), shape_of(tensor))


def names_of(graph: Any) -> list[str]:
    """Return different names of the tensors of a subgraph; files may repeat names, or have none.

    Args:
        graph: The subgraph of the flatbuffer.
    """
    names: dict[str, None] = {}
    for position in range(graph.TensorsLength()):
        name = (graph.Tensors(position).Name() or b"tensor").decode()
        names[f"{name}_{position}" if name in names or name == "tensor" else name] = None
    return list(names)


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """Return the shape of a tensor of the flatbuffer, -1 for unknown sizes; None if the rank is unknown."""
    sizes = tensor.ShapeSignatureAsNumpy() if tensor.ShapeSignatureLength() else tensor.ShapeAsNumpy()
    length = tensor.ShapeSignatureLength() or tensor.ShapeLength()
    if not length:
        return () if tensor.HasRank() else None
    return tuple(int(size) for size in sizes)


def _operations(model: Any, names: Mapping[int, str]) -> set[str]:
    codes = [model.OperatorCodes(index) for index in range(model.OperatorCodesLength())]
    # The older of the two fields has eight bits, and holds the largest of them if the newer one is used.
    return {names.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "") for code in codes}


def _names(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


def _plain(name: str) -> str:
    """Return the name of a tensor without the number of its operation's output, which is always the first."""
    return name.removesuffix(":0")
