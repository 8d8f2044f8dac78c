"""Repair two defects of Keras 3's trainer under ``MultiWorkerMirroredStrategy``.

Keras 3.15 cannot train on several workers. To build a model without known shapes, it reduces a whole batch over the
workers, which strategies refuse. It also averages the scalar results of a step along axis 0, which scalars do not have.
Both functions are in ``keras.src.backend.tensorflow.trainer``. They are replaced only if their source has the defect,
and the replacements differ from the originals only under a strategy with several workers.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from typing import TYPE_CHECKING

from tidemill_tensorflow.imports import when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType
    from typing import Any

    import tensorflow as tf
    from keras import Model

TRAINER = "keras.src.backend.tensorflow.trainer"
_NOTE = (
    "tidemill: fit, evaluate and predict of Keras {version} do not work under MultiWorkerMirroredStrategy as they are;"
    " they are repaired here\n"
)


def watch_keras() -> None:
    """Repair Keras's trainer now or right after its import; later calls have no effect."""
    when_imported(TRAINER, repair)


def repair(trainer: ModuleType) -> Callable[[], None]:
    """Replace the defective functions of the trainer's module. Leave a function alone if its source cannot be read.

    Args:
        trainer: ``keras.src.backend.tensorflow.trainer``.

    Returns:
        A function that restores the original functions.
    """
    undone: list[Callable[[], None]] = []
    for owner, name, is_defect, replacement in (
        (trainer.TensorFlowTrainer, "_maybe_symbolic_build", _reduces_structures, _build_from_local_batch),
        (trainer, "reduce_per_replica", _averages_along_an_axis, _reduce_scalars),
    ):
        original = getattr(owner, name, None)
        if original is not None and not hasattr(original, "__wrapped__") and is_defect(original):
            setattr(owner, name, replacement(trainer, original))
            undone.append(functools.partial(setattr, owner, name, original))

    def undo() -> None:
        for each in undone:
            each()

    return undo


def _reduces_structures(function: Callable[..., Any]) -> bool:
    """Return whether a function reduces a whole batch: ``strategy.reduce("MEAN", batch, axis=None)``."""
    return None in _axes_of_means(function)


def _averages_along_an_axis(function: Callable[..., Any]) -> bool:
    """Return whether a function reduces step results by ``strategy.reduce("MEAN", value, axis=0)``."""
    return 0 in _axes_of_means(function)


def _axes_of_means(function: Callable[..., Any]) -> set[object]:
    """Return the constant ``axis`` of every ``.reduce("MEAN", ...)`` in a function; empty if it has no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return set()
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "reduce"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == "MEAN"
    ]
    keywords = [each for call in calls for each in call.keywords if each.arg == "axis"]
    return {each.value.value for each in keywords if isinstance(each.value, ast.Constant)}


def _build_from_local_batch(trainer: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def maybe_symbolic_build(
        self: Model, iterator: Iterator[tuple[int, int, Iterator[object]]] | None = None, data_batch: object = None
    ) -> object:
        strategy = self._distribute_strategy
        if iterator is None or strategy is None or not _has_several_workers(strategy):
            return original(self, iterator=iterator, data_batch=data_batch)
        _check_steps(self.steps_per_execution)
        _announce()
        for _, _, batches in iterator:
            # Building needs shapes and dtypes only. These agree on all replicas, except for the batch length.
            data_batch = _first_local(trainer, strategy, next(batches))
            break
        return original(self, data_batch=data_batch)

    return maybe_symbolic_build


def _reduce_scalars(trainer: ModuleType, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reduce_per_replica(values: object, strategy: tf.distribute.Strategy, reduction: str) -> object:
        if reduction not in ("auto", "mean", "sum") or not _has_several_workers(strategy):
            return original(values, strategy, reduction)
        operation = "SUM" if reduction == "sum" else "MEAN"

        def reduce(value: object) -> object:
            return strategy.reduce(operation, value, axis=None)

        return trainer.tree.map_structure(reduce, values)

    return reduce_per_replica


def _first_local(trainer: ModuleType, strategy: tf.distribute.Strategy, batch: object) -> object:
    def first(value: object) -> object:
        return strategy.experimental_local_results(value)[0]

    return trainer.tree.map_structure(first, batch)


def _has_several_workers(strategy: tf.distribute.Strategy) -> bool:
    import tensorflow as tf

    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and strategy.extended._in_multi_worker_mode()


def _check_steps(steps_per_execution: tf.Variable | int) -> None:
    if int(steps_per_execution) != 1:
        raise ValueError(
            f"steps_per_execution={int(steps_per_execution)} does not work under MultiWorkerMirroredStrategy:"
            " TensorFlow cannot communicate inside the loop that Keras makes of the steps. Call"
            " model.compile(..., steps_per_execution=1)"
        )


@functools.lru_cache(maxsize=1)
def _announce() -> None:
    import keras

    sys.stderr.write(_NOTE.format(version=keras.__version__))
