"""Reads TensorFlow's checkpoint files (bundles), and writes bundles that are larger than memory."""

import glob
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from tensorflow.core.protobuf import trackable_object_graph_pb2

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""The key under which TensorFlow stores the object graph."""
_PIECE_BYTES = 128 << 20


class Bundle:
    """A bundle, read one tensor at a time."""

    def __init__(self, prefix: str | Path) -> None:
        """Open the bundle whose files begin with `prefix`.

        Raises:
            SMPCheckpointError: If there is no such bundle, or it cannot be read.
        """
        self.prefix = str(prefix)
        try:
            reader = tf.train.load_checkpoint(self.prefix)
        except (tf.errors.OpError, ValueError) as error:
            raise SMPCheckpointError(
                f"there is no readable checkpoint {self.prefix} (looked for {self.prefix}.index and its data files): "
                f"{_reason(error)}"
            ) from error
        shapes = reader.get_variable_to_shape_map()
        types = reader.get_variable_to_dtype_map()
        self.forms: dict[str, tuple[Any, list[int]]] = {
            key: (types[key], list(shape)) for key, shape in sorted(shapes.items())
        }
        """Key -> dtype and shape."""

    def read(self, key: str) -> Tensor:
        """Read one tensor.

        Raises:
            SMPCheckpointError: If it cannot be read.
        """
        try:
            return tf.raw_ops.RestoreV2(
                prefix=self.prefix, tensor_names=[key], shape_and_slices=[""], dtypes=[self.forms[key][0]]
            )[0]
        except (tf.errors.OpError, KeyError) as error:
            raise SMPCheckpointError(f"cannot read {key} from checkpoint {self.prefix}: {_reason(error)}") from error

    def object_graph(self) -> Any:
        """Return the saved object graph.

        Raises:
            SMPCheckpointError: If the checkpoint was saved by name, as in TensorFlow 1, and has no object graph.
        """
        if OBJECT_GRAPH not in self.forms:
            raise SMPCheckpointError(
                f"checkpoint {self.prefix} has no object graph, so it was not saved by tf.train.Checkpoint"
            )
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(self.read(OBJECT_GRAPH).numpy())
        return graph


class BundleWriter:
    """Writes a bundle piece by piece, with at most one piece in memory."""

    def __init__(self, directory: str | Path) -> None:
        """Create `directory`, and keep the pieces in it until `close`."""
        self._directory = Path(directory)
        self._directory.mkdir(parents=True)
        self._waiting: dict[str, Any] = {}
        self._waiting_bytes = 0
        self._pieces: list[str] = []

    def add(self, key: str, tensor: Tensor) -> None:
        """Add a tensor.

        Args:
            key: Key within the bundle.
            tensor: Of a static shape.
        """
        self._waiting[key] = tf.convert_to_tensor(tensor)
        self._waiting_bytes += tensor.dtype.size * tensor.shape.num_elements()
        if self._waiting_bytes >= _PIECE_BYTES:
            self._write()

    def close(self, prefix: str | Path) -> None:
        """Merge all pieces into one bundle, replacing an existing one; its index is written last.

        Args:
            prefix: Path without ``.index``.
        """
        self._write()
        whole = self._directory / "whole"
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=self._pieces, destination_prefix=str(whole), delete_old_dirs=False
        )
        target = Path(prefix)
        before = data_files(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        moved = [file.replace(target.parent / (target.name + file.name[len("whole") :])) for file in data_files(whole)]
        Path(f"{whole}.index").replace(f"{target}.index")
        for stale in set(before) - set(moved):
            stale.unlink()
        shutil.rmtree(self._directory)

    def _write(self) -> None:
        if self._waiting:
            piece = str(self._directory / f"piece{len(self._pieces)}")
            keys = list(self._waiting)
            tf.raw_ops.SaveV2(
                prefix=piece,
                tensor_names=keys,
                shape_and_slices=[""] * len(keys),
                tensors=[self._waiting[key] for key in keys],
            )
            self._pieces.append(piece)
            self._waiting.clear()
            self._waiting_bytes = 0


def exists(prefix: str | Path) -> bool:
    """Return whether there is a bundle with that prefix.

    Args:
        prefix: Path without ``.index``.
    """
    return Path(f"{prefix}.index").is_file()


def data_files(prefix: str | Path) -> list[Path]:
    """Return the data files of a bundle.

    Args:
        prefix: Path without ``.data-00000-of-00001``.

    Returns:
        Sorted by name.
    """
    path = Path(prefix)
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.data-?????-of-?????"))


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
