"""`model.save_model`: one SavedModel of the whole model, equivalent to that of the unpartitioned model."""

import inspect
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError, SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel, Tensor
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import Bundle, BundleWriter
from smdistributed.modelparallel.tensorflow.checkpoint.children import objects_below
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.saving.gathering import Values, on_first_rank
from smdistributed.modelparallel.tensorflow.saving.inputs import Inputs
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.tensorflow_api import write_fingerprint
from smdistributed.modelparallel.tensorflow.variables import RemoteVariable, reading_remote, variables_of

_MARK = b"smp: the value of variable "


def save_model(model: KerasModel, inputs: Inputs | None, path: str | os.PathLike[str]) -> None:
    """Write the whole model with its current weights. Collective.

    Rank 0 writes. It fetches the variables of the other ranks one by one, and never holds the whole model. A SavedModel
    at `path` is replaced when the new one is complete; other files in the directory stay.

    Args:
        model: The distributed model.
        inputs: The inputs with which steps called it.
        path: The directory of the SavedModel.

    Raises:
        SMPUsageError: If the model has not been called yet, so that its inputs are unknown.
        SMPCheckpointError: If the SavedModel could not be written; raised on all ranks.
    """
    if inputs is None:
        raise SMPUsageError(
            f"the model {model.name!r} cannot be saved yet: the first smp.step builds it and determines its inputs; "
            "run one step before"
        )
    target = Path(path)

    def write(values: Values) -> None:
        staged = target / f".smp-{secrets.token_hex(8)}"
        try:
            _write_graph(model, inputs, staged / "model", values)
            _write_values(staged / "model" / "variables" / "variables", staged / "pieces", values)
            write_fingerprint(staged / "model")
            _move_in(staged / "model", target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    doing = f"save the model in {target}"
    # Layers with metrics also update them in the saved graph.
    counts = [variable for metric in model.metrics for variable in metric.variables]
    on_first_rank(current(), [*variables_of([model]), *counts], write, doing=doing, error=SMPCheckpointError)


class _Marked:
    """Writes a mark in place of the value of each remote variable."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def value(self, variable: RemoteVariable) -> Tensor:
        return self._values.value(variable)

    def tensors(self, variable: RemoteVariable) -> dict[str, Any]:
        return {"VARIABLE_VALUE": tf.constant(_MARK + str(self._values.number(variable)).encode())}


def _write_graph(model: KerasModel, inputs: Inputs, path: Path, values: Values) -> None:
    def serve(*tensors: Tensor) -> object:
        # Keras passes `training` to the layers inside, even if the model's own `call` does not accept it.
        return inputs.call(model, tensors, training=False)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    serve.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in inputs.names])  # type: ignore[attr-defined]
    with reading_remote(_Marked(values)), _one_endpoint(model):
        archive = tf.keras.export.ExportArchive()
        _track(archive, model)
        archive.add_endpoint("serve", serve, input_signature=list(inputs.specs))
        with _quietly():
            archive.write_out(str(path), **({} if IS_KERAS_2 else {"verbose": False}))


def _track(archive: Any, model: KerasModel) -> None:
    archive.track(model)
    if IS_KERAS_2 and not hasattr(archive, "_tracked"):
        # 2.12 would save the layers as objects of Keras, without what `load_model` needs to create them again.
        resources = (tf.Variable, tf.saved_model.experimental.TrackableResource)
        archive._trackables = [
            one for one in objects_below(tf.train.Checkpoint(model=model)) if isinstance(one, resources)
        ]


@contextmanager
def _quietly() -> Generator[None]:
    """Keep Keras 2 from printing the path of the SavedModel, which is a temporary one."""
    keras = tf.keras.utils
    if not (IS_KERAS_2 and keras.is_interactive_logging_enabled()):
        yield
        return
    keras.disable_interactive_logging()
    try:
        yield
    finally:
        keras.enable_interactive_logging()


@contextmanager
def _one_endpoint(model: KerasModel) -> Generator[None]:
    """Keep Keras 3 from tracing an endpoint for each nested model, which fails for models with several inputs."""
    name = "_default_save_signature"
    kind = next((kind for kind in type(model).__mro__ if name in vars(kind)), None)
    if kind is None:
        yield
        return
    with Patch(kind, name, None):
        yield


def _write_values(prefix: Path, room: Path, values: Values) -> None:
    """Write the variables again, with values in place of marks."""
    bundle = Bundle(prefix)
    writer = BundleWriter(room)
    for key, (dtype, shape) in bundle.forms.items():
        tensor = bundle.read(key)
        if dtype == tf.string and not shape and tensor.numpy().startswith(_MARK):
            tensor = tf.convert_to_tensor(values.fetch(int(tensor.numpy()[len(_MARK) :])))
        writer.add(key, tensor)
    writer.close(prefix)


def _move_in(staged: Path, target: Path) -> None:
    """Replace a SavedModel: readers find the old one, briefly none, or the new one, but never a mixture."""
    heart = "saved_model.pb"
    (target / heart).unlink(missing_ok=True)
    for entry in sorted(staged.iterdir(), key=lambda entry: entry.name == heart):
        destination = target / entry.name
        if destination.is_dir():
            shutil.rmtree(destination)
        entry.replace(destination)
