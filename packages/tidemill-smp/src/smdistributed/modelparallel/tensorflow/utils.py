"""Send checkpoint files from rank to rank. Scripts import the module under this name.

utils.send_checkpoint_files("/opt/ml/checkpoints", 0)       # on MP rank 1: sends .../mp_rank_1/
utils.receive_checkpoint_files("/opt/ml/checkpoints", 1)    # on MP rank 0: makes .../mp_rank_1/
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.communication import recv_from, send
from smdistributed.modelparallel.tensorflow.world.group_names import RankType

__all__ = ["receive_checkpoint_files", "send_checkpoint_files"]

_CHUNK_BYTES = 16 << 20


def send_checkpoint_files(root_dir: str | Path, dst_rank: int) -> None:
    """Send the files of this rank's checkpoints, while `dst_rank` calls `receive_checkpoint_files`.

    Args:
        root_dir: The directory that contains `mp_rank_<mp_rank of this process>/`.
        dst_rank: The receiver's rank in the replica (its `mp_rank`).

    Raises:
        SMPCheckpointError: If there is no such directory, or a file cannot be read here or written by the receiver;
            raised on both ranks.
    """
    directory = Path(root_dir) / f"mp_rank_{session.current().placement.mp_rank}"
    failure: Exception | None = None
    try:
        for path in _files(directory):
            send(path.relative_to(directory).as_posix(), dst_rank, RankType.MP_RANK)
            for chunk in _chunks(path):
                send(chunk, dst_rank, RankType.MP_RANK)
    except (OSError, SMPCheckpointError) as error:
        failure = error
    send(_End(_error_text(failure)), dst_rank, RankType.MP_RANK)
    remote_error = recv_from(dst_rank, RankType.MP_RANK)
    if failure is not None or remote_error is not None:
        raise SMPCheckpointError(f"could not send {directory}: {remote_error or _error_text(failure)}") from failure


def receive_checkpoint_files(dst_root_dir: str | Path, src_rank: int) -> None:
    """Receive the files that `send_checkpoint_files` sends into `mp_rank_<src_rank>/` below `dst_root_dir`.

    Args:
        dst_root_dir: The directory in which to create `mp_rank_<src_rank>/`; files of the same names are replaced.
        src_rank: The sender's rank in the replica (its `mp_rank`).

    Raises:
        SMPCheckpointError: If the sender has no checkpoint directory, or a file cannot be read by the sender or written
            here; raised on both ranks.
    """
    incoming = _Incoming(Path(dst_root_dir) / f"mp_rank_{src_rank}")
    failure: Exception | None = None
    while not isinstance(part := recv_from(src_rank, RankType.MP_RANK), _End):
        try:
            if failure is None:
                incoming.take(part)
        except OSError as error:  # receive and drop the rest: the sender reads the answer only after its last file
            failure = error
    try:
        incoming.close(is_whole=failure is None and part.failure is None)
    except OSError as error:
        failure = failure or error
    send(_error_text(failure), src_rank, RankType.MP_RANK)
    if failure is not None or part.failure is not None:
        raise SMPCheckpointError(
            f"could not receive {incoming.directory}: {part.failure or _error_text(failure)}"
        ) from failure


@dataclass(frozen=True)
class _End:
    """The last message of a transfer."""

    failure: str | None
    """The error of the sender; None if all files were sent."""


class _Incoming:
    """Writes received files: for each file its name, then its bytes. A file gets its name when it is complete."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def take(self, part: str | bytes) -> None:
        """Begin the file of that name, or append bytes to the current file."""
        if isinstance(part, str):
            self.close(is_whole=True)
            self._path = self.directory / PurePosixPath(part)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._fresh(self._path).open("wb")
        elif self._file is not None:
            self._file.write(part)

    def close(self, *, is_whole: bool) -> None:
        """Close the current file: rename it if `is_whole`, else delete it."""
        if self._file is None or self._path is None:
            return
        self._file.close()
        if is_whole:
            self._fresh(self._path).replace(self._path)
        else:
            self._fresh(self._path).unlink(missing_ok=True)
        self._file = None

    def _fresh(self, path: Path) -> Path:
        return path.with_name(f".{path.name}.incoming")


def _files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        raise SMPCheckpointError(
            f"there is no directory {directory} on the rank that sends: save a checkpoint below that root before"
        )
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _error_text(failure: Exception | None) -> str | None:
    return None if failure is None else str(failure) or type(failure).__name__
