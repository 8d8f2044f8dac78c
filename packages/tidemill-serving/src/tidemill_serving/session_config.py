"""The configuration of TensorFlow's sessions: a ConfigProto in text form, and flags that override parts of it."""

from dataclasses import dataclass
from pathlib import Path

from tidemill_serving.engine.wheel import open_wheel
from tidemill_serving.errors import StartFailed
from tidemill_serving.messages.text_files import parse_text_file


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What a file and flags say about sessions.

    Attributes:
        serialized: The ConfigProto.
        inter_op: Its number of operations that run at the same time; 0 if it says none.
        intra_op: Its number of threads inside an operation; 0 if it says none.
    """

    serialized: bytes = b""
    inter_op: int = 0
    intra_op: int = 0


def read_session_config(file: Path | None, *, gpu_memory_fraction: float) -> SessionConfig:
    """Read the configuration of sessions.

    Args:
        file: A ConfigProto in text form; None for none.
        gpu_memory_fraction: Part of the memory of a GPU that TensorFlow allocates when it starts; 0: the file's.

    Raises:
        StartFailed: The file cannot be read or is no such message, or a number is not allowed.
    """
    if not 0 <= gpu_memory_fraction <= 1:
        raise StartFailed(
            f"--per-process-gpu-memory-fraction {gpu_memory_fraction:g}: expected 0, which lets TensorFlow choose, to 1"
        )
    if file is None and not gpu_memory_fraction:
        return SessionConfig()
    config = open_wheel().config.ConfigProto()
    if file is not None:
        parse_text_file(file, config)
    if gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
    inter_op, intra_op = config.inter_op_parallelism_threads, config.intra_op_parallelism_threads
    if min(inter_op, intra_op) < 0:
        raise StartFailed(
            f"{file}: inter_op_parallelism_threads {inter_op} and intra_op_parallelism_threads {intra_op}: expected at"
            " least 0, which lets TensorFlow choose; the server itself runs small models on the calling thread"
        )
    return SessionConfig(config.SerializeToString(), inter_op, intra_op)
