"""Reach into the TensorFlow wheel without importing TensorFlow.

``import tensorflow`` runs some 3,900 modules and takes ten times as long as everything else that an endpoint does at
its start. Serving needs one compiled module of the wheel (the session binding), the error classes and the protobufs.
So a hollow package stands in for ``tensorflow`` while these are imported, and its submodules are found as usual.
Nothing else in the server's process imports TensorFlow: handlers of users run in processes of their own.
"""

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import Any

from tidemill_serving.errors import StartFailed

__all__ = ["Wheel", "open_wheel", "remove_hollow_package"]

_HOLLOW = "__tidemill_hollow__"


class Wheel:
    """The parts of the wheel that serving needs.

    Attributes:
        binding: The compiled session module.
        OpError: Root of TensorFlow's errors, with ``error_code`` and ``message``.
        saved_model: Module of the SavedModel messages.
        config: Module of ConfigProto and CallableOptions.
        types: Module of the DataType enumeration.
        example: Module of the Example message.
    """

    def __init__(self) -> None:
        self.binding: Any = importlib.import_module("tensorflow.python.client.pywrap_tf_session")
        # The binding raises through a registry of error classes which this import fills; without it, it would crash.
        self.OpError: type[Exception] = importlib.import_module("tensorflow.python.framework.errors_impl").OpError
        self.saved_model: Any = importlib.import_module("tensorflow.core.protobuf.saved_model_pb2")
        self.config: Any = importlib.import_module("tensorflow.core.protobuf.config_pb2")
        self.types: Any = importlib.import_module("tensorflow.core.framework.types_pb2")
        self.example: Any = importlib.import_module("tensorflow.core.example.example_pb2")


def open_wheel() -> Wheel:
    """Import what serving needs, quietly.

    Raises:
        StartFailed: TensorFlow is not installed in this environment.
        ImportError: This TensorFlow is laid out differently.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if "tensorflow" not in sys.modules:
        _install_hollow_package()
    with _quiet_library():
        return Wheel()


def remove_hollow_package() -> None:
    """Let the next ``import tensorflow`` be a real one."""
    if getattr(sys.modules.get("tensorflow"), _HOLLOW, False):
        del sys.modules["tensorflow"]


def _install_hollow_package() -> None:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.submodule_search_locations is None:
        raise StartFailed(
            f"TensorFlow is not installed in the environment of {sys.executable}: install tensorflow or tensorflow-cpu"
        )
    package = types.ModuleType("tensorflow")
    package.__path__ = list(spec.submodule_search_locations)
    package.__spec__ = spec
    setattr(package, _HOLLOW, True)
    sys.modules["tensorflow"] = package


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Hold back what the library writes to standard error while it loads; say it after all when loading fails."""
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
