"""The interface between the server and TensorFlow: load a model, run one of its signatures on arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tidemill_serving.engine.traits import NO_TRAITS, Traits
from tidemill_serving.models import SAVED_MODEL_FILES, TFLITE_FILE

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Parallelism:
    """TensorFlow's thread counts; 0 lets TensorFlow choose.

    Attributes:
        inter_op: Maximum number of operations that run concurrently.
        intra_op: Maximum number of threads inside one operation.
    """

    inter_op: int = 0
    intra_op: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """Which model of a version's directory is loaded.

    Attributes:
        tags: Tags of the graph of a SavedModel.
        prefer_tflite: Load the TensorFlow Lite model of a directory that also has a SavedModel.
        tflite_interpreters: Most interpreters of a TensorFlow Lite model; each runs one request at a time.
        checks_method_names: Serve signatures only by the method that their method name says.
    """

    tags: tuple[str, ...] = ("serve",)
    prefer_tflite: bool = False
    tflite_interpreters: int = 1
    checks_method_names: bool = False

    def tflite_file(self, path: Path) -> Path | None:
        """Return the TensorFlow Lite model to load from a directory; None to load its SavedModel."""
        file = path / TFLITE_FILE
        is_chosen = self.prefer_tflite or not any((path / name).is_file() for name in SAVED_MODEL_FILES)
        return file if is_chosen and file.is_file() else None


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a signature, with the type and shape that it has in the graph.

    Attributes:
        tensor: Name in the graph, e.g. ``serving_default_x:0``.
        dtype: NumPy type; ``object`` for strings.
        type_name: TensorFlow's name of the type, e.g. ``float``.
        shape: Dimensions, -1 for unknown ones; None if the rank is unknown.
    """

    tensor: str
    dtype: np.dtype[Any]
    type_name: str
    shape: tuple[int, ...] | None

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array agrees with the declared shape."""
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(
            want in (-1, got) for want, got in zip(self.shape, shape, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Signature:
    """A named way to call a model. Inputs and outputs are sorted by name: the order of feeds and results.

    Attributes:
        key: Name in the SavedModel, e.g. ``serving_default``.
        method_name: e.g. ``tensorflow/serving/predict``.
        traits: Properties of its runs, from the graph.
        json_fault: Why JSON cannot represent its tensors, so that only gRPC serves it; None if JSON can.
        checks_method: Classify and regress need a signature with their method name.
        output_dtypes: NumPy types of the outputs, precomputed for the check of each run's results.
    """

    key: str
    method_name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    traits: Traits = NO_TRAITS
    json_fault: str | None = None
    checks_method: bool = False
    output_dtypes: tuple[np.dtype[Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_dtypes", tuple(spec.dtype for spec in self.outputs.values()))

    @property
    def batchable(self) -> bool:
        """Whether rows of several requests may share one run, which requires every first dimension to be unknown."""
        specs = [*self.inputs.values(), *self.outputs.values()]
        return bool(self.inputs and self.outputs) and all(spec.shape and spec.shape[0] == -1 for spec in specs)


class LoadedModel(Protocol):
    """A model in memory. ``run`` may be called by several threads at once."""

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """Signatures that can be served, by key."""

    @property
    def unusable(self) -> Mapping[str, str]:
        """Reasons why the remaining signatures cannot be served, by key."""

    @property
    def signature_defs(self) -> Mapping[str, Any]:
        """All SignatureDef messages of the model, by key."""

    def prepare(self, signature: Signature) -> None:
        """Do everything that the first run of a signature needs, without running an operation of the model."""

    def run(self, signature: Signature, feeds: Sequence[Array], *, pooled: bool) -> list[Array]:
        """Run a signature.

        Args:
            signature: One of ``signatures``.
            feeds: Arrays in the order of ``signature.inputs``, each of the input's dtype.
            pooled: Distribute operations over TensorFlow's threads instead of running them on the calling thread.

        Returns:
            Arrays in the order of ``signature.outputs``.

        Raises:
            RequestError: TensorFlow refused the feeds or failed.
        """

    def close(self) -> None:
        """Free the model. The caller makes sure that no run is in progress."""


class Engine(Protocol):
    """Loads models into memory."""

    @property
    def name(self) -> str:
        """One of `ENGINE_NAMES`."""

    @property
    def description(self) -> str:
        """Library and version that run the models, for the log."""

    @property
    def has_narrow_sessions(self) -> bool:
        """Whether sessions can differ in the threads inside their operations."""

    def is_narrow(self, model: LoadedModel) -> bool:
        """Return whether the operations of a loaded model run on one thread each."""

    def load_operations(self, library: Path) -> None:
        """Load a shared library of custom operations for the models that are loaded after it.

        Raises:
            StartFailed: TensorFlow cannot load it.
        """

    def release_memory(self) -> None:
        """Release memory that only loading models and their first runs needed, before requests are served."""

    def shares_variables(self, model: LoadedModel) -> bool:
        """Return whether a second session of a loaded model needs no memory for its variables."""

    def load(self, path: Path, *, twin_of: LoadedModel | None = None) -> LoadedModel:
        """Load the model of a directory.

        Args:
            path: Directory of the SavedModel.
            twin_of: A model that was loaded from the same files, and whose runs change no variable. The new one shares
                its variables if possible, and runs its operations on one thread each, as small dense networks always
                do. Default: none.

        Returns:
            The model in memory.

        Raises:
            StartFailed: The directory has no model, or one without a graph of the right tags, or TensorFlow refuses it.
        """
