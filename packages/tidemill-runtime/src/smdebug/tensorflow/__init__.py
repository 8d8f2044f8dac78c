"""Hooks of SageMaker Debugger for TensorFlow, which save nothing: see `smdebug`.

The log has a line for the first hook, one for the first call of each method that would save something, and one for each
scalar.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from smdebug.core.configuration import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "EstimatorHook",
    "KerasHook",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "SessionHook",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_told: set[str] = set()
_hooks: list[Hook] = []


def get_hook(hook_type: str | None = None, create_if_not_exists: bool = False) -> Hook | None:
    """Return the hook that was created last; None if there is none.

    Args:
        hook_type: ``keras``, or ``session`` for the others: the kind to create.
        create_if_not_exists: Whether to create a hook if there is none. Default: False.
    """
    if not _hooks and create_if_not_exists:
        (KerasHook if hook_type == "keras" else SessionHook)()
    return _hooks[-1] if _hooks else None


def set_hook(hook: Hook) -> None:
    """Make a hook the one that `get_hook` returns."""
    _hooks.append(hook)


def del_hook() -> None:
    """Forget all hooks."""
    _hooks.clear()


class Collection:
    """A named group of tensors.

    Attributes:
        name: Its name.
        include_regex: Patterns of the names of tensors.
        tensor_names: Names of added tensors.
        save_config: As given by the script.
        reduction_config: As given by the script.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.include_regex: list[str] = []
        self.tensor_names: set[str] = set()
        self.save_config: Any = None
        self.reduction_config: Any = None

    def include(self, patterns: str | list[str]) -> None:
        """Add patterns of names of tensors."""
        self.include_regex += [patterns] if isinstance(patterns, str) else patterns

    def add(self, tensors: Any) -> None:
        """Add a tensor or a list of tensors."""
        for tensor in tensors if isinstance(tensors, (list, tuple, set)) else [tensors]:
            self.tensor_names.add(getattr(tensor, "name", str(tensor)))

    add_for_mode = add


class Hook:
    """What all hooks have. A hook takes the arguments of the real library, and saves nothing.

    Args:
        out_dir: Where tensors would be saved. Default: as in a job.
        options: Arguments of the real hooks.
    """

    def __init__(self, out_dir: str = "/opt/ml/output/tensors", *args: Any, **options: Any) -> None:
        super().__init__()
        self.out_dir = out_dir
        self.mode = modes.GLOBAL
        self._collections: dict[str, Collection] = {}
        set_hook(self)
        _tell("hooks", f"{type(self).__name__} saves no tensors, and no rules run; write summaries for TensorBoard")

    @classmethod
    def create_from_json_file(cls, json_file_path: str | None = None) -> Any:
        """Return a hook; the configuration is not read.

        Args:
            json_file_path: The configuration of the job's hook.
        """
        return cls()

    def set_mode(self, mode: modes) -> None:
        """Note what the script does now."""
        self.mode = mode

    def get_collection(self, name: str, create: bool = True) -> Collection:
        """Return a collection, created if missing."""
        return self._collections.setdefault(name, Collection(name))

    def get_collections(self) -> dict[str, Collection]:
        """Return the collections by name."""
        return self._collections

    def add_collection(self, collection: Collection) -> None:
        """Add a collection."""
        self._collections[collection.name] = collection

    def add_to_collection(self, collection_name: str, variable: Any) -> None:
        """Add a tensor to a collection."""
        self.get_collection(collection_name).add(variable)

    def wrap_optimizer(self, optimizer: Any) -> Any:
        """Return the optimizer, unchanged: gradients are not saved."""
        return optimizer

    def wrap_tape(self, tape: Any) -> Any:
        """Return the tape, unchanged: gradients are not saved."""
        return tape

    def save_scalar(self, name: str, value: Any, sm_metric: bool = False, timestamp: float | None = None) -> None:
        """Print a scalar, so that a metric definition of the job can match it."""
        print(f"smdebug: {name}={float(value)}", flush=True)  # noqa: T201 - the job's log

    def save_tensor(
        self, tensor_name: str, tensor_value: Any, collections_to_write: Any = CollectionKeys.DEFAULT
    ) -> None:
        """Save nothing; the log says so at the first call."""
        _tell("save_tensor", f"save_tensor({tensor_name!r}) saves nothing")

    record_tensor_value = save_tensor

    def set_gradients(self, gradients: Any = None, gradients_and_variables: Any = None) -> None:
        """Save nothing; the log says so at the first call."""
        _tell("set_gradients", "set_gradients saves nothing")

    def set_optimizer_variables(self, optimizer_variables: Any) -> None:
        """Save nothing; the log says so at the first call."""
        _tell("set_optimizer_variables", "set_optimizer_variables saves nothing")

    def close(self) -> None:
        """End the hook."""

    cleanup = close


class KerasHook(Hook, tf.keras.callbacks.Callback):
    """A hook that is a callback of Keras."""

    def save_tape_logs(self, model_inputs: Any = None, outputs: Any = None) -> None:
        """Save nothing; the log says so at the first call."""
        _tell("save_tape_logs", "save_tape_logs saves nothing")


class SessionHook(Hook, tf.compat.v1.train.SessionRunHook):
    """A hook of sessions and estimators."""


class EstimatorHook(SessionHook):
    """A hook of estimators, by its earlier name."""


def _tell(what: str, text: str) -> None:
    if what not in _told:
        _told.add(what)
        print(f"tidemill: smdebug is a stand-in here: {text}", flush=True)  # noqa: T201 - the job's log
