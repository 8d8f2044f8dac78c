"""Use the libraries and protobufs of the TensorFlow wheel without importing TensorFlow.

``import tensorflow`` runs about 3,900 modules and takes ten times as long as the rest of an endpoint's start. Serving
needs only the C library (`c_library`) and the protobufs of the wheel. So an empty package replaces ``tensorflow`` while
the protobufs are imported; its submodules are found as usual. Nothing else in the server process imports TensorFlow,
since the handlers of users run in separate processes.
"""

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tidemill_serving.errors import StartFailed

_HOLLOW = "__tidemill_hollow__"


class Wheel:
    """The messages of the wheel that serving needs. Importing them loads no native code of TensorFlow.

    Attributes:
        saved_model: Module of the SavedModel messages.
        meta_graph: Module of MetaGraphDef and SignatureDef.
        config: Module of ConfigProto, RunOptions and CallableOptions.
        types: Module of the DataType enumeration.
        tensor: Module of the TensorProto message.
        example: Module of the Example message.
        op_def: Module of the OpDef message.
    """

    def __init__(self) -> None:
        self.saved_model: Any = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
        self.meta_graph: Any = importlib.import_module("tensorflow.core.protobuf.meta_graph_pb2")
        self.config: Any = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        self.types: Any = importlib.import_module("tensorflow.core.framework.types_pb2")
        self.tensor: Any = importlib.import_module("tensorflow.core.framework.tensor_pb2")
        self.example: Any = importlib.import_module("tensorflow.core.example.example_pb2")
        self.op_def: Any = importlib.import_module("tensorflow.core.framework.op_def_pb2")


def open_wheel() -> Wheel:
    """Import the messages.

    Raises:
        StartFailed: TensorFlow is not installed in this environment.
        ImportError: The installed TensorFlow has another layout of files.
    """
    if "tensorflow" not in sys.modules:
        _install_hollow_package()
    return Wheel()


def wheel_directory() -> Path:
    """Return the directory of the package ``tensorflow``, which contains the wheel's libraries.

    Raises:
        StartFailed: TensorFlow is not installed in this environment.
    """
    return Path(_package_path()[0])


def remove_hollow_package() -> None:
    """Remove the empty package, so that the next ``import tensorflow`` imports TensorFlow."""
    if getattr(sys.modules.get("tensorflow"), _HOLLOW, False):
        del sys.modules["tensorflow"]


def _install_hollow_package() -> None:
    path = _package_path()
    package = types.ModuleType("tensorflow")
    package.__path__ = path
    package.__spec__ = importlib.util.find_spec("tensorflow")
    setattr(package, _HOLLOW, True)
    sys.modules["tensorflow"] = package


def _package_path() -> list[str]:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise StartFailed(
            f"TensorFlow is not installed in the environment of {sys.executable}: install tensorflow or tensorflow-cpu"
        )
    return list(spec.submodule_search_locations)


@contextmanager
def quiet_library() -> Generator[None]:
    """Suppress standard error while the library loads; print the suppressed output if loading fails."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    with TemporaryFile() as held:
        real = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            held.seek(0)
            os.write(real, held.read())
            raise
        finally:
            os.dup2(real, 2)
            os.close(real)
