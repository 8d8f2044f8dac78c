"""The message classes of TF Serving's gRPC API and of its files.

They are defined at run time from the published field numbers. If the package tensorflow-serving-api is installed, a
process that runs user code uses its classes instead: the code may import them, and a process can define each message
only once. Both need only the protobufs in the TensorFlow wheel, not TensorFlow itself.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any

from tidemill_serving.engine.wheel import open_wheel, remove_hollow_package
from tidemill_serving.messages.schema import (
    MAP,
    MESSAGES,
    PROTOCOLS,
    PUBLISHED_MODULES,
    REPEATED,
    SERVING,
    Definitions,
    Field,
)

_SCALARS = ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
_ENUM = "enum "
_user_code = False  # whether this process runs code that may import tensorflow-serving-api


class Messages:
    """Message classes, by name: ``messages().PredictRequest``."""

    def __init__(self, classes: dict[str, Any]) -> None:
        self.__dict__.update(classes)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # called only for names that are not messages


def forget_hollow_package() -> None:
    """Load the messages so that TensorFlow can still be imported, in processes that run the user's code."""
    global _user_code
    _user_code = True
    messages()
    remove_hollow_package()


@cache
def messages() -> Messages:
    """Return the message classes, including TensorFlow's TensorProto, Example and DataType."""
    wheel = open_wheel()
    tensor = importlib.import_module("tensorflow.core.framework.tensor_pb2").TensorProto
    importlib.import_module("tensorflow.core.protobuf.meta_graph_pb2")
    shared = {"TensorProto": tensor, "Example": wheel.example.Example, "DataType": wheel.types.DataType}
    published = _user_code and importlib.util.find_spec("tensorflow_serving") is not None
    return Messages(shared | (_published() if published else _defined()))


@cache
def definition_pools() -> tuple[Any, ...]:
    """Return the pools of descriptors that have all services and messages, which are defined by this call.

    Not for processes that run user's code.
    """
    messages()
    descriptor_pool = importlib.import_module("google.protobuf.descriptor_pool")
    return descriptor_pool.Default(), _own_pool()


@cache
def _own_pool() -> Any:
    """Return the pool of other protocols than TF Serving's; others of this process may define them, too."""
    return importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()


def _published() -> dict[str, Any]:
    modules = [importlib.import_module(f"tensorflow_serving.apis.{name}_pb2") for name in PUBLISHED_MODULES]
    return {name: kind for each in modules for name, kind in vars(each).items() if name in MESSAGES}


def _defined() -> dict[str, Any]:
    for each in ("any_pb2", "wrappers_pb2"):  # imported to register their messages in the pool
        importlib.import_module(f"google.protobuf.{each}")
    default = importlib.import_module("google.protobuf.descriptor_pool").Default()
    classes = _classes(SERVING, default)
    for each in PROTOCOLS:
        classes |= _classes(each, _own_pool())
    return classes


def _classes(file: Definitions, pool: Any) -> dict[str, Any]:
    """Define a file in a pool; return the classes of its messages."""
    descriptor_pb2, message_factory = (
        importlib.import_module(f"google.protobuf.{each}") for each in ("descriptor_pb2", "message_factory")
    )
    made = descriptor_pb2.FileDescriptorProto(
        name=file.name, package=file.package, syntax="proto3", dependency=list(file.imports)
    )
    for name, values in file.enums.items():
        enum = made.enum_type.add(name=name)
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in file.messages.items():
        message = made.message_type.add(name=name)
        for field in fields:
            _add_field(message, field, owner=f"{file.package}.{name}")
    for name, methods in file.services.items():
        service = made.service.add(name=name)
        for method in methods:
            service.method.add(
                name=method.name,
                input_type=f".{file.package}.{method.asks}",
                output_type=f".{file.package}.{method.answers}",
                client_streaming=method.asks_often,
                server_streaming=method.answers_often,
            )
    pool.AddSerializedFile(made.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
        for name in file.messages
    }


def _add_field(message: Any, field: Field, *, owner: str) -> None:
    name, number, kind, label = field
    made = message.field.add(name=name, number=number)
    made.label = made.LABEL_REPEATED if label in (REPEATED, MAP) else made.LABEL_OPTIONAL
    if label == MAP:
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add_field(entry, ("key", 1, "string", ""), owner="")
        _add_field(entry, ("value", 2, kind, ""), owner="")
        kind = f"{owner}.{entry_name}"
    elif label not in ("", REPEATED):
        if label not in [each.name for each in message.oneof_decl]:
            message.oneof_decl.add(name=label)
        made.oneof_index = [each.name for each in message.oneof_decl].index(label)
    if kind.startswith(_ENUM):
        made.type, made.type_name = made.TYPE_ENUM, f".{kind.removeprefix(_ENUM)}"
    elif kind in _SCALARS:
        made.type = getattr(made, f"TYPE_{kind.upper()}")
    else:
        made.type, made.type_name = made.TYPE_MESSAGE, f".{kind}"
