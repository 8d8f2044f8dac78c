"""One interface to the private parts of TensorFlow whose place or form changed after 2.12."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf


def _first_of(*names: str) -> Any:
    return importlib.import_module(next(name for name in names if importlib.util.find_spec(name)))


record: Any = _first_of("tensorflow.python.eager.record", "tensorflow.python.eager.tape")
"""The module with `record_operation` and `stop_recording`: `tape` in 2.12."""


def py_func_from_autograph(body: Callable[..., Any], options: object = None) -> Callable[..., Any]:
    """Return a function as AutoGraph converts it when it is called.

    Args:
        body: A Python function.
        options: The `experimental_autograph_options` of its `tf.function`.
    """
    if importlib.util.find_spec("tensorflow.python.eager.polymorphic_function.autograph_util"):
        util: Any = importlib.import_module("tensorflow.python.eager.polymorphic_function.autograph_util")
        return util.py_func_from_autograph(body, options)
    api: Any = importlib.import_module("tensorflow.python.autograph.impl.api")
    return api.convert(recursive=True, optional_features=options, user_requested=True)(body)


def keep_autograph_out() -> None:
    """Keep AutoGraph of 2.12 from converting this library's code, in which it fails on `zip(strict=True)`.

    Functions of the script that the library calls are still converted.
    """
    builtins: Any = importlib.import_module("tensorflow.python.autograph.operators.py_builtins")
    if "strict" in builtins.zip_.__code__.co_varnames or builtins.zip_.__code__.co_flags & inspect.CO_VARKEYWORDS:
        return
    config: Any = importlib.import_module("tensorflow.python.autograph.core.config")
    library = "smdistributed.modelparallel"
    if not any(rule.matches(library) for rule in config.CONVERSION_RULES):
        config.CONVERSION_RULES = (config.DoNotConvert(library), *config.CONVERSION_RULES)


def clear_captures(graph: Any) -> None:
    """Make a function's graph forget the tensors that it captured.

    Args:
        graph: A FuncGraph.
    """
    if hasattr(graph, "function_captures"):
        graph.function_captures.clear()
    else:
        graph.clear_captures()  # 2.12


def has_asynchronous_kernels() -> bool:
    """Return whether a native op can release its thread while it waits: not on 2.12."""
    framework = next(Path(tf.sysconfig.get_lib()).glob("libtensorflow_framework.*"))  # .so.2 or .2.dylib
    return hasattr(ctypes.CDLL(str(framework)), "TF_NewAsyncKernelBuilder")


def write_fingerprint(directory: Path) -> None:
    """Write `fingerprint.pb` of a SavedModel, as TensorFlow does.

    Args:
        directory: The SavedModel, complete.
    """
    if importlib.util.find_spec("tensorflow.python.saved_model.fingerprinting_utils"):
        importlib.import_module("tensorflow.python.saved_model.fingerprinting_utils").write_fingerprint(str(directory))
        return
    target = directory / "fingerprint.pb"
    if target.is_file():  # 2.12 writes it by a flag
        native: Any = importlib.import_module("tensorflow.python.saved_model.pywrap_saved_model").fingerprinting
        target.write_bytes(native.CreateFingerprintDef((directory / "saved_model.pb").read_bytes(), str(directory)))
